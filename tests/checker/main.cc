// furrow-check: judges one history file. Exit code 0: no anomaly; 1: anomalies; 2: it cannot be judged.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"

namespace furrow::checker {
namespace {

constexpr char kUsage[] =
    "usage: furrow-check [--no-opacity] [--no-real-time] [--initial-register=N] [--bank-total=N] FILE.edn\n"
    "Checks a history for strict serializability. Exit code 0: no anomaly, 1: anomalies, 2: cannot be "
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

int Main(int argc, char** argv) {
  CheckOptions options;
  std::string path;
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
    } else if (argument.starts_with("-") || !path.empty()) {
      std::fputs(kUsage, stderr);
      return Fail("unknown argument " + std::string(argument));
    } else {
      path = argument;
    }
  }
  if (path.empty()) {
    std::fputs(kUsage, stderr);
    return Fail("no file is named");
  }
  const auto history = ReadHistoryFile(path);
  if (!history.ok()) return Fail(path + ": " + std::string(history.status().message()));
  const auto verdict = Check(*history, options);
  if (!verdict.ok()) return Fail(path + ": " + std::string(verdict.status().message()));
  std::fputs(verdict->ToString().c_str(), stdout);
  return verdict->valid() ? 0 : 1;
}

}  // namespace
}  // namespace furrow::checker

int main(int argc, char** argv) { return furrow::checker::Main(argc, argv); }
