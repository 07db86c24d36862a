#include "tests/checker/edn_scanner.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace furrow::checker {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ','; }

bool IsDelimiter(char c) {
  return IsBlank(c) || c == '(' || c == ')' || c == '[' || c == ']' || c == '{' || c == '}' || c == '"' ||
         c == ';';
}

char Closing(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

}  // namespace

absl::Status EdnScanner::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", Sv(what)));
}

void EdnScanner::Advance(size_t n) {
  for (const size_t end = at_ + n; at_ < end; ++at_) {
    if (text_[at_] == '\n') ++line_;
  }
}

char EdnScanner::Peek() {
  while (at_ < text_.size()) {
    if (text_[at_] == ';') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (IsBlank(text_[at_])) {
      Advance(1);
    } else {
      return text_[at_];
    }
  }
  return 0;
}

bool EdnScanner::TryTake(char c) {
  if (Peek() != c || c == 0) return false;
  Advance(1);
  return true;
}

absl::Status EdnScanner::Take(char c) {
  if (TryTake(c)) return absl::OkStatus();
  const char found = Peek();
  if (found == 0) return Error(absl::StrCat("the text ends where '", std::string(1, c), "' belongs"));
  return Error(absl::StrCat("'", std::string(1, found), "' stands where '", std::string(1, c), "' belongs"));
}

absl::StatusOr<std::string_view> EdnScanner::TakeToken() {
  Peek();
  size_t end = at_;
  while (end < text_.size() && !IsDelimiter(text_[end])) ++end;
  if (end == at_) {
    if (at_ == text_.size()) return Error("the text ends where a value belongs");
    return Error(absl::StrCat("'", Sv(text_.substr(at_, 1)), "' stands where a value belongs"));
  }
  const std::string_view token = text_.substr(at_, end - at_);
  Advance(token.size());
  return token;
}

absl::StatusOr<int64_t> EdnScanner::TakeInt() {
  FURROW_ASSIGN_OR_RETURN(const std::string_view token, TakeToken());
  std::string_view digits = token;
  if (digits.size() > 1 && digits.back() == 'N') digits.remove_suffix(1);
  int64_t value;
  if (!absl::SimpleAtoi(Sv(digits), &value)) {
    return Error(absl::StrCat("'", Sv(token), "' is not a whole number of 64 bits"));
  }
  return value;
}

absl::StatusOr<std::string_view> EdnScanner::TakeString() {
  FURROW_RETURN_IF_ERROR(Take('"'));
  size_t end = at_;
  while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size()) return Error("a string does not end");
  const std::string_view string = text_.substr(at_, end - at_);
  Advance(string.size() + 1);
  return string;
}

absl::Status EdnScanner::SkipTags() {
  while (Peek() == '#' && at_ + 1 < text_.size() && text_[at_ + 1] != '{') {
    FURROW_RETURN_IF_ERROR(TakeToken().status());
  }
  return absl::OkStatus();
}

absl::Status EdnScanner::SkipForm(int depth) {
  if (depth > kMaxDepth) return Error(absl::StrCat("forms are nested deeper than ", kMaxDepth));
  FURROW_RETURN_IF_ERROR(SkipTags());
  TryTake('#');  // of a set
  const char open = Peek();
  if (open == '"') return TakeString().status();
  if (open != '(' && open != '[' && open != '{') return TakeToken().status();
  Advance(1);
  while (!TryTake(Closing(open))) {
    if (Peek() == 0) return Error(absl::StrCat("the text ends before '", std::string(1, Closing(open)), "'"));
    FURROW_RETURN_IF_ERROR(SkipForm(depth + 1));
  }
  return absl::OkStatus();
}

}  // namespace furrow::checker
