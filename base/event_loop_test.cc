#include "base/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "base/thread.h"
#include "base/thread_parker.h"

namespace furrow {
namespace {

using ::testing::ElementsAre;

class EventLoopTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  ThreadParker parker_;
  EventLoop loop_{clock_, parker_};
  std::vector<int> order_;
};

struct FunctionPoller : Poller {
  explicit FunctionPoller(std::function<bool()> f) : fn(std::move(f)) {}
  bool Poll() override { return fn(); }
  std::function<bool()> fn;
};

Task<void> Appends(std::vector<int>* order, int id) {
  order->push_back(id);
  co_return;
}

TEST_F(EventLoopTest, RoundRunsPostedThenTimersThenPollersThenReady) {
  FunctionPoller poller([&] {
    order_.push_back(3);
    return false;
  });
  loop_.AddPoller(&poller);
  loop_.Spawn(Appends(&order_, 4));
  loop_.CallAt(0, [&] { order_.push_back(2); });
  loop_.Post([&] { order_.push_back(1); });
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_THAT(order_, ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(loop_.RunOnce());
  loop_.RemovePoller(&poller);
}

TEST_F(EventLoopTest, ReadyRunInTheOrderInWhichTheyBecameReady) {
  for (int i = 0; i < 1000; ++i) loop_.Spawn(Appends(&order_, i));
  loop_.RunOnce();
  ASSERT_EQ(order_.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order_[i], i);
}

Task<void> Yields(EventLoop* loop, std::vector<int>* order, int id) {
  order->push_back(id);
  co_await loop->Yield();
  order->push_back(id + 10);
}

TEST_F(EventLoopTest, CoroutinesMadeReadyInARoundRunInTheNext) {
  loop_.Spawn(Yields(&loop_, &order_, 1));
  loop_.Spawn(Yields(&loop_, &order_, 2));
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1, 2));
  EXPECT_TRUE(loop_.HasReady());
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1, 2, 11, 12));
  EXPECT_FALSE(loop_.HasReady());
}

TEST_F(EventLoopTest, TimersFireByTimeThenByOrderOfCalls) {
  loop_.CallAt(30, [&] { order_.push_back(4); });
  loop_.CallAt(10, [&] { order_.push_back(1); });
  loop_.CallAt(20, [&] { order_.push_back(2); });
  loop_.CallAt(20, [&] { order_.push_back(3); });
  EXPECT_EQ(loop_.NextDeadline(), 10);
  clock_.Advance(9);
  EXPECT_FALSE(loop_.RunOnce());
  clock_.Advance(11);
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_THAT(order_, ElementsAre(1, 2, 3));
  EXPECT_EQ(loop_.NextDeadline(), 30);
  clock_.Advance(10);
  EXPECT_TRUE(loop_.RunOnce());
  EXPECT_THAT(order_, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(loop_.NextDeadline(), kNever);
}

TEST_F(EventLoopTest, CancelledTimerDoesNotFireAndFreesItsCaptures) {
  auto shared = std::make_shared<int>(0);
  EventLoop::TimerId id = loop_.CallAt(10, [shared, this] { order_.push_back(1); });
  EXPECT_EQ(shared.use_count(), 2);
  loop_.Cancel(id);
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_EQ(loop_.NextDeadline(), kNever);
  clock_.Advance(100);
  EXPECT_FALSE(loop_.RunOnce());
}

TEST_F(EventLoopTest, CancelOfAFiredTimerDoesNotTouchItsSuccessor) {
  EventLoop::TimerId first = loop_.CallAt(0, [&] { order_.push_back(1); });
  loop_.RunOnce();
  loop_.CallAt(0, [&] { order_.push_back(2); });  // takes the slot of the first
  loop_.Cancel(first);
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1, 2));
}

TEST_F(EventLoopTest, TimerMayCancelAnotherThatIsDueInTheSameRound) {
  EventLoop::TimerId second = 0;
  loop_.CallAt(1, [&] {
    order_.push_back(1);
    loop_.Cancel(second);
  });
  second = loop_.CallAt(2, [&] { order_.push_back(2); });
  clock_.Advance(5);
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1));
}

TEST_F(EventLoopTest, TimerThatRearmsItselfDoesNotKeepTheRoundFromEnding) {
  int fired = 0;
  std::function<void()> again = [&] {
    ++fired;
    loop_.CallAt(0, again);
  };
  loop_.CallAt(0, again);
  loop_.RunOnce();
  EXPECT_EQ(fired, 1);
  loop_.RunOnce();
  EXPECT_EQ(fired, 2);
}

TEST_F(EventLoopTest, CurrentIsTheLoopInsideItsRoundOnly) {
  EXPECT_EQ(EventLoop::Current(), nullptr);
  EventLoop inner(clock_, parker_);
  EventLoop* seen_inner = nullptr;
  EventLoop* seen_after = nullptr;
  inner.Post([&] { seen_inner = EventLoop::Current(); });
  loop_.Post([&] {
    inner.RunOnce();
    seen_after = EventLoop::Current();
  });
  loop_.RunOnce();
  EXPECT_EQ(seen_inner, &inner);
  EXPECT_EQ(seen_after, &loop_);
  EXPECT_EQ(EventLoop::Current(), nullptr);
}

TEST_F(EventLoopTest, PollersMayComeAndGoDuringAPoll) {
  int late_polls = 0;
  int removed_polls = 0;
  FunctionPoller late([&] { return ++late_polls, false; });
  FunctionPoller removed([&] { return ++removed_polls, false; });
  bool once = true;
  FunctionPoller changer([&] {
    if (std::exchange(once, false)) {
      loop_.RemovePoller(&removed);
      loop_.AddPoller(&late);
    }
    return false;
  });
  loop_.AddPoller(&changer);
  loop_.AddPoller(&removed);
  loop_.RunOnce();
  EXPECT_EQ(late_polls, 0);
  EXPECT_EQ(removed_polls, 0);
  loop_.RunOnce();
  EXPECT_EQ(late_polls, 1);
  EXPECT_EQ(removed_polls, 0);
}

