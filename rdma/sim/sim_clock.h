// SimClock: the clock of a simulated node: true time plus an offset that drifts. It never goes back.
//
//   local(t) = base_local + (t - base_true) * (1 + rate),  |rate| <= max_drift_ppb / 10^9
//
// The rate is constant within a segment; the world starts a new segment with a newly drawn rate now and then.
#ifndef FURROW_RDMA_SIM_SIM_CLOCK_H_
#define FURROW_RDMA_SIM_SIM_CLOCK_H_

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"

namespace furrow::rdma {

struct SimClockOptions {
  Nanos max_offset = 5 * kMillisecond;  // a node's clock starts within +- this of true time
  int64_t max_drift_ppb = 200'000;      // 200 ppm; at most 10^8
  Nanos min_segment = kMillisecond;     // the rate stays for a time drawn from [min_segment, max_segment]
  Nanos max_segment = 20 * kMillisecond;
};

// The function from true time to local time; knows no world.
class DriftingTime {
 public:
  DriftingTime(Nanos true_now, const SimClockOptions& options, Random random);

  // `true_time` is at or after the start of the current segment.
  Nanos LocalAt(Nanos true_time) const;
  // The earliest true time at which LocalAt() is at least `local`, as long as the current segment lasts; the
  // start of the segment for an earlier one; kNever for kNever.
  Nanos TrueAt(Nanos local) const;
  // Ends the segment at `true_now`, draws a rate and says when the new segment ends.
  Nanos NextSegment(Nanos true_now);
  int64_t rate_ppb() const { return rate_ppb_; }

 private:
  const SimClockOptions options_;
  Random random_;
  Nanos base_true_;
  Nanos base_local_;
  int64_t rate_ppb_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_CLOCK_H_
