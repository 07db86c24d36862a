// NodeAllocator: the slabs of all regions that this node is primary of, by locality group. Thread-safe.
#ifndef FURROW_TXN_NODE_ALLOCATOR_H_
#define FURROW_TXN_NODE_ALLOCATOR_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "storage/region.h"
#include "storage/slab_allocator.h"

namespace furrow::txn {

class NodeAllocator {
 public:
  // Starts serving a region as its primary. `region` outlives the allocator. Idempotent.
  void AddRegion(storage::Region& region, RegionId locality);

  // Leases up to `count` slots of the class from the group's regions to `holder` (the default: this node);
  // returns how many.
  size_t Lease(RegionId locality, storage::SizeClass size_class, size_t count, NodeId holder,
               std::vector<storage::SlotLease>* out);
  void Unlease(const storage::SlotLease& lease, NodeId holder);
  // Ends all leases of a member that has left.
  size_t RevokeLeases(NodeId holder);

  // A block to cut for the class in some region of the group. Nothing: none is free; `*under_way` says
  // whether a cut for the class is under way, so that waiting helps.
  std::optional<storage::BlockCut> BeginCut(RegionId locality, storage::SizeClass size_class,
                                            bool* under_way);
  bool WantsBlock(RegionId locality, storage::SizeClass size_class) const;
  void BlockReady(const storage::BlockCut& cut);
  void BlockFailed(const storage::BlockCut& cut);

  // The newest region of the group that is served here; 0 if none is.
  RegionId NewestRegion(RegionId locality) const;
  storage::SlabAllocator* Find(RegionId region) const;
  // --- regions ahead of need ---
  // True when the group has fewer free blocks than a quarter of a region: time to ask for its next one.
  bool RunsLow(RegionId locality) const;
  struct Growth {
    RegionId locality;
    RegionId newest;  // region of the group, as in cluster::AllocateRegionRequest
  };
  // The group that runs lowest, to ask for its next region, until EndGrowth(). Nothing: none runs low; those
  // that do were refused lately; or another is being asked for, since each makes every replica clear a
  // region's memory.
  std::optional<Growth> BeginGrowth(Nanos now);
  // `grown`: it has the region. Otherwise the group asks again after a pause, each twice as long as the one
  // before, up to a minute.
  void EndGrowth(const Growth& growth, bool grown, Nanos now);

  // Frees emptied blocks of all regions; returns how many.
  size_t Reclaim(Timestamp safe_point);
  storage::SlabAllocator::Usage usage() const;

 private:
  struct Group {
    std::vector<storage::SlabAllocator*> slabs;  // oldest region first
    std::vector<RegionId> regions;
    Nanos refused_for = 0;    // the last pause; 0: it was not refused
    Nanos refused_until = 0;  // the end of the pause
  };
  static bool IsLow(const Group& group, uint64_t* free_blocks);
  std::vector<storage::SlabAllocator*> Slabs(RegionId locality) const;

  mutable Mutex mutex_;
  bool growing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<RegionId, Group> groups_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<RegionId, std::unique_ptr<storage::SlabAllocator>> slabs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_NODE_ALLOCATOR_H_
