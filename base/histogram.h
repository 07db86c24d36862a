// Histogram: a distribution of latencies in nanoseconds, in fixed memory (72 KB), each value kept to within
// 0.4 %. Log-linear buckets: values below 512 exactly, above that 256 buckets per power of two, up to 2^43 ns
// (2.4 hours); what is longer counts as that long. One owner; merge the histograms of several threads when
// they are done.
#ifndef FURROW_BASE_HISTOGRAM_H_
#define FURROW_BASE_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace furrow {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets) {}

  // Negative values count as 0.
  void Record(Nanos value) { RecordMany(value, 1); }
  void RecordMany(Nanos value, uint64_t times) {
    value = std::clamp<Nanos>(value, 0, kMaxValue);
    buckets_[BucketOf(static_cast<uint64_t>(value))] += times;
    count_ += times;
    sum_ += static_cast<double>(value) * static_cast<double>(times);
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  void Merge(const Histogram& other);
  void Reset();

  uint64_t count() const { return count_; }
  // All of these are 0 without values. min, max and mean are exact (of the clamped values).
  Nanos min() const { return count_ == 0 ? 0 : min_; }
  Nanos max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // The value that `percent` (0..100) of the values do not exceed: the upper end of its bucket, at most
  // max().
  Nanos Percentile(double percent) const;
  // Calls fn(value, times) for each bucket that is not empty, in ascending order; `value` is the upper end of
  // the bucket. RecordMany() of the same pairs rebuilds the distribution, as in another process.
  template <class Fn>
  void ForEach(Fn fn) const {
    for (size_t b = 0; b < kBuckets; ++b) {
      if (buckets_[b] != 0) fn(UpperEnd(b), buckets_[b]);
    }
  }
  // "n=12 mean=3.1us p50=2.9us p95=5us p99=7.2us max=11us"
  std::string Summary() const;

 private:
  static constexpr int kSubBits = 8;
  static constexpr int kMaxBits = 43;
  static constexpr Nanos kMaxValue = (Nanos{1} << kMaxBits) - 1;
  static constexpr size_t kBuckets = size_t{kMaxBits - kSubBits + 1} << kSubBits;

  // With s = the bits to drop: s = 0 for values below 512, and (value >> s) lies in [256, 512) from there on.
  static size_t BucketOf(uint64_t value) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - (kSubBits + 1));
    return (static_cast<size_t>(shift) << kSubBits) + (value >> shift);
  }
  static Nanos UpperEnd(size_t bucket);

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  double sum_ = 0;
  Nanos min_ = INT64_MAX;
  Nanos max_ = 0;
};

// "850ns", "3.1us", "12.4ms", "2.5s": three significant digits, for people.
std::string FormatNanos(double ns);

}  // namespace furrow

#endif  // FURROW_BASE_HISTOGRAM_H_
