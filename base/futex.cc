#include "base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

namespace furrow {

// Neither call uses FUTEX_PRIVATE_FLAG: the two sides may be different processes.
FutexResult FutexWait(const uint32_t* word, uint32_t expected, Nanos deadline) {
  timespec until;
  if (deadline < 0) deadline = 0;
  until.tv_sec = deadline / kSecond;
  until.tv_nsec = deadline % kSecond;
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, so that a repeated wait does not drift.
  long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline == kNever ? nullptr : &until,
                        nullptr, FUTEX_BITSET_MATCH_ANY);
  if (result == 0 || errno == EINTR) return FutexResult::kWoken;
  if (errno == EAGAIN) return FutexResult::kChanged;
  FURROW_CHECK(errno == ETIMEDOUT);
  return FutexResult::kTimedOut;
}

int FutexWake(uint32_t* word, int count) {
  long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  FURROW_CHECK(woken >= 0);
  return static_cast<int>(woken);
}

}  // namespace furrow
