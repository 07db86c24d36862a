// SlabAllocator: the free lists of one region at its primary. Block headers are replicated, free lists are not: a new
// primary rebuilds them by scanning the allocated bits.
//
// Life of a block: free -> cutting (its new header is on its way to the replicas) -> slab -> emptied -> free again.
// A slot is handed out only from a slab whose header every replica has acknowledged. A block goes back to free, for
// any size class, only when it has no allocated and no leased slot, its newest write is below the safe point and
// no transaction that wrote in it waits for truncation.
//
// Life of a slot: free -> leased (a hint: LOCK of the allocation checks word 0 against the lease) -> allocated (by
// the install) -> free (by the install of a tombstone; the next allocation chains to it).
// Thread-safe; workers take slots in batches, so the lock is rarely contended.
#ifndef FURROW_STORAGE_SLAB_ALLOCATOR_H_
#define FURROW_STORAGE_SLAB_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "base/ids.h"
#include "storage/region.h"

namespace furrow::storage {

// A slot that its holder may try to allocate: LOCK succeeds only while word 0 is still `expected` (unallocated).
struct SlotLease {
  Address address;
  ObjectWord expected;
  uint32_t slot_bytes = 0;
};

// A block header that every replica must have before the block is used.
struct BlockCut {
  RegionId region;
  uint32_t block = 0;
  uint32_t slot_bytes = 0;
  uint64_t version = 0;
};

class SlabAllocator {
 public:
  // `region` outlives the allocator. Its existing slabs are scanned: unallocated slots become free.
  explicit SlabAllocator(Region& region);

  // Leases up to `count` slots, appended to `out`; returns how many. Fewer than asked: see NeedsBlock.
  size_t Lease(SizeClass size_class, size_t count, std::vector<SlotLease>* out);
  // Leases that were not used come back.
  void Unlease(const SlotLease& lease);

  // Starts cutting a free block for the class, unless one is being cut for it already. Nothing: the region is full
  // (or a cut is under way: `*under_way`). The caller replicates the header, cuts its own copy, then calls BlockReady.
  std::optional<BlockCut> BeginCut(SizeClass size_class, bool* under_way);
  void BlockReady(const BlockCut& cut);
  void BlockFailed(const BlockCut& cut);
  // True when the class has fewer free slots than a batch: cut ahead, so that nobody waits.
  bool WantsBlock(SizeClass size_class) const;

  // Called by the participant at the primary, in any order, for each installed write.
  void OnAllocated(Address address, Timestamp write);
  void OnFreed(Address address, ObjectWord tombstone);
  void OnWritten(Address address, Timestamp write);
  // A transaction that wrote in the block is in progress (locked) / truncated at this primary: counts per block.
  void AddWriter(Address address);
  void RemoveWriter(Address address);

  // Turns emptied blocks whose newest write is below the safe point into free ones; returns how many.
  size_t Reclaim(Timestamp safe_point);

  struct Usage {
    uint32_t blocks = 0;         // usable ones (without block 0)
    uint32_t free_blocks = 0;
    uint64_t allocated_slots = 0;
    uint64_t allocated_bytes = 0;
    uint64_t leased_slots = 0;
    uint64_t free_slots = 0;     // in slabs: usable for their own class only
    uint64_t free_slot_bytes = 0;
  };
  Usage usage() const;

 private:
  struct Block;
  Region& region_;
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_SLAB_ALLOCATOR_H_
