// InnerCache: copies of inner B-tree nodes, shared by all workers of a process. A copy is immutable and may
// be out of date: whoever uses it checks fences, tree and level, and what he reads by it, through his
// transaction.
//
// Set-associative: the address picks a set of 8 pointers, one cache line; a pointer carries 16 bits of the
// address's hash, so that a lookup touches that line and the node. Readers take no lock: they hold a Guard,
// which names the epoch in which they read; a copy that was replaced is freed when no Guard from before is
// held. Memory: at most the copies that fit in the sets, each up to kMaxCopyBytes, and the retired ones; when
// a set is full, a new copy takes a place in it by rotation. Thread-safe.
#ifndef FURROW_INDEX_INNER_CACHE_H_
#define FURROW_INDEX_INNER_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace furrow::index {

class InnerCache {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kTypicalCopyBytes = 1024;  // from which the number of sets follows
  static constexpr size_t kReaders = 256;            // threads that may hold a Guard at the same time

  explicit InnerCache(size_t bytes);
  ~InnerCache();
  InnerCache(const InnerCache&) = delete;
  InnerCache& operator=(const InnerCache&) = delete;

  // Keeps the copies found under it alive. Short: never across a co_await. Not nested on one thread.
  class Guard {
   public:
    explicit Guard(const InnerCache& cache);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::atomic<uint64_t>& slot_;
  };

  // The copy of the node at `address`; empty: none is here.
  std::span<const std::byte> Find(Address address, const Guard& guard) const;
  // Puts a copy of `bytes` in the place of an older one, if any. Takes a mutex.
  void Put(Address address, std::span<const std::byte> bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Erase(Address address) ABSL_LOCKS_EXCLUDED(mutex_);

  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Copy {
    Address address;
    uint32_t size;
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
    const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(this + 1); }
  };
  struct alignas(64) Set {
    std::atomic<uint64_t> ways[kWays] = {};  // bits 48..63 of the hash, pointer below; 0: free
  };
  struct alignas(64) Reader {
    std::atomic<uint64_t> epoch{0};  // 0: reads nothing
  };
  static constexpr size_t kCollectAt = 16;  // retired copies at which readers are looked at
  struct Retired {
    Copy* copy;
    uint64_t epoch;
  };
  static uint64_t HashOf(Address address);
  static Copy* CopyIn(uint64_t way) { return reinterpret_cast<Copy*>(way & ((uint64_t{1} << 48) - 1)); }
  void Retire(Copy* copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Collect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Free(Copy* copy);

  const size_t set_mask_;
  const std::unique_ptr<Set[]> sets_;
  mutable std::vector<Reader> readers_;
  std::atomic<uint64_t> epoch_{1};
  std::atomic<size_t> used_bytes_{0};
  Mutex mutex_;  // of writers
  std::vector<Retired> retired_ ABSL_GUARDED_BY(mutex_);
  size_t next_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_INNER_CACHE_H_
