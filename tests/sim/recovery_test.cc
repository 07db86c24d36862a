// Simulated clusters in which members are lost, under many seeds, judged by the checker; then replicas are
// compared. `sim_test --seed N --workload W --kills K --evictions E` replays one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <tuple>

#include "absl/strings/numbers.h"
#include "tests/sim/simulation.h"

namespace furrow::sim {
namespace {

struct Failures {
  const char* name;
  uint32_t kills;
  uint32_t evictions;
};
std::ostream& operator<<(std::ostream& out, const Failures& failures) { return out << failures.name; }
constexpr Failures kFailures[] = {
    {"OneDies", 1, 0}, {"TwoDie", 2, 0}, {"OneIsEvicted", 0, 1}, {"OneDiesAndOneIsEvicted", 1, 1}};

// A run of each workload and kind of failure costs a tenth of a second.
uint64_t SeedsPerRun() {
  const char* text = std::getenv("FURROW_SIM_SEEDS");
  uint64_t seeds = 600;
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) seeds = 600;
  const uint64_t runs = std::size(kAllWorkloads) * std::size(kFailures);
  return (seeds + runs - 1) / runs;
}

class Recovery : public testing::TestWithParam<std::tuple<Workload, Failures>> {
 protected:
  SimulationOptions OptionsFor(uint64_t seed) const {
    const auto& [workload, failures] = GetParam();
    return {.seed = seed, .workload = workload, .kills = failures.kills, .evictions = failures.evictions};
  }
};

TEST_P(Recovery, NothingIsLostOrWrong) {
  uint64_t committed = 0;
  uint64_t aborted = 0;
  for (uint64_t seed = 1; seed <= SeedsPerRun(); ++seed) {
    SimulationResult result = RunSimulation(OptionsFor(seed));
    ASSERT_TRUE(result.status.ok()) << "seed " << seed << ": " << result.status;
    committed += result.committed;
    aborted += result.aborted;
  }
  // A run in which nearly everything is aborted would prove little.
  EXPECT_GT(committed, aborted / 4);
}

TEST_P(Recovery, TheSameSeedGivesTheSameDigest) {
  const SimulationResult first = RunSimulation(OptionsFor(3));
  const SimulationResult second = RunSimulation(OptionsFor(3));
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_EQ(first.steps, second.steps);
}

// A transaction that was aborted gave its slot, leased by a primary that was lost meanwhile, back into the
// cache. The new primary leased the slot to another one: a later transaction took it, and found there what it
// had not written yet.
TEST(RecoverySeeds, SlotsOfALostPrimaryDoNotComeBack) {
  const SimulationResult result =
      RunSimulation({.seed = 31, .workload = Workload::kAllocation, .kills = 1, .evictions = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
}

INSTANTIATE_TEST_SUITE_P(All, Recovery,
                         testing::Combine(testing::ValuesIn(kAllWorkloads), testing::ValuesIn(kFailures)),
                         [](const auto& info) {
                           std::string name;
                           for (char c : Name(std::get<0>(info.param))) {
                             if (c != '-') name += c;
                           }
                           return name + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace furrow::sim
