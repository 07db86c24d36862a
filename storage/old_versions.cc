#include "storage/old_versions.h"

#include <algorithm>

#include "base/check.h"
#include "base/mutation.h"

namespace furrow::storage {

namespace {

// The first bytes of block 0 are never used, so that offset 0 is no old version.
size_t FirstOffset(int64_t block) { return block == 0 ? kLineBytes : 0; }

}  // namespace

OldVersionArena::OldVersionArena(const MemoryFile& memory)
    : base_(memory.data()), blocks_(memory.size() / kBlockBytes) {
  FURROW_CHECK(blocks_ > 0 && memory.size() % kBlockBytes == 0);
  MutexLock lock(&mutex_);
  free_.reserve(blocks_);
  for (size_t i = blocks_; i > 0; --i) free_.push_back(static_cast<int64_t>((i - 1) * kBlockBytes));
}

int64_t OldVersionArena::TakeBlock() {
  MutexLock lock(&mutex_);
  if (free_.empty()) return -1;
  int64_t offset = free_.back();  // the one returned last is the most likely to be in a cache
  free_.pop_back();
  return offset;
}

void OldVersionArena::ReturnBlock(int64_t offset) {
  FURROW_CHECK(offset >= 0 && static_cast<size_t>(offset) < bytes() && offset % kBlockBytes == 0);
  MutexLock lock(&mutex_);
  FURROW_CHECK(free_.size() < blocks_);
  free_.push_back(offset);
}

size_t OldVersionArena::free_blocks() const {
  MutexLock lock(&mutex_);
  return free_.size();
}

OldVersionWriter::~OldVersionWriter() {
  if (current_ >= 0) arena_.ReturnBlock(current_);
  for (const Full& full : full_) arena_.ReturnBlock(full.offset);
}

OldVersionPointer OldVersionWriter::Save(const std::byte* slot, size_t slot_bytes, Timestamp writer) {
  FURROW_CHECK(slot_bytes <= kMaxSlotBytes);
  if (current_ < 0 || used_ + slot_bytes > OldVersionArena::kBlockBytes) {
    int64_t next = arena_.TakeBlock();
    if (next >= 0 && FirstOffset(next) + slot_bytes > OldVersionArena::kBlockBytes) {
      // The largest slots fill a block and do not fit into block 0.
      int64_t other = arena_.TakeBlock();
      arena_.ReturnBlock(next);
      next = other;
    }
    if (next < 0) {
      ++truncated_;
      return OldVersionPointer();
    }
    if (current_ >= 0) full_.push_back({current_, newest_});
    current_ = next;
    used_ = FirstOffset(next);
    newest_ = Timestamp();
  }
  const size_t offset = static_cast<size_t>(current_) + used_;
  CopyImage(slot, slot_bytes, arena_.base() + offset);
  used_ += slot_bytes;
  newest_ = std::max(newest_, writer);
  ++saved_;
  return OldVersionPointer(offset);
}

void OldVersionWriter::Collect(Timestamp safe_point) {
  const bool early = Mutated(Mutation::kReuseOldVersionsEarly);
  // Writers come in about the order of their timestamps, yet not exactly: look at every block.
  std::erase_if(full_, [&](const Full& full) {
    if (!early && full.newest >= safe_point) return false;
    arena_.ReturnBlock(full.offset);
    return true;
  });
  // The current block starts again from its front, which is warm in the caches.
  if (current_ >= 0 && (early || newest_ < safe_point)) {
    used_ = FirstOffset(current_);
    newest_ = Timestamp();
  }
}

}  // namespace furrow::storage
