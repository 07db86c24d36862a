// One simulated run: a cluster and a workload under a seed, judged.
#ifndef FURROW_TESTS_SIM_SIMULATION_H_
#define FURROW_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/workload.h"

namespace furrow::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  Workload workload = Workload::kListAppend;
  uint32_t clients_per_worker = 0;  // 0: drawn
  uint32_t transactions = 0;        // per client; 0: drawn
  uint32_t keys = 0;                // 0: drawn
  bool disturb = true;
  uint32_t kills = 0;      // processes that die at drawn times; with them goes options.recovery
  uint32_t evictions = 0;  // members that live, and are taken for lost
  // Changes the configuration that the seed draws.
  std::function<void(SimClusterOptions&)> adjust = {};
};

struct SimulationResult {
  // OK; what went wrong otherwise: an invariant, an anomaly with the transactions that make it, a time limit.
  absl::Status status;
  uint64_t digest = 0;
  uint64_t steps = 0;
  Nanos virtual_time = 0;
  uint64_t committed = 0;
  uint64_t aborted = 0;
  uint64_t unknown = 0;
  std::string edn;  // the history, when it was asked for
};

// `edn`: also returns the history as text.
SimulationResult RunSimulation(const SimulationOptions& options, bool edn = false);

// How to run this seed again.
std::string ReplayCommand(const SimulationOptions& options);

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_SIMULATION_H_
