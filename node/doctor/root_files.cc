#include "node/doctor/root_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "node/doctor/host_facts.h"

namespace furrow::node {

bool RootFiles::Exists(const std::string& path) const {
  std::error_code error;
  return std::filesystem::exists(Path(path), error);
}

std::string RootFiles::Text(const std::string& path) const {
  std::error_code error;
  if (std::filesystem::is_directory(Path(path), error)) return "";
  std::ifstream file(Path(path));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::string(absl::StripAsciiWhitespace(text));
}

std::optional<uint64_t> RootFiles::Number(const std::string& path) const {
  uint64_t value;
  if (!absl::SimpleAtoi(Text(path), &value)) return std::nullopt;
  return value;
}

std::vector<std::string> RootFiles::List(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(Path(path), error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    uint64_t x, y;
    if (absl::SimpleAtoi(a, &x) && absl::SimpleAtoi(b, &y)) return x < y;
    return a < b;
  });
  return names;
}

std::string RootFiles::LinkName(const std::string& path) const {
  std::error_code error;
  return std::filesystem::read_symlink(Path(path), error).filename();
}

std::optional<uint64_t> RootFiles::Field(const std::string& path, const std::string& name) const {
  for (absl::string_view line : absl::StrSplit(Text(path), '\n')) {
    // Files of a NUMA node have "Node 0 " before the name.
    const size_t at = line.find(absl::StrCat(name, ":"));
    if (at == absl::string_view::npos || (at > 0 && line[at - 1] != ' ')) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(at + name.size() + 1), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t value;
    if (words.empty() || !absl::SimpleAtoi(words[0], &value)) return std::nullopt;
    return words.size() > 1 && words[1] == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

std::vector<int> ParseList(const std::string& text) {
  constexpr int kMax = 65536;  // processors of the largest hosts that Linux runs on, and more
  std::vector<int> numbers;
  for (absl::string_view piece : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(piece, '-');
    int first, last;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) continue;
    for (int i = first; i >= 0 && i <= last && i < kMax; ++i) numbers.push_back(i);
  }
  return numbers;
}

std::optional<uint64_t> ParseLimit(const std::string& text) {
  if (text == "max" || text == "unlimited") return kUnlimited;
  uint64_t value;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace furrow::node
