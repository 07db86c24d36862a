// Simulated clusters under many seeds, judged by the checker. As a tool:
//   sim_test --seed N --workload W [--mutation M] [--history FILE]   one run, verbose; the way to replay a
//   failure sim_test --seeds A..B [--workload W]                             a range of seeds
//   --kills N, --evictions N: so many processes die, or live and are taken for lost
// As a test (no such flags) it runs FURROW_SIM_SEEDS seeds (default 600) in all.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutation.h"
#include "tests/sim/simulation.h"

namespace furrow::sim {
namespace {

uint64_t SeedsPerWorkload() {
  const char* text = std::getenv("FURROW_SIM_SEEDS");
  uint64_t seeds = 600;
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) seeds = 600;
  return (seeds + std::size(kAllWorkloads) - 1) / std::size(kAllWorkloads);
}

class Simulation : public testing::TestWithParam<Workload> {};

TEST_P(Simulation, HistoriesAreStrictlySerializableAndReplicasEqual) {
  uint64_t committed = 0;
  uint64_t aborted = 0;
  for (uint64_t seed = 1; seed <= SeedsPerWorkload(); ++seed) {
    SimulationResult result = RunSimulation({.seed = seed, .workload = GetParam()});
    ASSERT_TRUE(result.status.ok()) << "seed " << seed << ": " << result.status;
    committed += result.committed;
    aborted += result.aborted;
  }
  // A run in which nearly everything is aborted would prove little.
  EXPECT_GT(committed, aborted / 2);
  std::printf("%llu committed, %llu aborted\n", static_cast<unsigned long long>(committed),
              static_cast<unsigned long long>(aborted));
}

TEST_P(Simulation, TheSameSeedGivesTheSameDigest) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SimulationResult first = RunSimulation({.seed = seed, .workload = GetParam()});
    SimulationResult second = RunSimulation({.seed = seed, .workload = GetParam()});
    EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
    EXPECT_EQ(first.steps, second.steps) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, Simulation, testing::ValuesIn(kAllWorkloads), [](const auto& info) {
  std::string name;
  for (char c : Name(info.param)) {
    if (c != '-') name += c;
  }
  return name;
});

int RunOne(const SimulationOptions& options, const std::string& history) {
  const uint64_t seed = options.seed;
  const Workload workload = options.workload;
  SimulationResult result = RunSimulation(options, !history.empty());
  std::printf(
      "seed %llu %.*s: %s\n  digest %016llx, %llu steps, %.3f ms of virtual time; %llu committed, %llu "
      "aborted, "
      "%llu unknown\n",
      static_cast<unsigned long long>(seed), static_cast<int>(Name(workload).size()), Name(workload).data(),
      result.status.ToString().c_str(), static_cast<unsigned long long>(result.digest),
      static_cast<unsigned long long>(result.steps), static_cast<double>(result.virtual_time - kSecond) / 1e6,
      static_cast<unsigned long long>(result.committed), static_cast<unsigned long long>(result.aborted),
      static_cast<unsigned long long>(result.unknown));
  if (!history.empty()) {
    if (std::FILE* file = std::fopen(history.c_str(), "w")) {
      std::fwrite(result.edn.data(), 1, result.edn.size(), file);
      std::fclose(file);
    }
  }
  return result.status.ok() ? 0 : 1;
}

// What the command line asks for besides gtest's own flags.
struct Flags {
  uint64_t first = 0;  // 0: run as a test
  uint64_t last = 0;
  std::optional<Workload> workload;
  Mutation mutation = Mutation::kNone;
  std::string history;
  uint32_t kills = 0;
  uint32_t evictions = 0;
  bool Parse(int argc, char** argv);
};

bool Flags::Parse(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view flag = argv[i];
    std::string value = argv[i + 1];
    if (flag == "--seed") {
      if (!absl::SimpleAtoi(value, &first)) return false;
      last = first;
    } else if (flag == "--seeds") {
      size_t dots = value.find("..");
      if (dots == std::string::npos || !absl::SimpleAtoi(value.substr(0, dots), &first) ||
          !absl::SimpleAtoi(value.substr(dots + 2), &last)) {
        return false;
      }
    } else if (flag == "--workload") {
      workload = ParseWorkload(value);
      if (!workload.has_value()) return false;
    } else if (flag == "--mutation") {
      mutation = ParseMutation(value);
      if (mutation == Mutation::kNone) return false;
    } else if (flag == "--history") {
      history = value;
    } else if (flag == "--kills" || flag == "--evictions") {
      if (!absl::SimpleAtoi(value, flag == "--kills" ? &kills : &evictions)) return false;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

int Replay(const Flags& flags) {
#ifdef FURROW_MUTATIONS
  if (flags.mutation != Mutation::kNone) SetMutation(flags.mutation);
#endif
  int worst = 0;
  for (uint64_t seed = flags.first; seed <= flags.last; ++seed) {
    for (Workload workload : kAllWorkloads) {
      if (flags.workload.value_or(workload) != workload) continue;
      worst |=
          RunOne({.seed = seed, .workload = workload, .kills = flags.kills, .evictions = flags.evictions},
                 flags.history);
    }
  }
  return worst;
}

}  // namespace
}  // namespace furrow::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  furrow::sim::Flags flags;
  if (!flags.Parse(argc, argv)) {
    std::fprintf(stderr,
                 "usage: sim_test [--seed N | --seeds A..B] [--workload "
                 "list-append|register|bank|long-fork|allocation] "
                 "[--mutation NAME] [--history FILE] [--kills N] [--evictions N]\n");
    return 2;
  }
  return flags.first == 0 ? RUN_ALL_TESTS() : furrow::sim::Replay(flags);
}
