// Operation: a posted request that somebody waits for, and CompletionPoller, which ends them: the one
// consumer of a completion queue.
#ifndef FURROW_RDMA_OPERATION_H_
#define FURROW_RDMA_OPERATION_H_

#include <coroutine>
#include <cstdint>
#include <utility>

#include "base/event_loop.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

// The request's id is the Operation's address. Every completion ends exactly one Operation; it must outlive
// that.
class Operation {
 public:
  using Handler = void (*)(Operation* self, CompletionStatus status);
  explicit Operation(Handler handler) : handler_(handler) {}
  uint64_t id() const { return reinterpret_cast<uint64_t>(this); }
  static void Complete(uint64_t id, CompletionStatus status) {
    Operation* self = reinterpret_cast<Operation*>(id);
    self->handler_(self, status);
  }

 private:
  Handler handler_;
};

// Counts a group of requests down and resumes one coroutine when all have ended.
//   OperationGroup group(loop);
//   request.id = group.Add(); ... connection.Post(request) ...
//   CompletionStatus worst = co_await group.Wait();
// If the group is already complete, Wait() does not suspend.
class OperationGroup : public Operation {
 public:
  explicit OperationGroup(EventLoop& loop) : Operation(&OperationGroup::Ended), loop_(loop) {}
  uint64_t Add() {
    ++pending_;
    return id();
  }
  // Takes one Add() back, for a request that could not be posted.
  void Forget() { --pending_; }
  uint32_t pending() const { return pending_; }
  CompletionStatus worst() const { return worst_; }

  struct Awaiter {
    OperationGroup& group;
    bool await_ready() const noexcept { return group.pending_ == 0; }
    void await_suspend(std::coroutine_handle<> h) const noexcept { group.waiter_ = h; }
    CompletionStatus await_resume() const noexcept { return group.worst_; }
  };
  Awaiter Wait() { return Awaiter{*this}; }

 private:
  static void Ended(Operation* self, CompletionStatus status) {
    auto* group = static_cast<OperationGroup*>(self);
    if (status != CompletionStatus::kOk && group->worst_ == CompletionStatus::kOk) group->worst_ = status;
    if (--group->pending_ == 0 && group->waiter_) group->loop_.Schedule(std::exchange(group->waiter_, {}));
  }

  EventLoop& loop_;
  uint32_t pending_ = 0;
  CompletionStatus worst_ = CompletionStatus::kOk;
  std::coroutine_handle<> waiter_;
};

// What is not a request's end: given to whoever owns the connections of the queue (the ring mesh).
class QueueEvents {
 public:
  virtual ~QueueEvents() = default;
  virtual void OnNotified(Connection& connection, uint8_t channel) = 0;
  virtual void OnReceived(Connection& connection, uint64_t id, uint32_t bytes) = 0;
  virtual void OnConnected(Connection& connection) = 0;
  virtual void OnDisconnected(Connection& connection) = 0;
};

// Polls one queue and dispatches. Owner thread only.
class CompletionPoller : public Poller {
 public:
  CompletionPoller(CompletionQueue& queue, QueueEvents& events) : queue_(queue), events_(events) {}
  bool Poll() override;

 private:
  CompletionQueue& queue_;
  QueueEvents& events_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_OPERATION_H_
