#include "base/event_loop.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace furrow {
namespace {

// A busy loop looks at the clock once in this many rounds to see whether it should yield.
constexpr uint32_t kRoundsPerClockRead = 16;

thread_local EventLoop* current_loop = nullptr;

void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// The outermost frame of a spawned task: nobody owns its handle, it destroys itself at its end, and while it
// lives it is linked into the loop's list.
class EventLoop::Detached {
 public:
  struct Promise;
  struct Started {
    using promise_type = Promise;
    std::coroutine_handle<> handle;
  };
  static Started Run(EventLoop&, Task<void> task);

  Detached(const Detached&) = delete;
  Detached& operator=(const Detached&) = delete;
  void Destroy() { handle_.destroy(); }

 protected:
  Detached(EventLoop& loop, std::coroutine_handle<> handle)
      : loop_(loop), handle_(handle), next_(loop.detached_) {
    if (next_ != nullptr) next_->previous_ = this;
    loop_.detached_ = this;
    ++loop_.spawned_;
  }
  ~Detached() {
    (previous_ != nullptr ? previous_->next_ : loop_.detached_) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
    --loop_.spawned_;
  }

 private:
  EventLoop& loop_;
  std::coroutine_handle<> handle_;
  Detached* next_;
  Detached* previous_ = nullptr;
};

struct EventLoop::Detached::Promise : Detached {
  using Handle = std::coroutine_handle<Promise>;
  Promise(EventLoop& loop, Task<void>&) : Detached(loop, Handle::from_promise(*this)) {}
  static void* operator new(size_t bytes) { return AllocateFrame(bytes); }
  static void operator delete(void* frame, size_t bytes) { FreeFrame(frame, bytes); }
  Started get_return_object() noexcept { return Started{Handle::from_promise(*this)}; }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_never final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  [[noreturn]] void unhandled_exception() noexcept {
    try {
      throw;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "an exception left a spawned task: %s\n", e.what());
    } catch (...) {
      std::fprintf(stderr, "an exception left a spawned task\n");
    }
    std::abort();
  }
};

EventLoop::Detached::Started EventLoop::Detached::Run(EventLoop&, Task<void> task) { co_await task; }

EventLoop::EventLoop(const Clock& clock, Parker& parker, IdlePolicy policy)
    : clock_(clock), parker_(parker), policy_(policy) {}

EventLoop::~EventLoop() { DestroyTasks(); }

void EventLoop::DestroyTasks() {
  // A frame's destructors may spawn, schedule and cancel; what they start is destroyed as well.
  while (detached_ != nullptr) detached_->Destroy();
  ready_.Clear();
}

EventLoop* EventLoop::Current() { return current_loop; }

void EventLoop::Spawn(Task<void> task) { Schedule(Detached::Run(*this, std::move(task)).handle); }

void EventLoop::AddPoller(Poller* poller) { pollers_.push_back(poller); }

void EventLoop::RemovePoller(Poller* poller) {
  auto it = std::find(pollers_.begin(), pollers_.end(), poller);
  if (it == pollers_.end()) return;
  if (polling_) {
    *it = nullptr;  // RunPollers() iterates; it drops the gap afterwards
  } else {
    pollers_.erase(it);
  }
}

EventLoop::TimerId EventLoop::CallAt(Nanos when, std::function<void()> fn) {
  FURROW_DCHECK(fn != nullptr);
  return timers_.Add(when, std::move(fn));
}

void EventLoop::Cancel(TimerId id) { timers_.Cancel(id); }

bool EventLoop::RunOnce() {
  EventLoop* const outer = std::exchange(current_loop, this);
  bool worked = has_posted_.load(std::memory_order_acquire) && RunPosted();
  if (!timers_.empty()) worked |= FireTimers();
  worked |= RunPollers();
  if (!ready_.empty()) worked |= RunReady();
  current_loop = outer;
  return worked;
}

bool EventLoop::RunPosted() {
  {
    MutexLock lock(&mutex_);
    running_.swap(posted_);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  for (std::function<void()>& fn : running_) std::exchange(fn, nullptr)();
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

bool EventLoop::FireTimers() {
  const Nanos now = clock_.Now();
  if (timers_.next() > now) return false;
  // Timers that these functions add wait for the next round, so that a round ends.
  const uint64_t sequence = timers_.sequence();
  bool any = false;
  std::function<void()> fn;
  while (timers_.PopDue(now, sequence, fn)) {
    any = true;
    std::exchange(fn, nullptr)();
  }
  return any;
}

bool EventLoop::RunPollers() {
  bool worked = false;
  bool gaps = false;
  polling_ = true;
  const size_t count = pollers_.size();
  for (size_t i = 0; i < count; ++i) {
    if (pollers_[i] != nullptr) worked |= pollers_[i]->Poll();
    gaps |= pollers_[i] == nullptr;
  }
  polling_ = false;
  if (gaps) std::erase(pollers_, nullptr);
  return worked;
}

bool EventLoop::RunReady() {
  size_t count = ready_.size();
  for (; count > 0; --count) ready_.Pop().resume();
  return true;
}

void EventLoop::Run() {
  while (!stop_.load(std::memory_order_acquire)) {
    if (RunOnce()) {
      if (policy_.busy_yield_ns > 0 && ++busy_rounds_ % kRoundsPerClockRead == 0) YieldIfBusyForLong();
    } else {
      Idle();
    }
  }
}

// On a host with more nodes than cores, a loop that is never idle would let its peers wait for a whole time
// slice.
void EventLoop::YieldIfBusyForLong() {
  if (Now() - last_yield_ < policy_.busy_yield_ns) return;
  sched_yield();
  last_yield_ = Now();
}

void EventLoop::Idle() {
  if (policy_.spin_ns > 0) {
    const Nanos end = Now() + policy_.spin_ns;
    do {
      CpuRelax();
      if (RunOnce()) return;
    } while (Now() < end);
  }
  for (int i = 0; i < policy_.yields; ++i) {
    sched_yield();
    if (RunOnce()) return;
  }
  last_yield_ = Now();
  parker_.PrepareToPark();
  if (RunOnce() || stop_.load(std::memory_order_acquire)) {
    parker_.CancelPark();
  } else {
    parker_.Park(NextDeadline());
  }
}

void EventLoop::Post(std::function<void()> fn) {
  bool first;
  {
    MutexLock lock(&mutex_);
    posted_.push_back(std::move(fn));
    first = !has_posted_.exchange(true, std::memory_order_release);
  }
  // While the flag is up the loop has been woken already and will look at the whole queue.
  if (first && Current() != this) parker_.Wake();
}

void EventLoop::Stop() {
  stop_.store(true, std::memory_order_release);
  parker_.Wake();
}

}  // namespace furrow
