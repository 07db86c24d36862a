// furrow-check: judges a history, of one file or of several that were recorded by processes of one host
// during the same run. Exit code 0: no anomaly; 1: anomalies; 2: it cannot be judged.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"

namespace furrow::checker {
namespace {

constexpr char kUsage[] =
    "usage: furrow-check [--no-opacity] [--no-real-time] [--initial-register=N] [--bank-total=N] "
    "FILE.edn...\n"
    "Checks a history for strict serializability; several files are one history, with one clock. Exit code "
    "0: no anomaly, 1: anomalies, 2: cannot be "
    "judged.\n";

int Fail(std::string_view message) {
  std::fprintf(stderr, "furrow-check: %.*s\n", static_cast<int>(message.size()), message.data());
  return 2;
}

bool ParseNumber(std::string_view argument, std::string_view flag, std::optional<int64_t>* value) {
  int64_t number;
  if (!argument.starts_with(flag) || !absl::SimpleAtoi(Sv(argument.substr(flag.size())), &number))
    return false;
  *value = number;
  return true;
}

// The files as one history. A process is in one of them only.
absl::StatusOr<History> ReadAll(const std::vector<std::string>& paths) {
  History all;
  absl::flat_hash_map<uint32_t, std::string> found_in;
  for (const std::string& path : paths) {
    absl::StatusOr<History> history = ReadHistoryFile(path);
    if (!history.ok()) {
      return absl::Status(history.status().code(), path + ": " + std::string(history.status().message()));
    }
    if (paths.size() == 1) return history;
    for (const Operation& op : history->operations) {
      const auto [it, is_new] = found_in.try_emplace(op.process, path);
      if (!is_new && it->second != path) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": process ", op.process, " is in ", it->second, ", too"));
      }
    }
    all.Add(*history);
  }
  all.Number();
  return all;
}

int Main(int argc, char** argv) {
  CheckOptions options;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") return std::fputs(kUsage, stdout) < 0 ? 2 : 0;
    if (argument == "--no-opacity") {
      options.opacity = false;
    } else if (argument == "--no-real-time") {
      options.real_time = false;
    } else if (ParseNumber(argument, "--initial-register=", &options.initial_register) ||
               ParseNumber(argument, "--bank-total=", &options.bank_total)) {
      continue;
    } else if (argument.starts_with("-")) {
      std::fputs(kUsage, stderr);
      return Fail("unknown argument " + std::string(argument));
    } else {
      paths.emplace_back(argument);
    }
  }
  if (paths.empty()) {
    std::fputs(kUsage, stderr);
    return Fail("no file is named");
  }
  const auto history = ReadAll(paths);
  if (!history.ok()) return Fail(std::string(history.status().message()));
  const auto verdict = Check(*history, options);
  if (!verdict.ok()) return Fail(paths.front() + ": " + std::string(verdict.status().message()));
  std::fputs(verdict->ToString().c_str(), stdout);
  return verdict->valid() ? 0 : 1;
}

}  // namespace
}  // namespace furrow::checker

int main(int argc, char** argv) { return furrow::checker::Main(argc, argv); }
