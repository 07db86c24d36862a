#include "base/timer_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.h"

namespace furrow {
namespace {

// Against a sorted map, with random additions, cancellations and expirations.
TEST(TimerHeapTest, BehavesLikeASortedMap) {
  const uint64_t seed = 1;
  SCOPED_TRACE(seed);
  Random random(seed);
  TimerHeap heap;
  std::map<std::pair<Nanos, uint64_t>, std::pair<TimerHeap::Id, int>> model;
  std::vector<TimerHeap::Id> dead;
  int fired = -1;
  Nanos now = 0;
  for (int step = 0; step < 20'000; ++step) {
    switch (random.Below(4)) {
      case 0:
      case 1: {
        const Nanos when = now + random.Between(0, 50);
        const uint64_t sequence = heap.sequence();
        const TimerHeap::Id id = heap.Add(when, [&fired, step] { fired = step; });
        model[{when, sequence}] = {id, step};
        break;
      }
      case 2:
        if (!model.empty()) {
          auto it = std::next(model.begin(), static_cast<int64_t>(random.Below(model.size())));
          ASSERT_TRUE(heap.Cancel(it->second.first));
          dead.push_back(it->second.first);
          model.erase(it);
        }
        if (!dead.empty()) {
          ASSERT_FALSE(heap.Cancel(dead[random.Below(dead.size())]));
        }
        break;
      case 3: {
        now += random.Between(0, 10);
        std::function<void()> fn;
        while (heap.PopDue(now, heap.sequence(), fn)) {
          ASSERT_FALSE(model.empty());
          fn();
          ASSERT_EQ(fired, model.begin()->second.second);
          ASSERT_LE(model.begin()->first.first, now);
          dead.push_back(model.begin()->second.first);
          model.erase(model.begin());
        }
        break;
      }
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_EQ(heap.next(), model.empty() ? kNever : model.begin()->first.first);
  }
}

TEST(TimerHeapTest, IdIsNeverZeroAndUnknownIdsAreRefused) {
  TimerHeap heap;
  EXPECT_FALSE(heap.Cancel(0));
  EXPECT_FALSE(heap.Cancel(12345));
  EXPECT_NE(heap.Add(1, [] {}), 0u);
}

}  // namespace
}  // namespace furrow
