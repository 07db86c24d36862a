#include "base/histogram.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace furrow {

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

void Histogram::Reset() { *this = Histogram(); }

Nanos Histogram::UpperEnd(size_t bucket) {
  if (bucket < size_t{2} << kSubBits) return static_cast<Nanos>(bucket);
  const int shift = static_cast<int>(bucket >> kSubBits) - 1;
  const uint64_t top = (bucket & ((size_t{1} << kSubBits) - 1)) + (uint64_t{1} << kSubBits);
  return static_cast<Nanos>(((top + 1) << shift) - 1);
}

Nanos Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  percent = std::clamp(percent, 0.0, 100.0);
  const double wanted = std::ceil(percent / 100 * static_cast<double>(count_));
  const uint64_t rank = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count_);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(UpperEnd(i), min_, max_);
  }
  return max_;
}

std::string Histogram::Summary() const {
  return absl::StrCat("n=", count_, " mean=", FormatNanos(mean()), " p50=", FormatNanos(Percentile(50)),
                      " p95=", FormatNanos(Percentile(95)), " p99=", FormatNanos(Percentile(99)),
                      " max=", FormatNanos(max()));
}

std::string FormatNanos(double ns) {
  if (ns < 999.5) return absl::StrFormat("%.3gns", ns);
  if (ns < 999.5e3) return absl::StrFormat("%.3gus", ns / 1e3);
  if (ns < 999.5e6) return absl::StrFormat("%.3gms", ns / 1e6);
  return absl::StrFormat("%.*fs", ns < 99.95e9 ? 2 : 0, ns / 1e9);
}

}  // namespace furrow
