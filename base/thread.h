// Thread: the only way to start a thread in Furrow.
#ifndef FURROW_BASE_THREAD_H_
#define FURROW_BASE_THREAD_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/clock.h"

namespace furrow {

struct ThreadOptions {
  std::string name;  // as tools show it; the kernel keeps 15 characters
  // 1..99: SCHED_FIFO wished; threads that it starts have normal scheduling. 0: normal scheduling.
  int realtime_priority = 0;
  std::optional<int> cpu = std::nullopt;  // run on this CPU only
};

// A running thread, joined when it is destroyed. Owner: one thread. A wish that the host does not grant is no
// error: the thread runs all the same, and settings() says what was refused and what would grant it.
class Thread {
 public:
  Thread() = default;
  // `body` must not throw.
  Thread(const ThreadOptions& options, std::function<void()> body);
  Thread(Thread&& other) noexcept = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Join(); }

  // Returns when the body has ended; at once if there is none or it was joined. Not from the thread itself.
  void Join();
  bool joinable() const { return thread_.joinable(); }
  // OK, or PermissionDenied / InvalidArgument for the first wish that was refused.
  const absl::Status& settings() const { return settings_; }

 private:
  std::thread thread_;
  absl::Status settings_;
};

// Keeps in memory what this process has mapped so far, once it is touched: code, stacks, and all else, so
// that no thread waits for a page to come back. PermissionDenied or ResourceExhausted, with what would grant
// it.
absl::Status LockMemory();
// CPUs that this process may run on; at least 1.
int AvailableCpus();
// Puts the calling thread to sleep until `deadline` on the monotonic clock. For tools and tests of real
// processes only: event loops use EventLoop::SleepUntil().
void SleepThreadUntil(Nanos deadline);

}  // namespace furrow

#endif  // FURROW_BASE_THREAD_H_
