// Node: what the workers of one process share. Assembled by client/ (or by a test), then constant but for
// what is thread-safe by itself.
#ifndef FURROW_TXN_NODE_H_
#define FURROW_TXN_NODE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/region_directory.h"
#include "cluster/seams.h"
#include "rdma/fabric.h"
#include "rdma/ring/mesh.h"
#include "storage/memory_budget.h"
#include "storage/old_versions.h"
#include "storage/region.h"
#include "txn/lock_table.h"
#include "txn/node_allocator.h"

namespace furrow::txn {

struct NodeOptions {
  NodeId id;
  Incarnation incarnation;
  uint64_t cluster_hash = 0;
  uint16_t workers = 1;
  uint64_t region_bytes = 64 << 20;
  rdma::MeshOptions mesh;
  // A read that meets a locked head waits this long before it aborts. Nobody waits for who only reads, so the
  // wait is no deadlock; it is longer than a holder that has lost its core needs to get one again.
  Nanos locked_read_wait_ns = 50 * kMillisecond;
  // Objects per primary from which VALIDATE goes as one message instead of READs (t_r, SOSP'15 section 4). On
  // a fabric whose READs end inside Post() a READ is always cheaper.
  uint32_t validate_by_message_above = 4;
  // Slots leased at a time, per locality group and size class.
  uint32_t lease_batch = 64;
  // Truncations that wait for a record to ride on are sent by themselves after this time.
  Nanos truncate_flush_ns = 5 * kMillisecond;
};

// Makes memory that the fabric can register: a file of the node's memory directory, or anonymous memory in
// tests and simulation. Thread-safe.
using MemoryFactory = std::function<absl::StatusOr<MemoryFile>(const std::string& name, size_t bytes)>;

class NodeRecovery;

class Node {
 public:
  // Everything passed in outlives the node. `old_versions` may be null for a compute member.
  Node(NodeOptions options, const Clock& clock, rdma::Fabric& fabric, MemoryFactory memory,
       const cluster::TimestampSource& timestamps, const cluster::Lease& lease,
       cluster::SafePoint& safe_point, cluster::RegionDirectory& directory,
       storage::OldVersionArena* old_versions, storage::MemoryBudget& budget);
  ~Node();

  // Creates this node's replica of a region and registers it; `primary` says whether it serves allocation
  // too. Any thread; idempotent for the same id. The result goes into the region's mapping.
  // ResourceExhausted: no room.
  absl::StatusOr<rdma::RemoteAddress> CreateReplica(RegionId id, RegionId locality, uint64_t bytes,
                                                    ConfigId config, bool primary);

  // Undoes CreateReplica() of a region that was never committed (and not created as primary), so that nobody
  // has learnt of it.
  void ReleaseReplica(RegionId id);

  // `committed` false: NEW-CONFIG was adopted, and SetCommitted() follows with NEW-CONFIG-COMMIT. Leases of
  // members that have left in good order end; those of others end with their recovery.
  void SetView(std::shared_ptr<const cluster::ClusterView> view, bool committed = true);
  void SetCommitted(ConfigId config);
  // Ends the leases of former members, once their transactions have been recovered.
  void RevokeLeasesOfStrangers();
  // The newest configuration that every member has adopted. What has moved in a newer one is not written yet.
  ConfigId committed_config() const { return ConfigId(committed_.load(std::memory_order_acquire)); }
  std::shared_ptr<const cluster::ClusterView> view() const;
  // The same without a lock, for workers; every view lives as long as the node. Null before the first
  // SetView().
  const cluster::ClusterView* current_view() const { return current_.load(std::memory_order_acquire); }

  const NodeOptions options;
  const Clock& clock;
  rdma::Fabric& fabric;
  const MemoryFactory memory;
  const cluster::TimestampSource& timestamps;
  const cluster::Lease& lease;
  cluster::SafePoint& safe_point;
  cluster::RegionDirectory& directory;
  storage::OldVersionArena* const old_versions;
  storage::MemoryBudget& budget;
  cluster::ControlPlane* control = nullptr;  // set before the workers start
  // Null: there is no recovery, and what would wait for it ends. Set before the workers start.
  NodeRecovery* recovery = nullptr;

  // Told, on a worker's thread and perhaps more than once, that the connection of a worker to a member of the
  // current view has failed: that one is gone, or only this connection is. Does not block. Set before the
  // workers start; may be null.
  std::function<void(NodeId)> data_link_lost;

  // What an object calls itself, from its payload (which may be anything); empty: it has no name. Set by the
  // layer that gives payloads a meaning, before the workers start; for messages and reports.
  std::function<std::string(std::span<const std::byte>)> name_object;

  storage::LocalRegions regions;
  NodeAllocator allocator;  // of the regions that this node is primary of
  LockTable locks;

 private:
  absl::StatusOr<rdma::RemoteAddress> MakeReplica(RegionId id, RegionId locality, uint64_t bytes,
                                                  ConfigId config, bool primary)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const cluster::ClusterView>> views_ ABSL_GUARDED_BY(mutex_);
  std::atomic<const cluster::ClusterView*> current_{nullptr};
  std::atomic<uint64_t> committed_{0};
  struct Replica {
    RegionId id;
    std::unique_ptr<rdma::MemoryRegion> registration;
  };
  std::vector<Replica> replicas_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_NODE_H_
