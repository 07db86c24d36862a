#include "base/thread_parker.h"

#include <atomic>

#include "base/futex.h"

namespace furrow {

void ThreadParker::PrepareToPark() { std::atomic_ref(state_).exchange(kParking, std::memory_order_acq_rel); }

void ThreadParker::CancelPark() { std::atomic_ref(state_).exchange(kAwake, std::memory_order_acq_rel); }

void ThreadParker::Park(Nanos deadline) {
  while (std::atomic_ref(state_).load(std::memory_order_acquire) == kParking) {
    if (FutexWait(&state_, kParking, deadline) == FutexResult::kTimedOut) break;
  }
  std::atomic_ref(state_).exchange(kAwake, std::memory_order_acq_rel);
}

void ThreadParker::Wake() {
  if (std::atomic_ref(state_).exchange(kAwake, std::memory_order_acq_rel) == kParking) FutexWake(&state_);
}

}  // namespace furrow
