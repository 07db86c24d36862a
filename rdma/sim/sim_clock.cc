#include "rdma/sim/sim_clock.h"

#include <algorithm>

#include "base/check.h"

namespace furrow::rdma {

namespace {
constexpr int64_t kBillion = 1'000'000'000;
}  // namespace

DriftingTime::DriftingTime(Nanos true_now, const SimClockOptions& options, Random random)
    : options_(options), random_(random), base_true_(true_now) {
  FURROW_CHECK(options.max_drift_ppb >= 0 && options.max_drift_ppb <= 100'000'000);
  FURROW_CHECK(options.max_offset >= 0 && options.max_offset <= true_now);
  base_local_ = true_now + random_.Between(-options.max_offset, options.max_offset);
}

Nanos DriftingTime::LocalAt(Nanos true_time) const {
  Nanos passed = true_time - base_true_;
  return base_local_ + passed + static_cast<Nanos>(static_cast<__int128>(passed) * rate_ppb_ / kBillion);
}

Nanos DriftingTime::TrueAt(Nanos local) const {
  if (local == kNever) return kNever;
  if (local <= base_local_) return base_true_;
  __int128 passed = static_cast<__int128>(local - base_local_) * kBillion / (kBillion + rate_ppb_);
  if (passed > kNever - base_true_ - 2) return kNever;
  Nanos when = base_true_ + static_cast<Nanos>(passed);
  while (when > base_true_ && LocalAt(when - 1) >= local) --when;
  while (LocalAt(when) < local) ++when;
  return when;
}

Nanos DriftingTime::NextSegment(Nanos true_now) {
  base_local_ = LocalAt(true_now);
  base_true_ = true_now;
  rate_ppb_ = random_.Between(-options_.max_drift_ppb, options_.max_drift_ppb);
  return true_now + random_.Between(std::max<Nanos>(options_.min_segment, 1),
                                    std::max<Nanos>(options_.max_segment, options_.min_segment + 1));
}

}  // namespace furrow::rdma
