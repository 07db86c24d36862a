#include "cluster/seams.h"

#include <algorithm>

namespace furrow::cluster {
namespace {

void Raise(std::atomic<uint64_t>& word, uint64_t value) {
  uint64_t now = word.load(std::memory_order_relaxed);
  while (now < value && !word.compare_exchange_weak(now, value, std::memory_order_release)) {
  }
}

}  // namespace

Timestamp SafePoint::OldestActive(Timestamp lower) const {
  uint64_t oldest = lower.value();
  for (const Slot& slot : oldest_) oldest = std::min(oldest, slot.value.load(std::memory_order_seq_cst));
  return Timestamp(oldest);
}

void SafePoint::Advance(Timestamp global_oldest, Timestamp safe_point) {
  Raise(global_oldest_, global_oldest.value());
  Raise(safe_point_, safe_point.value());
}

}  // namespace furrow::cluster
