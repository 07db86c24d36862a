// Flags of the `furrow` executable: --name value, --name=value, or --name for switches; and the same as "name
// = value" lines of a configuration file (--config FILE), which flags on the command line override. '#'
// begins a comment.
#ifndef FURROW_NODE_FLAGS_H_
#define FURROW_NODE_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace furrow::node {

class Flags {
 public:
  // `command` as in "furrow node", for the help text.
  Flags(std::string command, std::string summary)
      : command_(std::move(command)), summary_(std::move(summary)) {}

  // Each names a flag without dashes, what it sets, and a line of help. `placeholder` as in "--dir DIR".
  void Text(std::string name, std::string placeholder, std::string* value, std::string help);
  void Switch(std::string name, bool* value, std::string help);
  void Number(std::string name, std::string placeholder, uint64_t* value, std::string help);
  void Size(std::string name, uint64_t* bytes, std::string help);  // 8G, 64M, 512K, 4096
  void Duration(std::string name, Nanos* ns, std::string help);    // 10s, 5ms, 20us, 100ns, with a sign

  // InvalidArgument: an unknown flag, a missing or wrong value: one sentence. OutOfRange: --help was asked
  // for; the message is the help.
  absl::Status Parse(const std::vector<std::string>& arguments);
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string placeholder;  // empty: a switch
    std::string help;
    std::function<absl::Status(const std::string&)> set;
  };
  void Add(Flag flag) { flags_.push_back(std::move(flag)); }
  const Flag* Find(const std::string& name) const;
  absl::Status Set(const std::string& name, const std::string& value, const std::string& where);
  absl::Status ReadFile(const std::string& path);

  const std::string command_;
  const std::string summary_;
  std::vector<Flag> flags_;
};

absl::StatusOr<uint64_t> ParseSize(const std::string& text);
absl::StatusOr<Nanos> ParseDuration(const std::string& text);

}  // namespace furrow::node

#endif  // FURROW_NODE_FLAGS_H_
