// Region: the unit of placement, replication and recovery: a memory file cut into 1 MB blocks. Block 0 holds
// the region's header and the table of block headers; every other block is free or a slab of one size class.
//
// Layout of a region file (little-endian):
//   off          size  field
//   0            4096  RegionHeader
//   4096         64*n  BlockHeader of block 0..n-1 (block 0's is unused)
//   1 MB * b     1 MB  block b: slots from its start, as many as fit
//
// A Region object is this node's replica. Threads: const methods, the block's activity and the memory from
// any thread by the rules of object.h; block headers are read by any thread and written by the one that
// serves the region's control messages.
//
// Activity of a block, in this process only: how many transactions that wrote in the block, or mean to, wait
// here for truncation (writers), and the newest write timestamp. A block without writers can be closed: then
// no transaction becomes a writer, and the block can be cut anew. Cutting opens it.
#ifndef FURROW_STORAGE_REGION_H_
#define FURROW_STORAGE_REGION_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "storage/object.h"
#include "storage/size_class.h"

namespace furrow::storage {

inline constexpr uint32_t kBlockBytes = 1 << 20;
inline constexpr uint32_t kRegionFormat = 1;

struct RegionHeader {
  uint64_t magic;
  uint32_t format;
  uint32_t region;
  uint64_t bytes;
  uint64_t cluster_hash;  // of the cluster's id: a file of another cluster is recognised
  uint64_t created_in;    // configuration
  uint64_t reserved[3];
};
static_assert(sizeof(RegionHeader) == 64);
inline constexpr size_t kRegionHeaderBytes = 4096;

// 64 bytes; versioned, replicated before a slot of the block is handed out.
struct BlockHeader {
  uint64_t version;     // grows with each cut, above every write timestamp of before; 0: never cut
  uint32_t slot_bytes;  // 0: free
  uint32_t slots;
  uint64_t reserved[6];
};
static_assert(sizeof(BlockHeader) == 64);
static_assert(offsetof(BlockHeader, slot_bytes) == 8 &&
              offsetof(BlockHeader, slots) == 12);  // one 8-byte word

class Region {
 public:
  // Lays a new file, whose bytes are zero, out with all blocks free. Its size is a multiple of 1 MB, at least
  // 2 MB, at most 4 GB.
  static absl::StatusOr<std::unique_ptr<Region>> Create(MemoryFile file, RegionId id, ConfigId created_in,
                                                        uint64_t cluster_hash);
  // Takes an existing file over; DataLoss or FailedPrecondition when it is not this region of this cluster.
  static absl::StatusOr<std::unique_ptr<Region>> Attach(MemoryFile file, RegionId id, uint64_t cluster_hash);

  RegionId id() const { return id_; }
  size_t bytes() const { return file_.size(); }
  uint32_t blocks() const { return static_cast<uint32_t>(file_.size() / kBlockBytes); }
  const MemoryFile& file() const { return file_; }
  std::byte* base() const { return file_.data(); }

  // True while this node is the region's primary and the region is active: it locks and reads objects here.
  // Any thread.
  bool serving() const { return serving_.load(std::memory_order_acquire); }
  void set_serving(bool serving) { serving_.store(serving, std::memory_order_release); }

  // The slot at `offset`, whose size is the block's; null if the offset is not a slot's start (bad input from
  // a peer). One acquire load and one multiplication.
  std::byte* SlotAt(uint32_t offset) const {
    uint32_t block = offset / kBlockBytes;
    if (block >= blocks()) return nullptr;
    const Shape shape = Shape::FromBits(shapes_[block].load(std::memory_order_acquire));
    uint32_t in_block = offset % kBlockBytes;
    uint32_t lines = in_block / kLineBytes;
    uint32_t slot = static_cast<uint32_t>(uint64_t{lines} * shape.reciprocal >> 31);
    if (slot >= shape.slots || slot * shape.lines != lines || in_block % kLineBytes != 0) return nullptr;
    return base() + offset;
  }
  // Slot size of the block at `offset`; 0 if the block is free or there is none. One acquire load.
  uint32_t SlotBytesAt(uint32_t offset) const {
    uint32_t block = offset / kBlockBytes;
    if (block >= blocks()) return 0;
    return Shape::FromBits(shapes_[block].load(std::memory_order_acquire)).lines * uint32_t{kLineBytes};
  }
  // A consistent copy. block < blocks().
  BlockHeader ReadBlock(uint32_t block) const;

