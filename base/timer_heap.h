// TimerHeap: the pending timers of one event loop, earliest first. Not thread-safe. No maximum of its own: a
// timer belongs to something bounded (a coroutine, a peer, a periodic job), and a cancelled one is gone at
// once.
#ifndef FURROW_BASE_TIMER_HEAP_H_
#define FURROW_BASE_TIMER_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"

namespace furrow {

class TimerHeap {
 public:
  // Slot in the lower half, the slot's generation in the upper, so that an old id never names a new timer. 0:
  // none.
  using Id = uint64_t;

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  // kNever without timers.
  Nanos next() const { return heap_.empty() ? kNever : heap_.front().when; }

  // O(log n). Timers of the same time fire in the order in which they were added.
  Id Add(Nanos when, std::function<void()> fn);
  // O(log n). False: it has fired, was cancelled or never was.
  bool Cancel(Id id);
  // Timers added from here on have a sequence of at least this.
  uint64_t sequence() const { return next_sequence_; }
  // Takes out the earliest timer if it is due at `now` and was added before `sequence`.
  bool PopDue(Nanos now, uint64_t sequence, std::function<void()>& fn);

 private:
  struct Entry {
    Nanos when;
    uint64_t sequence;
    uint32_t slot;
    bool Before(const Entry& other) const {
      return when != other.when ? when < other.when : sequence < other.sequence;
    }
  };
  struct Slot {
    std::function<void()> fn;
    uint32_t generation = 1;
    uint32_t place = 0;  // index into heap_ while in use
  };
  void Put(size_t place, const Entry& entry);
  void SiftUp(size_t place, Entry entry);
  void SiftDown(size_t place, Entry entry);
  std::function<void()> Remove(size_t place);

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  uint64_t next_sequence_ = 0;
};

}  // namespace furrow

#endif  // FURROW_BASE_TIMER_HEAP_H_
