#include "bench/harness/arrivals.h"

#include <cmath>

namespace furrow::bench {

Arrivals::Arrivals(double per_second, Nanos start, uint64_t seed)
    : mean_ns_(static_cast<double>(kSecond) / per_second), at_(static_cast<double>(start)), random_(seed) {}

Nanos Arrivals::Next() {
  at_ += -std::log(1.0 - random_.NextDouble()) * mean_ns_;
  return static_cast<Nanos>(at_);
}

}  // namespace furrow::bench