  // Cuts the block into slots of `slot_bytes` (0: frees it): zeroes it, then publishes its new header. Only
  // when `version` is newer than the block's: FailedPrecondition otherwise, also for the version that is
  // there already. InvalidArgument for a size that no class has, or no such block; Unavailable while the
  // block has writers here.
  absl::Status CutBlock(uint32_t block, uint32_t slot_bytes, uint64_t version);

  // --- activity of the block at `offset`; any thread ---

  // A transaction means to lock or to write in the block. False: the block is free, closed or being cut, or
  // the offset is outside; the address is stale and the write must be refused. Each true is paid back by one
  // RemoveWriter().
  bool AddWriter(uint32_t offset);
  void RemoveWriter(uint32_t offset);
  uint32_t Writers(uint32_t offset) const;
  // Remembers a write (an install, or the application of one at a backup).
  void NoteWrite(uint32_t offset, Timestamp write);
  Timestamp NewestWrite(uint32_t block) const;
  // Closes the block if it has no writers.
  bool CloseBlock(uint32_t block);

 private:
  // What SlotAt() needs of a block header, in one word and densely, so that it stays in the nearest caches.
  struct Shape {
    uint16_t lines = 0;  // of a slot; 0: free
    uint16_t slots = 0;
    uint32_t reciprocal =
        0;  // ceil(2^31 / lines): n / lines == n * reciprocal >> 31 for all n < 2^14, lines <= 2^14
    static Shape Of(uint32_t slot_bytes, uint32_t slots);
    static Shape FromBits(uint64_t bits) { return std::bit_cast<Shape>(bits); }
    uint64_t bits() const { return std::bit_cast<uint64_t>(*this); }
  };
  struct Activity {
    std::atomic<uint32_t> writers{kClosed};
    std::atomic<uint64_t> newest{0};
  };
  static constexpr uint32_t kClosed = uint32_t{1} << 31;

  Region(MemoryFile file, RegionId id);
  BlockHeader* block_header(uint32_t block) const;
  absl::Status LoadBlocks();

  MemoryFile file_;
  const RegionId id_;
  std::atomic<bool> serving_{false};
  const std::unique_ptr<std::atomic<uint64_t>[]> shapes_;
  const std::unique_ptr<Activity[]> activity_;
};

// This node's replicas by id. Add and remove under a lock, Find from any thread with two loads and no lock.
// Regions are removed only when no thread can use them any more (cluster shutdown; later: after a safe
// point).
class LocalRegions {
 public:
  LocalRegions() = default;
  ~LocalRegions();
  LocalRegions(const LocalRegions&) = delete;
  LocalRegions& operator=(const LocalRegions&) = delete;
  // AlreadyExists, or InvalidArgument for an id beyond the ranges; the region is dropped then.
  absl::Status Add(std::unique_ptr<Region> region) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a region out that no other thread can have found: one that was prepared and never committed. Null:
  // not here.
  std::unique_ptr<Region> Remove(RegionId id) ABSL_LOCKS_EXCLUDED(mutex_);
  Region* Find(RegionId id) const {
    const Chunk* chunk =
        id.value() < kMaxRegions ? chunks_[id.value() / kChunk].load(std::memory_order_acquire) : nullptr;
    return chunk == nullptr ? nullptr : chunk->regions[id.value() % kChunk].load(std::memory_order_acquire);
  }
  // Calls fn(Region&) for each region, in order of ids.
  template <class Fn>
  void ForEach(Fn fn) const {
    for (const auto& c : chunks_) {
      const Chunk* chunk = c.load(std::memory_order_acquire);
      if (chunk == nullptr) continue;
      for (const auto& r : chunk->regions) {
        if (Region* region = r.load(std::memory_order_acquire); region != nullptr) fn(*region);
      }
    }
  }
  size_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kChunk =
      4096;  // the range of ids that a configuration manager reserves at a time
  static constexpr uint32_t kMaxRegions = 1 << 22;  // 1,024 ranges
  struct Chunk {
    std::atomic<Region*> regions[kChunk] = {};
  };
  Mutex mutex_;  // of writers
  std::atomic<Chunk*> chunks_[kMaxRegions / kChunk] = {};
  std::atomic<size_t> count_{0};
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_REGION_H_
