#include "base/clock.h"

#include <time.h>

#include "base/check.h"

namespace furrow {
namespace {

Nanos Read(clockid_t clock) {
  timespec ts;
  FURROW_CHECK(clock_gettime(clock, &ts) == 0);
  return ts.tv_sec * kSecond + ts.tv_nsec;
}

class HostMonotonicClock final : public Clock {
 public:
  Nanos Now() const override { return Read(CLOCK_MONOTONIC); }
};

}  // namespace

const Clock& MonotonicClock() {
  static const HostMonotonicClock clock;
  return clock;
}

Nanos WallClockNow() { return Read(CLOCK_REALTIME); }

}  // namespace furrow
