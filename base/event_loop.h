// EventLoop: what a worker runs. It resumes ready coroutines, polls its pollers (completion queue, incoming
// rings) and fires timers. One thread owns a loop and everything attached to it; only Post() and Stop() may
// be called from elsewhere. Under simulation the simulator calls RunOnce() of every loop, all in one thread.
//
// Idle policy of Run(): spin briefly, then yield the core, then park until a doorbell, a timer or Post().
#ifndef FURROW_BASE_EVENT_LOOP_H_
#define FURROW_BASE_EVENT_LOOP_H_

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/ready_queue.h"
#include "base/task.h"
#include "base/timer_heap.h"

namespace furrow {

// Something that a worker polls. Owner thread only.
class Poller {
 public:
  virtual ~Poller() = default;
  // Does what can be done now without blocking; true if there was any work.
  virtual bool Poll() = 0;
};

// How a loop sleeps and is woken: a futex word in shared memory, a completion channel, a condition variable.
// Protocol: PrepareToPark(); poll everything once more; then Park() or CancelPark(). A Wake() (or a peer's
// doorbell) between PrepareToPark() and Park() makes Park() return at once: no wake-up is lost.
class Parker {
 public:
  virtual ~Parker() = default;
  virtual void PrepareToPark() = 0;
  virtual void CancelPark() = 0;
  // Sleeps until woken or until `deadline` on the monotonic clock (kNever: no deadline).
  virtual void Park(Nanos deadline) = 0;
  // Any thread.
  virtual void Wake() = 0;
};

struct IdlePolicy {
  Nanos spin_ns = 2 * kMicrosecond;          // poll without pause for this long after the last work
  int yields = 20;                           // then give the core away this many times between polls
  Nanos busy_yield_ns = 300 * kMicrosecond;  // a loop that always has work yields this often; 0: never
};

class EventLoop {
 public:
  // `clock` and `parker` outlive the loop.
  EventLoop(const Clock& clock, Parker& parker, IdlePolicy policy = {});
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  const Clock& clock() const { return clock_; }
  Nanos Now() const { return clock_.Now(); }

  // The loop whose RunOnce() is on this thread's stack, or null.
  static EventLoop* Current();

  // --- owner thread ---
  // Resumes `h` in a later step of this RunOnce() or the next.
  void Schedule(std::coroutine_handle<> h) { ready_.Push(h); }
  // Starts a detached task as if by Schedule(); it is destroyed when it ends, or with the loop. An exception
  // that leaves it is fatal.
  void Spawn(Task<void> task);
  size_t spawned() const { return spawned_; }
  // Destroys the frames of all spawned tasks, before what they refer to dies. The loop does not run again.
  void DestroyTasks();
  // Pollers are polled in the order in which they were added; they outlive their registration. Both may be
  // called from inside a poll: a new poller runs from the next round on, a removed one not again.
  void AddPoller(Poller* poller);
  void RemovePoller(Poller* poller);
  // Calls `fn` on this loop at or soon after `when`. Cancel() is a no-op for a timer that has fired.
  using TimerId = TimerHeap::Id;  // never 0
  TimerId CallAt(Nanos when, std::function<void()> fn);
  void Cancel(TimerId id);

  struct YieldAwaiter {
    EventLoop& loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) const { loop.Schedule(h); }
    void await_resume() const noexcept {}
  };
  // co_await loop.Yield(): lets everything else that is ready, and the pollers, run once.
  YieldAwaiter Yield() { return YieldAwaiter{*this}; }
  struct SleepAwaiter {
    EventLoop& loop;
    Nanos when;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) const {
      loop.CallAt(when, [h, &l = loop] { l.Schedule(h); });
    }
    void await_resume() const noexcept {}
  };
  // co_await loop.SleepUntil(t). The frame must not be destroyed while it sleeps, except with the loop.
  SleepAwaiter SleepUntil(Nanos when) { return SleepAwaiter{*this, when}; }
  SleepAwaiter SleepFor(Nanos ns) { return SleepAwaiter{*this, Now() + ns}; }

  // One round: posted functions, due timers, pollers, then the coroutines that were ready when the round
  // reached them (those that they make ready run in the next round). True if any of it did something.
  bool RunOnce();
  // The earliest timer, kNever without one; and whether a coroutine is ready now.
  Nanos NextDeadline() const { return timers_.next(); }
  bool HasReady() const { return !ready_.empty(); }

  // Runs until Stop(). Real threads only.
  void Run();

  // --- any thread ---
  // Runs `fn` on the loop, in the order of the calls. After Stop() the function may never run. The queue has
  // no maximum: it is for rare events (connections, control plane, shutdown), whose senders bound themselves.
  void Post(std::function<void()> fn) ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop();

 private:
  class Detached;
  bool RunPosted();
  bool FireTimers();
  bool RunPollers();
  bool RunReady();
  void YieldIfBusyForLong();
  void Idle();

  const Clock& clock_;
  Parker& parker_;
  const IdlePolicy policy_;

  // Owner thread only.
  ReadyQueue ready_;
  TimerHeap timers_;
  std::vector<Poller*> pollers_;  // null: removed while it was polled
  bool polling_ = false;
  std::vector<std::function<void()>> running_;  // what RunPosted() took out of posted_
  size_t spawned_ = 0;
  Detached* detached_ = nullptr;  // intrusive list of the frames of spawned tasks
  uint32_t busy_rounds_ = 0;
  Nanos last_yield_ = 0;

  // Any thread.
  std::atomic<bool> stop_{false};
  std::atomic<bool> has_posted_{false};
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow

#endif  // FURROW_BASE_EVENT_LOOP_H_
