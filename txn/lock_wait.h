// How a read waits for the holder of a lock. The holder needs microseconds if it runs, and a core if it does
// not: on a host with more threads than cores, who goes on looking keeps it from that.
#ifndef FURROW_TXN_LOCK_WAIT_H_
#define FURROW_TXN_LOCK_WAIT_H_

#include <algorithm>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/task.h"

namespace furrow::txn {

// How often a torn copy is taken again before others get a turn: an install takes less than a copy.
inline constexpr int kTornRetries = 8;
// A reader that has waited this long looks seldom from then on, and its worker may park meanwhile.
inline constexpr Nanos kLookClosely = 20 * kMicrosecond;
inline constexpr Nanos kLongestLookAway = kMillisecond;

// The pause until the next look of a reader that has waited for `waited`. 0: the next turn of the loop.
constexpr Nanos LookAwayFor(Nanos waited) {
  return waited < kLookClosely ? 0 : std::min(waited, kLongestLookAway);
}

inline Task<void> LookAway(EventLoop& loop, Nanos waited) {
  const Nanos pause = LookAwayFor(waited);
  if (pause == 0) {
    co_await loop.Yield();
  } else {
    co_await loop.SleepFor(pause);
  }
}

}  // namespace furrow::txn

#endif  // FURROW_TXN_LOCK_WAIT_H_
