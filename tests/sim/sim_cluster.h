// SimCluster: a cluster of nodes under the simulator, with a static view: the real transaction code over the
// simulated fabric, real cluster clocks that sample each other over drawn delays, the real safe-point rounds.
// Regions are made on demand, their replicas on drawn nodes.
#ifndef FURROW_TESTS_SIM_SIM_CLUSTER_H_
#define FURROW_TESTS_SIM_SIM_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "cluster/cluster_clock.h"
#include "cluster/region_directory.h"
#include "cluster/safe_point_rounds.h"
#include "cluster/seams.h"
#include "rdma/sim/sim_network.h"
#include "rdma/sim/sim_world.h"
#include "storage/memory_budget.h"
#include "storage/old_versions.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::sim {

struct SimClusterOptions {
  uint32_t nodes = 3;
  uint32_t compute_nodes = 0;  // the last ones: they hold no region
  uint16_t workers = 1;        // per node
  uint32_t replicas = 3;       // of each region
  uint32_t region_bytes = 4 << 20;
  uint32_t old_version_blocks = 2;  // per node, of 1 MB each; at least one per worker
  uint32_t log_ring_bytes = 64 << 10;
  uint32_t validate_by_message_above = 4;   // txn::NodeOptions
  bool exact_clocks = false;                // no offset, no drift, no uncertainty
  Nanos sample_every = 500 * kMicrosecond;  // clock samples and safe-point reports
  Nanos sample_delay = 30 * kMicrosecond;   // each way, up to this
  bool recovery = false;                    // members can be lost: Kill(), Evict()
  Nanos lease_ns = 4 * kMillisecond;        // until one that was evicted has no lease any more
  rdma::SimWorldOptions world;
  rdma::SimNetworkOptions network;
  // A configuration drawn from the seed: sizes, clocks, latency, tearing, stalls.
  static SimClusterOptions Draw(uint64_t seed);
  std::string ToString() const;
};

class SimCluster {
 public:
  SimCluster(uint64_t seed, SimClusterOptions options);
  ~SimCluster();
  SimCluster(const SimCluster&) = delete;
  SimCluster& operator=(const SimCluster&) = delete;

  // Starts all workers, connects everybody with everybody, and waits for the clocks.
  absl::Status Start();

  rdma::SimWorld& world() { return world_; }
  rdma::SimNetwork& network() { return network_; }
  const SimClusterOptions& options() const { return options_; }
  uint32_t nodes() const { return static_cast<uint32_t>(members_.size()); }
  txn::Worker& worker(uint32_t node, uint32_t worker);
  txn::Node& node(uint32_t node);
  rdma::SimProcess& process(uint32_t node);
  // A new region with its primary on this node (0-based); the mapping is known everywhere.
  absl::StatusOr<RegionId> AddRegion(uint32_t primary, RegionId near = RegionId());

  // Delays, slow and cut links, pauses: drawn, until `stop` is true. No connection fails by them.
  void StartDisturbance(std::function<bool()> stop);

  // Destroys all tasks, wherever they are, before what their frames refer to dies: for who gives up a run
  // that comes to no end. Nothing runs afterwards.
  void Abandon();

  // --- failures (sim_failures.cc); with options.recovery ---

  // The process of a member ends at once; the manager notices it after a drawn time, and reconfigures.
  void Kill(uint32_t node);
  // The manager takes a member that lives for lost, now.
  void Evict(uint32_t node);
  // The same, with neither a wait for acknowledgements nor one for the lease: all other members get both
  // messages now.
  void EvictAtOnce(uint32_t node);
  // In the newest configuration.
  bool IsMember(uint32_t node) const;
  bool IsStorage(uint32_t node) const { return node < nodes() - options_.compute_nodes; }
  // True when no transaction recovers any more, in the newest configuration, at any member.
  bool Recovered() const;
  // How far recovery is, at each member.
  std::string DescribeRecovery() const;
  uint64_t configurations() const { return config_.value(); }

  // Waits until all records are truncated, then compares: no lock left, every replica of every object equal.
  absl::Status DrainAndCompare();

 private:
  struct Member;
  class Control;
  class MemberLease;
  struct Change;
  void Reconfigure();
  void NextConfiguration();
  void Adopted(const std::shared_ptr<Change>& change, uint32_t node);
  void CommitIfAdopted(const std::shared_ptr<Change>& change);
  std::shared_ptr<const cluster::ClusterView> MakeView() const;
  void Exchange(Member& member);
  void Disturb(std::function<bool()> stop);
  absl::Status WithWhatIsHeld(absl::Status status) const;
  absl::Status CompareRegion(const cluster::RegionMapping& mapping);
  Nanos Delay() { return random_.Between(0, options_.sample_delay); }

  const SimClusterOptions options_;
  rdma::SimWorld world_;
  rdma::SimNetwork network_;
  Random random_;
  cluster::SafePointRounds rounds_;
  ConfigId config_{1};
  std::shared_ptr<Change> change_;  // the newest; null before the first
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<cluster::RegionMapping> regions_;
};

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_SIM_CLUSTER_H_
