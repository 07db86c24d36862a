// The choice of the bucket that holds rows (index/inline_bucket.h), by simulated placement: one object per
// bucket with overflow buckets chained to it, as Furrow has it, against FaRM's hopscotch table, in which a
// row lies in its home bucket or the next one, two objects that one READ fetches, and inserts displace rows
// to make that so.
//   bucket_model
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/random.h"
#include "index/inline_bucket.h"

namespace furrow::bench {
namespace {

constexpr uint32_t kBuckets = 40'000;
constexpr uint32_t kSearch = 64;  // buckets in which hopscotch looks for a free slot

struct Result {
  double reads = 0;     // per lookup of a row that exists
  double overflow = 0;  // overflow buckets per bucket
};

Result Chained(uint32_t slots, double fill) {
  Random random(1);
  const auto rows = static_cast<uint64_t>(kBuckets * slots * fill);
  std::vector<uint32_t> count(kBuckets);
  Result result;
  for (uint64_t i = 0; i < rows; ++i) {
    const uint32_t before = count[random.Below(kBuckets)]++;
    result.reads += 1 + before / slots;
    if (before >= slots && before % slots == 0) result.overflow += 1;
  }
  result.reads /= static_cast<double>(rows);
  result.overflow /= kBuckets;
  return result;
}

class Hopscotch {
 public:
  explicit Hopscotch(uint32_t slots) : slots_(slots), homes_(kBuckets), overflown_(kBuckets) {}
  Result Fill(double fill) {
    Random random(1);
    const auto rows = static_cast<uint64_t>(kBuckets * slots_ * fill);
    uint64_t outside = 0;
    for (uint64_t i = 0; i < rows; ++i) {
      const auto home = static_cast<uint32_t>(random.Below(kBuckets));
      if (Place(home)) continue;
      ++outside;
      ++overflown_[home];
    }
    Result result;
    result.reads = 1 + static_cast<double>(outside) / static_cast<double>(rows);
    for (const uint32_t n : overflown_) result.overflow += (n + slots_ - 1) / slots_;
    result.overflow /= kBuckets;
    return result;
  }

 private:
  std::vector<uint32_t>& At(uint32_t bucket) { return homes_[bucket % kBuckets]; }
  bool Place(uint32_t home) {
    uint32_t free = home;
    while (At(free).size() == slots_) {
      if (++free == home + kSearch) return false;
    }
    for (; free > home + 1; --free) {  // a row of the bucket before moves, if that is its home
      std::vector<uint32_t>& from = At(free - 1);
      const auto row = std::find(from.begin(), from.end(), (free - 1) % kBuckets);
      if (row == from.end()) return false;
      At(free).push_back(*row);
      from.erase(row);
    }
    At(free).push_back(home);
    return true;
  }
  const uint32_t slots_;
  std::vector<std::vector<uint32_t>> homes_;  // of each bucket's rows
  std::vector<uint32_t> overflown_;
};

size_t ObjectBytes(uint32_t slots, uint32_t row_bytes) {
  const index::InlineGeometry g{.slots = slots, .key_room = 8, .value_room = row_bytes - 8};
  return storage::SpanBytes(g.payload_bytes());
}

void Print(const char* what, size_t read_bytes, size_t bucket_bytes, uint32_t slots, double fill,
           const Result& result) {
  std::printf("  %-22s%5zu bytes per READ, %2.0f %% full: %.3f READs per lookup, %5.1f bytes per row\n", what,
              read_bytes, 100 * fill, result.reads,
              static_cast<double>(bucket_bytes) * (1 + result.overflow) / (slots * fill));
}

void Main() {
  constexpr uint32_t kSlots = index::kMinInlineSlots;
  for (const uint32_t row_bytes : {16u, 32u, 48u, 64u}) {
    std::printf("rows of %u bytes, %u slots per READ\n", row_bytes, kSlots);
    const size_t one = ObjectBytes(kSlots, row_bytes);
    const size_t half = ObjectBytes(kSlots / 2, row_bytes);
    for (const double fill : {0.5, 0.625, 0.75}) {
      Print("one object, chained", one, one, kSlots, fill, Chained(kSlots, fill));
    }
    for (const double fill : {0.75, 0.85, 0.9}) {
      Print("two objects, hopscotch", 2 * half, half, kSlots / 2, fill, Hopscotch(kSlots / 2).Fill(fill));
    }
  }
}

}  // namespace
}  // namespace furrow::bench

int main() {
  furrow::bench::Main();
  return 0;
}
