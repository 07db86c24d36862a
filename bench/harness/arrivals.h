// Arrivals: when the transactions of an open loop are wanted.
#ifndef FURROW_BENCH_HARNESS_ARRIVALS_H_
#define FURROW_BENCH_HARNESS_ARRIVALS_H_

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"

namespace furrow::bench {

// A Poisson process. One owner.
class Arrivals {
 public:
  Arrivals(double per_second, Nanos start, uint64_t seed);
  // The next arrival; never less than the one before.
  Nanos Next();

 private:
  const double mean_ns_;
  double at_;
  Random random_;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_ARRIVALS_H_
