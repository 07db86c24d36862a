// AccessSet: what a transaction has read and will write, by address, with the memory for the copies.
// Owner thread only. Entries and bytes stay at their place until Clear().
#ifndef FURROW_TXN_ACCESS_SET_H_
#define FURROW_TXN_ACCESS_SET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/ids.h"
#include "storage/object.h"

namespace furrow::txn {

// Bump memory of one transaction; its chunks go back to the worker's pool.
class Arena {
 public:
  static constexpr size_t kChunkBytes = 16 << 10;
  Arena() = default;
  ~Arena() { Clear(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // 8-byte aligned, not zeroed.
  std::byte* Allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > static_cast<size_t>(end_ - next_)) return AllocateSlow(bytes);
    std::byte* p = next_;
    next_ += bytes;
    return p;
  }
  void Clear();

 private:
  std::byte* AllocateSlow(size_t bytes);
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::vector<std::pair<std::byte*, size_t>> chunks_;
};

struct Access {
  Address address;
  storage::ObjectWord observed;  // word 0 when read, or the lease's for an allocation
  std::byte* read = nullptr;     // payload at R
  std::byte* write = nullptr;    // payload to install; null: not written
  uint32_t read_bytes = 0;
  uint32_t write_bytes = 0;
  uint32_t slot_bytes = 0;
  bool old_version = false;  // the version read is not the newest: never to be locked or validated
  bool allocates = false;
  bool frees = false;
  bool found = true;  // false: a tombstone or unallocated slot was read (and must stay so)
  bool written() const { return write != nullptr || frees || allocates; }
};

class AccessSet {
 public:
  Access* Find(Address address) {
    if (size_ <= kLinear) {
      for (uint32_t i = 0; i < size_; ++i) {
        if (at(i).address == address) return &at(i);
      }
      return nullptr;
    }
    return FindHashed(address);
  }
  Access& Add(Address address);
  uint32_t size() const { return size_; }
  Access& at(uint32_t i) { return i < kInline ? inline_[i] : more_[i - kInline]; }
  const Access& at(uint32_t i) const { return i < kInline ? inline_[i] : more_[i - kInline]; }
  Arena& arena() { return arena_; }
  void Clear();

 private:
  static constexpr uint32_t kLinear = 8;
  static constexpr uint32_t kInline = 32;
  Access* FindHashed(Address address);
  void Rehash(uint32_t buckets);

  uint32_t size_ = 0;
  Access inline_[kInline];
  std::deque<Access> more_;
  std::vector<uint32_t> table_;  // open addressing, index + 1; 0 is free
  Arena arena_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_ACCESS_SET_H_
