// FreeBitmap: which of up to 16,384 slots are free; the lowest one is found with two bit scans. Not
// thread-safe.
#ifndef FURROW_STORAGE_FREE_BITMAP_H_
#define FURROW_STORAGE_FREE_BITMAP_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace furrow::storage {

class FreeBitmap {
 public:
  static constexpr uint32_t kMaxSlots = 16384;
  FreeBitmap() = default;
  // None of `slots` is free.
  explicit FreeBitmap(uint32_t slots) : words_((slots + 63) / 64) { FURROW_CHECK(slots <= kMaxSlots); }

  void Add(uint32_t slot) {
    uint32_t word = slot / 64;
    words_[word] |= uint64_t{1} << slot % 64;
    summary_[word / 64] |= uint64_t{1} << word % 64;
  }
  void Remove(uint32_t slot) {
    uint32_t word = slot / 64;
    words_[word] &= ~(uint64_t{1} << slot % 64);
    if (words_[word] == 0) summary_[word / 64] &= ~(uint64_t{1} << word % 64);
  }
  bool Contains(uint32_t slot) const { return (words_[slot / 64] >> slot % 64 & 1) != 0; }
  // There is one.
  uint32_t Lowest() const {
    for (uint32_t i = 0; i < kSummaryWords; ++i) {
      if (summary_[i] == 0) continue;
      uint32_t word = i * 64 + static_cast<uint32_t>(std::countr_zero(summary_[i]));
      return word * 64 + static_cast<uint32_t>(std::countr_zero(words_[word]));
    }
    FURROW_CHECK(false);
    return 0;
  }

 private:
  static constexpr uint32_t kSummaryWords = kMaxSlots / 64 / 64;
  std::vector<uint64_t> words_;           // bit: slot is free
  uint64_t summary_[kSummaryWords] = {};  // bit: that word has a free slot
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_FREE_BITMAP_H_
