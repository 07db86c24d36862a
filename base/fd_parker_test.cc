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

class SteppedParker : public FdParker {
 public:
  using FdParker::ClaimWake;
  using FdParker::RingOwner;
  bool Arm() override { return can_arm; }
  bool can_arm = true;
};

// The waker is held up between its two steps, and the owner looks around and is awake meanwhile.
TEST_F(FdParkerTest, LateWakeEndsOneParkAndNotAllThatFollow) {
  SteppedParker parker;
  ASSERT_TRUE(parker.Open(events_).ok());
  parker.PrepareToPark();
  ASSERT_TRUE(parker.ClaimWake());
  parker.CancelPark();
  parker.RingOwner();
  parker.PrepareToPark();
  parker.Park(kNever);
  const Nanos deadline = MonotonicClock().Now() + 2 * kMillisecond;
  parker.PrepareToPark();
  parker.Park(deadline);
  EXPECT_GE(MonotonicClock().Now(), deadline);
}

// Each of these would hang, or spin.
TEST_F(FdParkerTest, OwnerWhoseDescriptorCannotBeArmedSleepsShortly) {
  SteppedParker parker;
  ASSERT_TRUE(parker.Open(events_).ok());
  parker.can_arm = false;
  parker.PrepareToPark();
  parker.Park(kNever);
}

TEST_F(FdParkerTest, BrokenDescriptorEndsOneParkAndThenSleepsAreShort) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  close(pipe_ends[1]);  // POLLHUP without POLLIN
  FdParker parker;
  ASSERT_TRUE(parker.Open(pipe_ends[0]).ok());
  parker.PrepareToPark();
  parker.Park(kNever);
  for (int i = 0; i < 3; ++i) {
    const Nanos before = MonotonicClock().Now();
    parker.PrepareToPark();
    parker.Park(kNever);
    EXPECT_GE(MonotonicClock().Now() - before, kMillisecond);
  }
  close(pipe_ends[0]);
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
