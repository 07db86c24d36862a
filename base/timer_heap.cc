#include "base/timer_heap.h"

#include <utility>

namespace furrow {

TimerHeap::Id TimerHeap::Add(Nanos when, std::function<void()> fn) {
  uint32_t slot;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  }
  slots_[slot].fn = std::move(fn);
  heap_.emplace_back();
  SiftUp(heap_.size() - 1, Entry{when, next_sequence_++, slot});
  return uint64_t{slots_[slot].generation} << 32 | slot;
}

bool TimerHeap::Cancel(Id id) {
  const uint32_t slot = static_cast<uint32_t>(id);
  if (slot >= slots_.size() || slots_[slot].generation != id >> 32 || slots_[slot].fn == nullptr)
    return false;
  std::function<void()> fn =
      Remove(slots_[slot].place);  // its captures die here, after the heap is whole again
  return true;
}

bool TimerHeap::PopDue(Nanos now, uint64_t sequence, std::function<void()>& fn) {
  if (heap_.empty() || heap_.front().when > now || heap_.front().sequence >= sequence) return false;
  fn = Remove(0);
  return true;
}

std::function<void()> TimerHeap::Remove(size_t place) {
  Slot& slot = slots_[heap_[place].slot];
  std::function<void()> fn = std::exchange(slot.fn, nullptr);
  if (++slot.generation == 0) slot.generation = 1;
  free_slots_.push_back(heap_[place].slot);
  const Entry last = heap_.back();
  heap_.pop_back();
  if (place < heap_.size()) {
    if (place > 0 && last.Before(heap_[(place - 1) / 2])) {
      SiftUp(place, last);
    } else {
      SiftDown(place, last);
    }
  }
  return fn;
}

void TimerHeap::Put(size_t place, const Entry& entry) {
  heap_[place] = entry;
  slots_[entry.slot].place = static_cast<uint32_t>(place);
}

void TimerHeap::SiftUp(size_t place, Entry entry) {
  while (place > 0) {
    const size_t parent = (place - 1) / 2;
    if (!entry.Before(heap_[parent])) break;
    Put(place, heap_[parent]);
    place = parent;
  }
  Put(place, entry);
}

void TimerHeap::SiftDown(size_t place, Entry entry) {
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].Before(heap_[child])) ++child;
    if (!heap_[child].Before(entry)) break;
    Put(place, heap_[child]);
    place = child;
  }
  Put(place, entry);
}

}  // namespace furrow
