// Workloads for simulated clusters: what their clients do, and what they record for the checker. Every object
// ends in a hash of its contents: a torn copy that a transaction accepts is noticed at once.
#ifndef FURROW_TESTS_SIM_WORKLOAD_H_
#define FURROW_TESTS_SIM_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/task.h"
#include "tests/checker/checker.h"
#include "tests/checker/recorder.h"
#include "tests/sim/sim_cluster.h"
#include "txn/transaction.h"

namespace furrow::sim {

enum class Workload : uint8_t {
  kListAppend,  // transactions of reads of, and appends to, a few hot lists
  kRegister,    // the same with registers
  kBank,        // transfers between accounts, and audits of all of them
  kLongFork,    // increments of single counters, and snapshots of all
  kAllocation,  // objects that come and go, reached through a directory
};
std::string_view Name(Workload workload);
// "list-append", "register", "bank", "long-fork", "allocation".
std::optional<Workload> ParseWorkload(std::string_view name);
inline constexpr Workload kAllWorkloads[] = {Workload::kListAppend, Workload::kRegister, Workload::kBank,
                                             Workload::kLongFork, Workload::kAllocation};

// What all clients of a run share.
struct Shared {
  explicit Shared(SimCluster& c) : cluster(c) {}
  // Remembers the first violation of an invariant.
  void Violated(std::string what);

  SimCluster& cluster;
  std::vector<Address> objects;  // by key
  uint32_t payload_bytes = 0;    // of each of them
  int64_t next_value = 1;        // unique in the run
  uint32_t running = 0;          // clients
  uint64_t committed = 0;
  uint64_t aborted = 0;
  uint64_t unknown = 0;
  absl::Status violation;
};

inline constexpr int64_t kOpeningBalance = 100;

// Makes the objects of a workload, spread over regions with primaries on all nodes.
Task<absl::Status> Populate(Workload workload, uint32_t keys, Shared& shared, txn::Worker& worker,
                            Random random);
// One client: `transactions` attempts.
Task<void> RunClient(Workload workload, Shared& shared, txn::Worker& worker, checker::ProcessLog& log,
                     Random random, uint32_t transactions);

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_WORKLOAD_H_
