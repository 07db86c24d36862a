// The tokens of EDN, as far as histories need them. Bytes come from outside: every error is a Status.
#ifndef FURROW_TESTS_CHECKER_EDN_SCANNER_H_
#define FURROW_TESTS_CHECKER_EDN_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace furrow::checker {

// A cursor over one text. Does not own it; one owner.
class EdnScanner {
 public:
  // Forms nested deeper are refused: the scanner calls itself for each level.
  static constexpr int kMaxDepth = 64;

  explicit EdnScanner(std::string_view text) : text_(text) {}

  // The next character that is no blank, comma or comment; 0 at the end.
  char Peek();
  // Takes the next character if it is `c`.
  bool TryTake(char c);
  absl::Status Take(char c);
  // A symbol, keyword (with its colon) or number: everything up to a delimiter.
  absl::StatusOr<std::string_view> TakeToken();
  absl::StatusOr<int64_t> TakeInt();
  // The characters between the quotes; escapes stay as they are.
  absl::StatusOr<std::string_view> TakeString();
  // Steps over one form of any kind, with tags and metadata.
  absl::Status SkipForm(int depth = 0);
  // Steps over tags (#name) in front of a form.
  absl::Status SkipTags();

  size_t line() const { return line_; }
  absl::Status Error(std::string_view what) const;

 private:
  void Advance(size_t n);

  const std::string_view text_;
  size_t at_ = 0;
  size_t line_ = 1;
};

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_EDN_SCANNER_H_
