#include "index/inner_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/check.h"

namespace furrow::index {
namespace {

// Numbers of the threads that have held a Guard, given back when a thread ends.
class ReaderNumbers {
 public:
  size_t Take() {
    for (size_t i = 0; i < InnerCache::kReaders; ++i) {
      bool free = false;
      if (used_[i].compare_exchange_strong(free, true, std::memory_order_acq_rel)) return i;
    }
    FURROW_CHECK(false && "more than kReaders threads read B-trees");
    return 0;
  }
  void Return(size_t number) { used_[number].store(false, std::memory_order_release); }

 private:
  std::atomic<bool> used_[InnerCache::kReaders] = {};
};

ReaderNumbers& Numbers() {
  static ReaderNumbers numbers;
  return numbers;
}

struct ReaderNumber {
  const size_t value = Numbers().Take();
  ~ReaderNumber() { Numbers().Return(value); }
};

size_t ThisReader() {
  thread_local ReaderNumber number;
  return number.value;
}

size_t SetsFor(size_t bytes) {
  return std::bit_floor(std::max<size_t>(bytes / (InnerCache::kTypicalCopyBytes * InnerCache::kWays), 1));
}

}  // namespace

InnerCache::InnerCache(size_t bytes)
    : set_mask_(SetsFor(bytes) - 1), sets_(new Set[set_mask_ + 1]), readers_(kReaders) {}

InnerCache::~InnerCache() {
  for (size_t s = 0; s <= set_mask_; ++s) {
    for (auto& way : sets_[s].ways) Free(CopyIn(way.load(std::memory_order_relaxed)));
  }
  MutexLock lock(&mutex_);
  for (const Retired& r : retired_) Free(r.copy);
}

void InnerCache::Free(Copy* copy) {
  if (copy != nullptr) ::operator delete(copy);
}

// The epoch is published before the first pointer is loaded (both sequentially consistent, as are a writer's
// exchange of the pointer and its look at the readers): a writer that does not see this reader's epoch has
// replaced the pointer before the reader loads it.
InnerCache::Guard::Guard(const InnerCache& cache) : slot_(cache.readers_[ThisReader()].epoch) {
  FURROW_DCHECK(slot_.load(std::memory_order_relaxed) == 0);
  slot_.store(cache.epoch_.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
}

InnerCache::Guard::~Guard() { slot_.store(0, std::memory_order_release); }

uint64_t InnerCache::HashOf(Address address) {
  uint64_t h = address.bits() / 64 * 0x9e37'79b9'7f4a'7c15;
  return h ^ h >> 29;
}

std::span<const std::byte> InnerCache::Find(Address address, const Guard&) const {
  const uint64_t hash = HashOf(address);
  const Set& set = sets_[hash & set_mask_];
  for (const auto& w : set.ways) {
    const uint64_t way = w.load(std::memory_order_seq_cst);
    if (way >> 48 != hash >> 48 || way == 0) continue;
    const Copy* copy = CopyIn(way);
    if (copy->address == address) return {copy->bytes(), copy->size};
  }
  return {};
}

void InnerCache::Put(Address address, std::span<const std::byte> bytes) {
  auto* copy =
      new (::operator new(sizeof(Copy) + bytes.size())) Copy{address, static_cast<uint32_t>(bytes.size())};
  std::memcpy(copy->bytes(), bytes.data(), bytes.size());
  FURROW_CHECK(reinterpret_cast<uint64_t>(copy) >> 48 == 0);
  const uint64_t hash = HashOf(address);
  const uint64_t way = (hash >> 48) << 48 | reinterpret_cast<uint64_t>(copy);
  Set& set = sets_[hash & set_mask_];
  MutexLock lock(&mutex_);
  size_t place = kWays;
  for (size_t i = 0; i < kWays && place == kWays; ++i) {
    const Copy* there = CopyIn(set.ways[i].load(std::memory_order_relaxed));
    if (there != nullptr && there->address == address) place = i;
  }
  for (size_t i = 0; i < kWays && place == kWays; ++i) {
    if (set.ways[i].load(std::memory_order_relaxed) == 0) place = i;
  }
  if (place == kWays) place = next_way_++ % kWays;
  used_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
  Retire(CopyIn(set.ways[place].exchange(way, std::memory_order_seq_cst)));
}

void InnerCache::Erase(Address address) {
  Set& set = sets_[HashOf(address) & set_mask_];
  MutexLock lock(&mutex_);
  for (auto& way : set.ways) {
    const Copy* there = CopyIn(way.load(std::memory_order_relaxed));
    if (there == nullptr || there->address != address) continue;
    Retire(CopyIn(way.exchange(0, std::memory_order_seq_cst)));
  }
}

void InnerCache::Retire(Copy* copy) {
  if (copy == nullptr) return;
  used_bytes_.fetch_sub(copy->size, std::memory_order_relaxed);
  retired_.push_back({copy, epoch_.fetch_add(1, std::memory_order_seq_cst)});
  if (retired_.size() >= kCollectAt) Collect();
}

// A reader that still sees the copy named an epoch not above that of the copy's retirement, before it loaded
// the pointer.
void InnerCache::Collect() {
  uint64_t oldest = UINT64_MAX;
  for (const Reader& reader : readers_) {
    const uint64_t epoch = reader.epoch.load(std::memory_order_seq_cst);
    if (epoch != 0) oldest = std::min(oldest, epoch);
  }
  size_t kept = 0;
  for (const Retired& r : retired_) {
    if (r.epoch < oldest) {
      Free(r.copy);
    } else {
      retired_[kept++] = r;
    }
  }
  retired_.resize(kept);
}

}  // namespace furrow::index
