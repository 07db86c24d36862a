// CompletionRing: completions that wait for Poll(), first in, first out. Grows to what its connections may
// have outstanding. Owner thread only.
#ifndef FURROW_RDMA_COMPLETION_RING_H_
#define FURROW_RDMA_COMPLETION_RING_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "rdma/fabric.h"

namespace furrow::rdma {

class CompletionRing {
 public:
  void Push(const Completion& completion) {
    if (size_ == ring_.size()) [[unlikely]]
      Grow();
    ring_[(first_ + size_++) & (ring_.size() - 1)] = completion;
  }
  size_t size() const { return size_; }
  const Completion& front() const { return ring_[first_]; }
  void Pop() {
    first_ = (first_ + 1) & (ring_.size() - 1);
    --size_;
  }
  // Drops all completions of a connection.
  void Forget(const Connection* connection) {
    const size_t count = size_;
    for (size_t i = 0; i < count; ++i) {
      const Completion completion = front();
      Pop();
      if (completion.connection != connection) Push(completion);
    }
  }

 private:
  void Grow() {
    std::vector<Completion> larger(ring_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    first_ = 0;
  }
  std::vector<Completion> ring_ = std::vector<Completion>(64);  // a power of two
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_COMPLETION_RING_H_
