#include "node/flags.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace furrow::node {

absl::StatusOr<uint64_t> ParseSize(const std::string& text) {
  constexpr struct {
    char letter;
    int shift;
  } kUnits[] = {{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}};
  std::string digits = text;
  int shift = 0;
  if (!digits.empty() && (digits.back() == 'B' || digits.back() == 'b')) digits.pop_back();
  for (const auto& unit : kUnits) {
    if (!digits.empty() && (digits.back() & ~0x20) == unit.letter) {
      shift = unit.shift;
      digits.pop_back();
      break;
    }
  }
  uint64_t value;
  if (!absl::SimpleAtoi(digits, &value) || value > (std::numeric_limits<uint64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no size: write 64M or 8G, say"));
  }
  return value << shift;
}

absl::StatusOr<Nanos> ParseDuration(const std::string& text) {
  constexpr struct {
    const char* suffix;
    Nanos ns;
  } kUnits[] = {{"ns", 1}, {"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond}};
  absl::string_view digits = text;
  for (const auto& unit : kUnits) {
    int64_t value;
    if (!absl::ConsumeSuffix(&digits, unit.suffix)) continue;
    if (!absl::SimpleAtoi(digits, &value) || value > std::numeric_limits<Nanos>::max() / kSecond ||
        value < std::numeric_limits<Nanos>::min() / kSecond) {
      break;
    }
    return value * unit.ns;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no time: write 10s, 5ms, 20us or 100ns, say"));
}

void Flags::Text(std::string name, std::string placeholder, std::string* value, std::string help) {
  Add({std::move(name), std::move(placeholder), std::move(help), [value](const std::string& text) {
         *value = text;
         return absl::OkStatus();
       }});
}

void Flags::Switch(std::string name, bool* value, std::string help) {
  Add({std::move(name), "", std::move(help), [value](const std::string& text) {
         if (text != "" && text != "true" && text != "false") {
           return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is neither true nor false"));
         }
         *value = text != "false";
         return absl::OkStatus();
       }});
}

void Flags::Number(std::string name, std::string placeholder, uint64_t* value, std::string help) {
  Add({std::move(name), std::move(placeholder), std::move(help), [value](const std::string& text) {
         if (absl::SimpleAtoi(text, value)) return absl::OkStatus();
         return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no whole number"));
       }});
}

void Flags::Size(std::string name, uint64_t* bytes, std::string help) {
  Add({std::move(name), "SIZE", std::move(help), [bytes](const std::string& text) {
         FURROW_ASSIGN_OR_RETURN(*bytes, ParseSize(text));
         return absl::OkStatus();
       }});
}

void Flags::Duration(std::string name, Nanos* ns, std::string help) {
  Add({std::move(name), "TIME", std::move(help), [ns](const std::string& text) {
         FURROW_ASSIGN_OR_RETURN(*ns, ParseDuration(text));
         return absl::OkStatus();
       }});
}

const Flags::Flag* Flags::Find(const std::string& name) const {
  auto it = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == name; });
  return it == flags_.end() ? nullptr : &*it;
}

absl::Status Flags::Set(const std::string& name, const std::string& value, const std::string& where) {
  const Flag* flag = Find(name);
  if (flag == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no flag --", name, where, ": \"", command_, " --help\" lists them"));
  }
  absl::Status set = flag->set(value);
  if (set.ok()) return set;
  return absl::InvalidArgumentError(absl::StrCat("--", name, where, ": ", set.message()));
}

absl::Status Flags::ReadFile(const std::string& path) {
  std::error_code error;
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat("cannot read the configuration file ", path));
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    absl::string_view line = absl::StripAsciiWhitespace(absl::string_view(text).substr(0, text.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, equals)));
    const std::string value(
        equals == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(line.substr(equals + 1)));
    FURROW_RETURN_IF_ERROR(Set(name, value, absl::StrCat(" (", path, ", line ", number, ")")));
  }
  return absl::OkStatus();
}

absl::Status Flags::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::pair<std::string, std::string>> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") return absl::OutOfRangeError(Help());
    absl::string_view argument = arguments[i];
    if (!absl::ConsumePrefix(&argument, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", arguments[i], "\" is no flag: \"", command_, " --help\" lists them"));
    }
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    if (equals != absl::string_view::npos) {
      given.emplace_back(name, std::string(argument.substr(equals + 1)));
      continue;
    }
    const Flag* flag = Find(name);
    if (flag == nullptr && name != "config") return Set(name, "", "");
    const bool takes_value = name == "config" || (flag != nullptr && !flag->placeholder.empty());
    if (!takes_value) {
      given.emplace_back(name, "");
    } else if (++i < arguments.size()) {
      given.emplace_back(name, arguments[i]);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
  }
  for (const auto& [name, value] : given) {
    if (name == "config") FURROW_RETURN_IF_ERROR(ReadFile(value));
  }
  for (const auto& [name, value] : given) {
    if (name != "config") FURROW_RETURN_IF_ERROR(Set(name, value, ""));
  }
  return absl::OkStatus();
}

std::string Flags::Help() const {
  std::string text = absl::StrCat(command_, ": ", summary_, "\n\n");
  auto line = [&](const std::string& left, const std::string& help) {
    absl::StrAppend(&text, absl::StrFormat("  %-28s %s\n", left, help));
  };
  for (const Flag& f : flags_) {
    line(absl::StrCat("--", f.name, f.placeholder.empty() ? "" : " ", f.placeholder), f.help);
  }
  line("--config FILE", "read \"name = value\" lines first; flags override them");
  return text;
}

}  // namespace furrow::node
