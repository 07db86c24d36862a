// Region: the unit of placement, replication and recovery: a memory file cut into 1 MB blocks. Block 0 holds the
// region's header and the table of block headers; every other block is free or a slab of one size class.
//
// Layout of a region file (little-endian):
//   off          size  field
//   0            4096  RegionHeader
//   4096         64*n  BlockHeader of block 0..n-1 (block 0's is unused)
//   1 MB * b     1 MB  block b: slots from its start, as many as fit
//
// A Region object is this node's replica. Threads: const methods and the memory from any thread by the rules of
// object.h; block headers are read by any thread and written by the thread that serves the region's control messages.
#ifndef FURROW_STORAGE_REGION_H_
#define FURROW_STORAGE_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/memory_file.h"
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

// 64 bytes; versioned, replicated before a slot of the block is handed out.
struct BlockHeader {
  uint64_t version;     // grows with each cut; 0: never cut
  uint32_t slot_bytes;  // 0: free
  uint32_t slots;
  uint64_t reserved[6];
};
static_assert(sizeof(BlockHeader) == 64);

class Region {
 public:
  // Creates the memory and lays it out, all blocks free. `bytes` is a multiple of 1 MB, at least 2 MB, at most 4 GB.
  static absl::StatusOr<std::unique_ptr<Region>> Create(MemoryFile file, RegionId id, ConfigId created_in,
                                                        uint64_t cluster_hash);
  // Takes an existing file over; DataLoss or FailedPrecondition when it is not this region of this cluster.
  static absl::StatusOr<std::unique_ptr<Region>> Attach(MemoryFile file, RegionId id, uint64_t cluster_hash);

  RegionId id() const { return id_; }
  size_t bytes() const { return file_.size(); }
  uint32_t blocks() const { return static_cast<uint32_t>(file_.size() / kBlockBytes); }
  const MemoryFile& file() const { return file_; }
  std::byte* base() const { return file_.data(); }

  // The slot at `offset`, whose size is the block's; null if the offset is not a slot's start (bad input from a peer).
  std::byte* SlotAt(uint32_t offset) const;
  // Slot size of the block at `offset`; 0 if the block is free. One acquire load.
  uint32_t SlotBytesAt(uint32_t offset) const;
  BlockHeader ReadBlock(uint32_t block) const;

  // Sets a block's header and zeroes the block first if it is cut anew. FailedPrecondition unless `version` is newer.
  absl::Status CutBlock(uint32_t block, uint32_t slot_bytes, uint64_t version);

 private:
  Region(MemoryFile file, RegionId id) : file_(std::move(file)), id_(id) {}
  MemoryFile file_;
  RegionId id_;
};

// This node's replicas by id. Add and remove under a lock, Find from any thread with two loads and no lock.
// Regions are removed only when no thread can use them any more (cluster shutdown; later: after a safe point).
class LocalRegions {
 public:
  LocalRegions();
  ~LocalRegions();
  absl::Status Add(std::unique_ptr<Region> region);
  Region* Find(RegionId id) const {
    const Chunk* chunk = id.value() < kMaxRegions
                             ? chunks_[id.value() / kChunk].load(std::memory_order_acquire)
                             : nullptr;
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
  static constexpr uint32_t kChunk = 4096;         // the range of ids that a configuration manager reserves at a time
  static constexpr uint32_t kMaxRegions = 1 << 22;  // 1,024 ranges
  struct Chunk {
    std::atomic<Region*> regions[kChunk] = {};
  };
  std::atomic<Chunk*> chunks_[kMaxRegions / kChunk] = {};
  std::atomic<size_t> count_{0};
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_REGION_H_
