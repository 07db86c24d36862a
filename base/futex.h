// Futex: sleeping on a 32-bit word until its value changes; the word may lie in memory shared between
// processes.
#ifndef FURROW_BASE_FUTEX_H_
#define FURROW_BASE_FUTEX_H_

#include <cstdint>

#include "base/clock.h"

namespace furrow {

enum class FutexResult : uint8_t {
  kWoken,    // by a FutexWake(), a signal or for no reason: look at the word again
  kChanged,  // the word did not hold `expected`
  kTimedOut,
};

// Sleeps while `*word` holds `expected`, until FutexWake() or `deadline` on the monotonic clock (kNever:
// none). The check and the falling asleep are one step for the kernel. Works on memory that is mapped
// read-only too.
FutexResult FutexWait(const uint32_t* word, uint32_t expected, Nanos deadline);
// Wakes up to `count` sleepers on `word`, of any process; returns how many. The word must be writable memory.
int FutexWake(uint32_t* word, int count = 1);

}  // namespace furrow

#endif  // FURROW_BASE_FUTEX_H_
