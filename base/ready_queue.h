// ReadyQueue: the coroutines that an event loop will resume, first in, first out. It grows to the greatest
// number that was ever ready at once and then never allocates. A coroutine is in it at most once, so the
// number of coroutines in flight bounds it.
#ifndef FURROW_BASE_READY_QUEUE_H_
#define FURROW_BASE_READY_QUEUE_H_

#include <coroutine>
#include <cstddef>
#include <utility>
#include <vector>

namespace furrow {

class ReadyQueue {
 public:
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void Push(std::coroutine_handle<> h) {
    if (size() == ring_.size()) Grow();
    ring_[tail_++ & (ring_.size() - 1)] = h;
  }
  // The queue must not be empty.
  std::coroutine_handle<> Pop() { return ring_[head_++ & (ring_.size() - 1)]; }
  void Clear() { head_ = tail_ = 0; }

 private:
  void Grow() {
    std::vector<std::coroutine_handle<>> larger(ring_.empty() ? 64 : ring_.size() * 2);
    const size_t count = size();
    for (size_t i = 0; i < count; ++i) larger[i] = Pop();
    ring_ = std::move(larger);
    head_ = 0;
    tail_ = count;
  }

  std::vector<std::coroutine_handle<>> ring_;  // a power of two
  size_t head_ = 0;
  size_t tail_ = 0;
};

}  // namespace furrow

#endif  // FURROW_BASE_READY_QUEUE_H_
