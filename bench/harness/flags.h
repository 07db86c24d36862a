// Command-line flags of a subcommand: "--name value", "--name=value", and "--name" alone for switches.
#ifndef FURROW_BENCH_HARNESS_FLAGS_H_
#define FURROW_BENCH_HARNESS_FLAGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace furrow::bench {

class FlagSet {
 public:
  // `usage` is the first line of the help.
  explicit FlagSet(std::string usage) : usage_(std::move(usage)) {}

  // `value` holds the default and receives what was given; it outlives the set. Numbers must lie in [low,
  // high].
  void AddSwitch(std::string_view name, bool* value, std::string_view help);
  void AddNumber(std::string_view name, uint64_t* value, uint64_t low, uint64_t high, std::string_view help);
  void AddText(std::string_view name, std::string* value, std::string_view help);
  // Understood, but not in the help.
  void Hide(std::string_view name);

  // InvalidArgument: one sentence that says what is wrong and what to write. `--help` sets help_asked().
  absl::Status Parse(std::span<const std::string_view> arguments);
  bool help_asked() const { return help_asked_; }
  std::string Help() const;

 private:
  struct Number {
    uint64_t* value;
    uint64_t low;
    uint64_t high;
  };
  struct Flag {
    std::string name;
    std::string help;
    std::variant<bool*, Number, std::string*> target;
    bool hidden = false;
  };
  Flag* Find(std::string_view name);
  std::string usage_;
  std::vector<Flag> flags_;
  bool help_asked_ = false;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_FLAGS_H_
