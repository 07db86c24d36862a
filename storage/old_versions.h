// Old versions (FaRMv2 section 4.3): unreplicated copies of objects from before their last writes, at the
// primary, linked from the header by the OVP, readable by peers. They lie in one registered arena per node,
// cut into 1 MB blocks. A block is owned by one worker that bumps through it, and is freed as a whole when
// the write timestamp of the newest writer that put something there is below the safe point; no object is
// touched for that.
//
// An old version is the image of the slot at the time (header, line versions, payload), so that a reader uses
// the same code for it: its word 0 gives its timestamp and allocated bit, its word 1 the next older one.
//
// When the arena is full, history is truncated: Save() returns the null pointer and the object is installed
// with OVP 0.
#ifndef FURROW_STORAGE_OLD_VERSIONS_H_
#define FURROW_STORAGE_OLD_VERSIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "storage/object.h"

namespace furrow::storage {

// The arena of a node. Thread-safe. Blocks that nobody owns; byte 0..63 of the arena is never used (pointer 0
// is null).
class OldVersionArena {
 public:
  static constexpr size_t kBlockBytes = size_t{1} << 20;
  // `memory` is a whole number of blocks, at least one per worker, and outlives the arena.
  explicit OldVersionArena(const MemoryFile& memory);

  // Offset of a free block, or -1 when there is none.
  int64_t TakeBlock();
  void ReturnBlock(int64_t offset);
  size_t blocks() const { return blocks_; }
  size_t free_blocks() const;
  std::byte* base() const { return base_; }
  size_t bytes() const { return blocks_ * kBlockBytes; }

 private:
  std::byte* const base_;
  const size_t blocks_;
  mutable Mutex mutex_;
  std::vector<int64_t> free_ ABSL_GUARDED_BY(mutex_);
};

// A worker's part. Owner thread only.
class OldVersionWriter {
 public:
  explicit OldVersionWriter(OldVersionArena& arena) : arena_(arena) {}
  ~OldVersionWriter();

  // Copies the slot, locked by the caller, whose next version will carry `writer`. The copy's word 0 is
  // unlocked. Null pointer: no room, the history of this object ends here.
  OldVersionPointer Save(const std::byte* slot, size_t slot_bytes, Timestamp writer);
  // Returns the blocks whose newest writer is below `safe_point`; the one in use starts again from its front.
  void Collect(Timestamp safe_point);

  uint64_t saved() const { return saved_; }
  uint64_t truncated() const { return truncated_; }  // Save() calls that found no room
  size_t held_blocks() const { return full_.size() + (current_ >= 0 ? 1 : 0); }

 private:
  struct Full {
    int64_t offset;
    Timestamp newest;
  };
  OldVersionArena& arena_;
  int64_t current_ = -1;
  size_t used_ = 0;
  Timestamp newest_;
  std::deque<Full> full_;
  uint64_t saved_ = 0;
  uint64_t truncated_ = 0;
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_OLD_VERSIONS_H_
