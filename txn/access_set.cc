#include "txn/access_set.h"

#include <algorithm>
#include <utility>

namespace furrow::txn {
namespace {

// Chunks that a thread keeps for its next transactions: 64 * 16 KB.
constexpr size_t kMaxKept = 64;

struct ChunkPool {
  std::vector<std::byte*> free;
  ~ChunkPool() {
    for (std::byte* chunk : free) delete[] chunk;
  }
};
thread_local ChunkPool pool;

size_t HashOf(Address address) {
  uint64_t x = address.bits() * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(x >> 20);
}

}  // namespace

std::byte* Arena::AllocateSlow(size_t bytes) {
  std::byte* chunk;
  size_t size = std::max(bytes, kChunkBytes);
  if (size == kChunkBytes && !pool.free.empty()) {
    chunk = pool.free.back();
    pool.free.pop_back();
  } else {
    chunk = new std::byte[size];
  }
  chunks_.emplace_back(chunk, size);
  if (size > kChunkBytes) return chunk;  // a chunk of its own; the current one stays in use
  next_ = chunk + bytes;
  end_ = chunk + size;
  return chunk;
}

void Arena::Clear() {
  for (auto [chunk, size] : chunks_) {
    if (size == kChunkBytes && pool.free.size() < kMaxKept) {
      pool.free.push_back(chunk);
    } else {
      delete[] chunk;
    }
  }
  chunks_.clear();
  next_ = end_ = nullptr;
}

Access& AccessSet::Add(Address address) {
  uint32_t index = size_++;
  if (index >= kInline) more_.emplace_back();
  Access& access = at(index);
  access = Access{};
  access.address = address;
  if (size_ > kLinear) {
    if (table_.size() < 2 * size_) Rehash(std::max<uint32_t>(64, 4 * size_));
    size_t mask = table_.size() - 1;
    size_t slot = HashOf(address) & mask;
    while (table_[slot] != 0 && table_[slot] != index + 1) slot = (slot + 1) & mask;
    table_[slot] = index + 1;
  }
  return access;
}

Access* AccessSet::FindHashed(Address address) {
  size_t mask = table_.size() - 1;
  for (size_t slot = HashOf(address) & mask; table_[slot] != 0; slot = (slot + 1) & mask) {
    Access& access = at(table_[slot] - 1);
    if (access.address == address) return &access;
  }
  return nullptr;
}

void AccessSet::Rehash(uint32_t buckets) {
  size_t size = 1;
  while (size < buckets) size *= 2;
  table_.assign(size, 0);
  for (uint32_t i = 0; i < size_; ++i) {
    size_t slot = HashOf(at(i).address) & (size - 1);
    while (table_[slot] != 0) slot = (slot + 1) & (size - 1);
    table_[slot] = i + 1;
  }
}

void AccessSet::Clear() {
  size_ = 0;
  more_.clear();
  table_.clear();
  arena_.Clear();
}

}  // namespace furrow::txn
