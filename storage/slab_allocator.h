// SlabAllocator: the free lists of one region at its primary. Block headers are replicated, free lists are
// not: a new primary rebuilds them by scanning the allocated bits.
//
// Life of a block: free -> cutting (its new header is on its way to the replicas) -> slab -> emptied -> free
// again. A slot is handed out only from a slab whose header every replica has acknowledged. A block goes back
// to free, for any size class, only when it has no allocated and no leased slot, its newest write is below
// the safe point and no transaction that wrote in it waits for truncation here. From then on it is closed
// (region.h): a late LOCK that still names one of its slots is refused.
//
// Life of a slot: free -> leased (a hint: LOCK of the allocation checks word 0 against the lease) ->
// allocated (by the install) -> free (by the install of a tombstone; the next allocation chains to it).
//
// Slots are handed out from the lowest block that has one, the lowest slot first: use concentrates there, and
// the blocks above become empty after deletes. Leased slots keep their block: holders return what they do not
// need.
//
// Thread-safe; workers take slots in batches, so the lock is rarely contended. Every operation on a slot is
// O(1), on a block O(log blocks). Costs two bytes and a bit of heap per slot.
#ifndef FURROW_STORAGE_SLAB_ALLOCATOR_H_
#define FURROW_STORAGE_SLAB_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "storage/free_bitmap.h"
#include "storage/region.h"

namespace furrow::storage {

// A slot that its holder may try to allocate: LOCK succeeds only while word 0 is still `expected`
// (unallocated).
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
  // The batch in which slots should be leased, and the number of free slots of a class below which a block is
  // cut ahead (less for classes with few slots per block).
  static constexpr size_t kLeaseBatch = 64;

  // `region` outlives the allocator, which is alone in cutting its blocks. Its existing slabs are scanned:
  // unallocated slots become free. No lease of an earlier allocator counts.
  explicit SlabAllocator(Region& region);
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  // Leases up to `count` slots to `holder` (the default stands for this node), appended to `out`; returns how
  // many. Fewer than asked: BeginCut().
  size_t Lease(SizeClass size_class, size_t count, std::vector<SlotLease>* out, NodeId holder = NodeId())
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A lease that was not used comes back. False, and no effect, when there is no such lease of this holder
  // (any more): that is no error, as a lease ends by its use, and bad input from a peer does no harm.
  bool Unlease(const SlotLease& lease, NodeId holder = NodeId()) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all leases of a holder that has left; call it after its transactions are recovered. Returns how
  // many.
  size_t RevokeLeases(NodeId holder) ABSL_LOCKS_EXCLUDED(mutex_);

  // Starts cutting a free block for the class, unless one is being cut for it already. Nothing: the region is
  // full (or a cut is under way: `*under_way`). The caller replicates the header, cuts its own copy last, and
  // calls BlockReady; or it calls BlockFailed and leaves its own copy as it is. The version is higher than
  // that of any earlier cut and than the timestamp of any write in the block's former lives: a replica that
  // still has one to apply, late, drops it (W <= version). Writes in the new life are above the safe point
  // and so above the version.
  std::optional<BlockCut> BeginCut(SizeClass size_class, bool* under_way) ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockReady(const BlockCut& cut) ABSL_LOCKS_EXCLUDED(mutex_);
  void BlockFailed(const BlockCut& cut) ABSL_LOCKS_EXCLUDED(mutex_);
  // True when the class has fewer free slots than a batch and a cut could begin: cut ahead, so that nobody
  // waits.
  bool WantsBlock(SizeClass size_class) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Called by the participant at the primary for each installed allocation and free, before its
  // RemoveWriter(). An OnFreed() may overtake the OnAllocated() of the same slot's life on another worker.
  // Addresses have been checked with Region::SlotAt() by a writer of the block; a slot freed or allocated
  // twice is our own bug and fatal. Other writes need not be told: the free that ends the object's life is
  // newer.
  void OnAllocated(Address address, Timestamp write) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFreed(Address address, ObjectWord tombstone) ABSL_LOCKS_EXCLUDED(mutex_);
  // A transaction that writes in the block is in progress here: from before its LOCK until it is truncated.
  // False: refuse the LOCK (Region::AddWriter). Lock-free.
  bool AddWriter(Address address) { return region_.AddWriter(address.offset()); }
  void RemoveWriter(Address address) { region_.RemoveWriter(address.offset()); }

  // Turns emptied blocks whose newest write is below the safe point into free ones; returns how many. A block
  // that was cut ahead and never used stays with its class unless the region has no other free block.
  size_t Reclaim(Timestamp safe_point) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Usage {
    uint32_t blocks = 0;  // usable ones (without block 0)
    uint32_t free_blocks = 0;
    uint32_t cutting_blocks = 0;
    uint64_t allocated_slots = 0;
    uint64_t allocated_bytes = 0;
    uint64_t leased_slots = 0;
    uint64_t leased_bytes = 0;
    uint64_t free_slots = 0;  // in slabs: usable for their own class only
    uint64_t free_slot_bytes = 0;
  };
  Usage usage() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // State of a slot: one of these, or kFirstHolder + index of the lease's holder.
  using SlotState = uint16_t;
  static constexpr SlotState kFree = 0;
  static constexpr SlotState kAllocated = 1;
  static constexpr SlotState kFreedEarly = 2;  // OnFreed() came before its OnAllocated()
  static constexpr SlotState kFirstHolder = 3;

  enum class BlockState : uint8_t { kFree, kCutting, kSlab };
  struct Block {
    BlockState state = BlockState::kFree;
    bool used = false;  // a slot was leased or allocated since the cut
    SizeClass size_class;
    uint32_t slot_bytes = 0;
    uint32_t slots = 0;
    uint32_t free = 0;     // slots in kFree
    uint32_t leased = 0;   // slots with a holder
    uint64_t version = 0;  // the highest that was given to a cut
    std::vector<SlotState> states;
    FreeBitmap free_slots;
  };
  struct Class {
    absl::btree_set<uint32_t> open;  // slabs with a free slot
    uint64_t free_slots = 0;
    bool cutting = false;
  };
  struct Holder {
    NodeId node;
    uint64_t leases = 0;
  };

  uint32_t SlotOf(const Block& block, uint32_t offset) const;
  Block& SlabOf(Address address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeSlab(uint32_t block, SizeClass size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScanSlab(uint32_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SlotState HolderState(NodeId holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Every change of a slot's state goes through here, which keeps all lists and counts.
  void Move(uint32_t block, uint32_t slot, SlotState to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Region& region_;
  mutable Mutex mutex_;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Class> classes_ ABSL_GUARDED_BY(mutex_);
  absl::btree_set<uint32_t> free_blocks_ ABSL_GUARDED_BY(mutex_);
  absl::btree_set<uint32_t> empty_slabs_ ABSL_GUARDED_BY(mutex_);  // all slots free
  std::vector<Holder> holders_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NodeId, SlotState> holder_states_ ABSL_GUARDED_BY(mutex_);
  Usage usage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_SLAB_ALLOCATOR_H_