TEST_F(EventLoopTest, FunctionPostedByAPostedOneRunsInTheNextRound) {
  loop_.Post([&] {
    order_.push_back(1);
    loop_.Post([&] { order_.push_back(2); });
  });
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1));
  loop_.RunOnce();
  EXPECT_THAT(order_, ElementsAre(1, 2));
}

// --- real threads ---

constexpr IdlePolicy kParkAtOnce = {.spin_ns = 0, .yields = 0, .busy_yield_ns = 0};

TEST(EventLoopThreadTest, PostsOfEachThreadRunInTheirOrder) {
  ThreadParker parker;
  EventLoop loop(MonotonicClock(), parker, kParkAtOnce);
  constexpr int kEach = 5000;
  int next[2] = {0, 0};
  bool in_order = true;
  Thread runner({.name = "loop"}, [&] { loop.Run(); });
  auto post_all = [&](int who) {
    for (int i = 0; i < kEach; ++i) {
      loop.Post([&, who, i] {
        in_order &= next[who] == i;
        if (++next[who] == kEach && next[1 - who] == kEach) loop.Stop();
      });
    }
  };
  Thread a({.name = "a"}, [&] { post_all(0); });
  Thread b({.name = "b"}, [&] { post_all(1); });
  runner.Join();
  EXPECT_TRUE(in_order);
}

// Two loops that park between all messages hit each other's wake-up in every phase of parking; one lost
// wake-up and the test hangs until its timeout.
TEST(EventLoopThreadTest, NoWakeUpIsLostBetweenParkingLoops) {
  ThreadParker parkers[2];
  EventLoop left(MonotonicClock(), parkers[0], kParkAtOnce);
  EventLoop right(MonotonicClock(), parkers[1], kParkAtOnce);
  constexpr int kRounds = 20000;
  int rounds = 0;
  std::function<void()> ping = [&] {
    right.Post([&] { left.Post(ping); });
    if (++rounds == kRounds) {
      left.Stop();
      right.Stop();
    }
  };
  left.Post(ping);
  Thread a({.name = "left"}, [&] { left.Run(); });
  Thread b({.name = "right"}, [&] { right.Run(); });
  a.Join();
  b.Join();
  EXPECT_EQ(rounds, kRounds);
}

TEST(EventLoopThreadTest, ParkedLoopWakesForItsTimer) {
  ThreadParker parker;
  EventLoop loop(MonotonicClock(), parker, kParkAtOnce);
  const Nanos start = MonotonicClock().Now();
  Nanos fired = 0;
  loop.CallAt(start + 5 * kMillisecond, [&] {
    fired = MonotonicClock().Now();
    loop.Stop();
  });
  loop.Run();
  EXPECT_GE(fired, start + 5 * kMillisecond);
}

TEST(EventLoopThreadTest, StopEndsAParkedLoop) {
  ThreadParker parker;
  EventLoop loop(MonotonicClock(), parker, kParkAtOnce);
  Thread runner({.name = "loop"}, [&] { loop.Run(); });
  loop.Stop();
  runner.Join();
}

// A parker that only counts, to see what Run() does when it finds work at the last moment.
class CountingParker : public Parker {
 public:
  void PrepareToPark() override { ++prepared, on_prepare(); }
  void CancelPark() override { ++cancelled; }
  void Park(Nanos deadline) override { ++parked, last_deadline = deadline, on_park(); }
  void Wake() override { ++woken; }
  int prepared = 0, cancelled = 0, parked = 0, woken = 0;
  Nanos last_deadline = 0;
  std::function<void()> on_prepare = [] {};
  std::function<void()> on_park = [] {};
};

TEST(EventLoopParkTest, SpinningAndYieldingLoopAlsoReachesItsPark) {
  CountingParker parker;
  EventLoop loop(MonotonicClock(), parker, {.spin_ns = kMicrosecond, .yields = 3, .busy_yield_ns = 1});
  int polls = 0;
  FunctionPoller poller([&] { return ++polls < 1000; });  // busy for 1000 rounds, then idle
  loop.AddPoller(&poller);
  parker.on_park = [&] { loop.Stop(); };
  loop.Run();
  EXPECT_GE(polls, 1000);
  EXPECT_EQ(parker.parked, 1);
  loop.RemovePoller(&poller);
}

TEST(EventLoopParkTest, WorkThatArrivesAfterPrepareCancelsThePark) {
  ManualClock clock;
  CountingParker parker;
  EventLoop loop(clock, parker, kParkAtOnce);
  bool ran = false;
  parker.on_prepare = [&] {
    loop.Post([&] {
      ran = true;
      loop.Stop();
    });
  };
  loop.Run();
  EXPECT_TRUE(ran);
  EXPECT_EQ(parker.parked, 0);
  EXPECT_EQ(parker.cancelled, 1);
  EXPECT_GE(parker.woken, 1);
}

TEST(EventLoopParkTest, ParksUntilTheEarliestTimer) {
  ManualClock clock;
  CountingParker parker;
  EventLoop loop(clock, parker, kParkAtOnce);
  loop.CallAt(500, [&] { loop.Stop(); });
  loop.Cancel(loop.CallAt(100, [] {}));
  parker.on_park = [&] { clock.AdvanceTo(parker.last_deadline); };
  loop.Run();
  EXPECT_EQ(parker.parked, 1);
  EXPECT_EQ(parker.last_deadline, 500);
}

}  // namespace
}  // namespace furrow
