#include "base/fd_parker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/thread.h"
#include "gtest/gtest.h"

namespace furrow {
namespace {

class FdParkerTest : public testing::Test {
 protected:
  FdParkerTest() : events_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    EXPECT_TRUE(parker_.Open(events_).ok());
  }
  ~FdParkerTest() override { close(events_); }
  void Happen() {
    const uint64_t one = 1;
    EXPECT_EQ(write(events_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void Take() {
    uint64_t ignored;
    EXPECT_EQ(read(events_, &ignored, sizeof(ignored)), static_cast<ssize_t>(sizeof(ignored)));
  }
  const int events_;
  FdParker parker_;
};

// Each of these would hang if a wake-up were lost.
TEST_F(FdParkerTest, WakeBetweenPrepareAndParkIsNotLost) {
  parker_.PrepareToPark();
  parker_.Wake();
  parker_.Park(kNever);
}

TEST_F(FdParkerTest, WatchedDescriptorEndsPark) {
  parker_.PrepareToPark();
  Happen();
  parker_.Park(kNever);
  Take();
}

TEST_F(FdParkerTest, DeadlineEndsPark) {
  parker_.PrepareToPark();
  parker_.Park(0);
  const Nanos deadline = MonotonicClock().Now() + 2 * kMillisecond;
  parker_.PrepareToPark();
  parker_.Park(deadline);
  EXPECT_GE(MonotonicClock().Now(), deadline);
}

TEST_F(FdParkerTest, WakeOfOwnerThatIsAwakeOrCancelledIsForgotten) {
  parker_.Wake();
  parker_.PrepareToPark();
  parker_.Wake();
  parker_.CancelPark();
  const Nanos deadline = MonotonicClock().Now() + 2 * kMillisecond;
  parker_.PrepareToPark();
  parker_.Park(deadline);
  EXPECT_GE(MonotonicClock().Now(), deadline);
}

TEST_F(FdParkerTest, ThreadsWakeEachOtherOverAndOver) {
  constexpr int kRounds = 20'000;
  FdParker other;
  ASSERT_TRUE(other.Open(events_).ok());
  std::atomic<int> turn{0};
  const auto play = [&turn](FdParker& mine, FdParker& theirs, int parity) {
    for (int round = parity; round < kRounds; round += 2) {
      while (turn.load() < round) {
        mine.PrepareToPark();
        if (turn.load() < round) {
          mine.Park(kNever);
        } else {
          mine.CancelPark();
        }
      }
      turn.store(round + 1);
      theirs.Wake();
    }
  };
  Thread thread({.name = "other"}, [&] { play(other, parker_, 1); });
  play(parker_, other, 0);
  thread.Join();
  EXPECT_EQ(turn.load(), kRounds);
}

}  // namespace
}  // namespace furrow
