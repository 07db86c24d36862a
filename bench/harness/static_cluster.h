// StaticCluster: several storage nodes over the shm fabric in one process, driven by one thread in turn,
// without leases, failures or a control plane of its own. For tests of workloads, and to measure what a
// transaction costs on all nodes together: the thread's time is all there is. Regions are made when somebody
// asks for them.
#ifndef FURROW_BENCH_HARNESS_STATIC_CLUSTER_H_
#define FURROW_BENCH_HARNESS_STATIC_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/harness/host.h"
#include "cluster/seams.h"
#include "index/catalog.h"
#include "txn/worker.h"

namespace furrow::bench {

class StaticCluster {
 public:
  struct Options {
    uint32_t nodes = 3;
    uint32_t replicas = 3;
    uint64_t region_bytes = 64 << 20;
    uint64_t memory_bytes = uint64_t{8} << 30;  // per node
    uint64_t old_version_bytes = 64 << 20;
  };
  // Sockets lie in `directory`, which exists. Every error here is fatal: it is for tests and tools.
  StaticCluster(Options options, std::string directory);
  ~StaticCluster();

  size_t nodes() const { return nodes_.size(); }
  txn::Worker& worker(size_t node);
  // One round of every node's loop.
  void Turn();
  // Turns until the task, which runs on the node's worker, has ended.
  absl::Status Wait(size_t node, Task<absl::Status> task);
  void TurnUntil(const std::function<bool()>& done);
  // All nodes at once.
  absl::Status Drain();
  // One node as a benchmark's process sees it. Owned by the cluster.
  Host& host(size_t node);

 private:
  struct Member;
  // Makes a region on its replicas and tells everybody; the mapping as the asker knows it.
  absl::StatusOr<RegionId> AllocateRegion(const cluster::AllocateRegionRequest& request);

  const Options options_;
  std::vector<std::unique_ptr<Member>> nodes_;
  std::vector<cluster::RegionMapping> regions_;  // region i + 1
  std::unique_ptr<cluster::Lease> lease_;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_STATIC_CLUSTER_H_
