// Mutex and condition variable with thread-safety annotations, over pthread's. Not absl::Mutex: Debian's
// Abseil is compiled without ThreadSanitizer, which then knows nothing of its locks and reports races that
// are none.
#ifndef FURROW_BASE_MUTEX_H_
#define FURROW_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"

namespace furrow {

class CondVar;

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  // Tells the analysis, not the run, that the caller holds the lock.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the lock for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits release the mutex and take it again; they may return for no reason: wait in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Until `deadline` on the monotonic clock (kNever: none). False if it has passed.
  bool WaitUntil(Mutex* mutex, Nanos deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (deadline == kNever) return Wait(mutex), true;
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
    const bool in_time = condition_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace furrow

#endif  // FURROW_BASE_MUTEX_H_
