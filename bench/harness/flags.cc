#include "bench/harness/flags.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"

namespace furrow::bench {

void FlagSet::AddSwitch(std::string_view name, bool* value, std::string_view help) {
  flags_.push_back({std::string(name), std::string(help), value});
}
void FlagSet::AddNumber(std::string_view name, uint64_t* value, uint64_t low, uint64_t high,
                        std::string_view help) {
  flags_.push_back({std::string(name), std::string(help), Number{value, low, high}});
}
void FlagSet::AddText(std::string_view name, std::string* value, std::string_view help) {
  flags_.push_back({std::string(name), std::string(help), value});
}

FlagSet::Flag* FlagSet::Find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

void FlagSet::Hide(std::string_view name) {
  if (Flag* flag = Find(name)) flag->hidden = true;
}

absl::Status FlagSet::Parse(std::span<const std::string_view> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      help_asked_ = true;
      return absl::OkStatus();
    }
    if (!argument.starts_with("--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", Sv(argument), "'; flags start with --, see --help"));
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(2, equals == argument.npos ? argument.npos : equals - 2);
    Flag* flag = Find(name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", Sv(name), "; --help lists the flags"));
    }
    std::optional<std::string_view> value;
    if (equals != argument.npos) value = argument.substr(equals + 1);
    if (bool** target = std::get_if<bool*>(&flag->target)) {
      if (value)
        return absl::InvalidArgumentError(
            absl::StrCat("--", Sv(name), " is a switch: write it without a value"));
      **target = true;
      continue;
    }
    if (!value) {
      if (i + 1 == arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", Sv(name), " needs a value"));
      }
      value = arguments[++i];
    }
    if (std::string** target = std::get_if<std::string*>(&flag->target)) {
      **target = std::string(*value);
      continue;
    }
    const Number& number = std::get<Number>(flag->target);
    uint64_t parsed = 0;
    if (!absl::SimpleAtoi(Sv(*value), &parsed) || parsed < number.low || parsed > number.high) {
      return absl::InvalidArgumentError(absl::StrCat("--", Sv(name), " must be a whole number from ",
                                                     number.low, " to ", number.high, ", not '", Sv(*value),
                                                     "'"));
    }
    *number.value = parsed;
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  std::string out = absl::StrCat(usage_, "\n\n");
  for (const Flag& flag : flags_) {
    if (flag.hidden) continue;
    std::string left = absl::StrCat("--", flag.name);
    std::string after;
    if (const Number* number = std::get_if<Number>(&flag.target)) {
      left += " N";
      after = absl::StrCat(" (default ", *number->value, ")");
    } else if (std::string* const* text = std::get_if<std::string*>(&flag.target)) {
      left += " TEXT";
      if (!(*text)->empty()) after = absl::StrCat(" (default ", **text, ")");
    }
    absl::StrAppendFormat(&out, "  %-22s %s%s\n", left, flag.help, after);
  }
  return out;
}

}  // namespace furrow::bench
