// WorkerCalls: hands coroutines from any thread to the workers of a member, within bounds, and waits for
// their ends. What Database's blocking calls and Spawn() stand on.
//
//   queued ----> running ----> ended        ended also: destroyed, with the queue or the loop
//      |
//      +-------> abandoned: its caller's deadline passed before a worker took it up
//
// A caller that waits is released only when its coroutine, and all that may refer to the caller's frame, is
// destroyed.
#ifndef FURROW_CLIENT_WORKER_CALLS_H_
#define FURROW_CLIENT_WORKER_CALLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/task.h"
#include "txn/worker.h"

namespace furrow::client {

class WorkerCalls {
 public:
  using Coroutine = std::function<Task<absl::Status>(txn::Worker&)>;
  // Calls that a worker has not come to yet; those whose callers have given up count until it does.
  static constexpr uint32_t kMaxWaiting = 1 << 13;
  struct Options {
    // Running at once on a worker. More wait in order of arrival, at most kMaxWaiting.
    uint32_t max_in_flight = 1024;
    // What left a coroutine of Start(); on the worker. Not null.
    std::function<void(std::exception_ptr)> on_exception;
  };

  // The workers and their loops outlive Close().
  WorkerCalls(std::vector<txn::Worker*> workers, Options options);
  ~WorkerCalls();

  // Runs `coroutine` on a worker and waits for its end; rethrows what leaves it. DeadlineExceeded: no worker
  // has taken it up by `deadline`. ResourceExhausted: kMaxWaiting. Unknown: it was destroyed before its end.
  // Not on a worker.
  absl::Status Wait(size_t worker, Coroutine coroutine, Nanos deadline);
  // The same without waiting. ResourceExhausted: max_in_flight.
  absl::Status Start(size_t worker, Coroutine coroutine);
  size_t Next() { return next_.fetch_add(1, std::memory_order_relaxed) % slots_.size(); }
  size_t size() const { return slots_.size(); }

  // Refuses new calls with Unavailable.
  void Close();
  // Waits until no call is left; false at the deadline.
  bool Drain(Nanos deadline);
  // After the loops have stopped and destroyed their tasks: destroys what still waits.
  void DestroyQueued();

 private:
  struct Call;
  struct Shared;
  struct Slot;
  class Ticket;

  absl::Status Submit(size_t worker, std::shared_ptr<Call> call);
  static void Take(Slot* slot, std::shared_ptr<Ticket> ticket);
  static Task<void> RunOne(Slot* slot, std::shared_ptr<Ticket> ticket);

  const Options options_;
  const std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<size_t> next_{0};
};

}  // namespace furrow::client

#endif  // FURROW_CLIENT_WORKER_CALLS_H_
