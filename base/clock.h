// The seam for time. Only base/ reads clocks; all else receives a Clock.
#ifndef FURROW_BASE_CLOCK_H_
#define FURROW_BASE_CLOCK_H_

#include <cstdint>

namespace furrow {

// Nanoseconds: a point on some Clock, or a length of time.
using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

// A clock that never goes back. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos Now() const = 0;
};

// CLOCK_MONOTONIC of this host: the same for all processes of one boot and time namespace.
const Clock& MonotonicClock();
// CLOCK_REALTIME, for log lines and reports only: it may jump.
Nanos WallClockNow();

}  // namespace furrow

#endif  // FURROW_BASE_CLOCK_H_
