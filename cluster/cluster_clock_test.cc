#include "cluster/cluster_clock.h"

#include "base/random.h"
#include "base/thread.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

class FakeClock final : public Clock {
 public:
  Nanos Now() const override { return now; }
  Nanos now = 1'000'000;
};

TEST(ClusterClockTest, IsDisabledBeforeTheFirstSample) {
  FakeClock local;
  ClusterClock clock(local, {});
  ClockInterval interval;
  EXPECT_FALSE(clock.Now(&interval));
  clock.StartSampled();
  EXPECT_FALSE(clock.Now(&interval));
  ASSERT_TRUE(clock.AddSample(local.now, Timestamp(5'000'000), local.now + 10).ok());
  local.now += 10;
  EXPECT_TRUE(clock.Now(&interval));
}

TEST(ClusterClockTest, MasterStartsAboveWhatWasFound) {
  FakeClock local;
  ClusterClock clock(local, {.offset_ns = -77, .uncertainty_ns = 500, .drift_ppm = 1000});
  clock.StartMaster(Timestamp(10'000));
  ClockInterval interval;
  ASSERT_TRUE(clock.Now(&interval));
  EXPECT_GE(interval.lower, Timestamp(10'000));
}

TEST(ClusterClockTest, SharedClocksOfTwoProcessesAreOnePoint) {
  FakeClock local;
  ClusterClock master(local, {});
  ClusterClock member(local, {});
  master.StartMaster(Timestamp(1'000));
  member.StartShared(master.origin());
  local.now += 12'345;
  ClockInterval a;
  ClockInterval b;
  ASSERT_TRUE(master.Now(&a));
  ASSERT_TRUE(member.Now(&b));
  EXPECT_EQ(a.lower, a.upper);
  EXPECT_EQ(a.lower, b.lower);
  EXPECT_EQ(b.lower, b.upper);
}

TEST(ClusterClockTest, UncertaintyKnobWidensBothSides) {
  FakeClock local;
  ClusterClock clock(local, {.offset_ns = 0, .uncertainty_ns = 2'000, .drift_ppm = 1000});
  clock.StartMaster(Timestamp(1'000'000));
  ClockInterval interval;
  ASSERT_TRUE(clock.Now(&interval));
  EXPECT_EQ(interval.upper.value() - interval.lower.value(), 4'000u);
  EXPECT_LE(interval.lower, clock.MasterNow());
  EXPECT_GE(interval.upper, clock.MasterNow());
}

TEST(ClusterClockTest, SampleContradictingTheDriftBoundDisablesTheClock) {
  FakeClock local;
  ClusterClock clock(local, {});
  clock.StartSampled();
  ASSERT_TRUE(clock.AddSample(1'000'000, Timestamp(1'000'000), 1'000'010).ok());
  local.now = 2'000'000;
  absl::Status status = clock.AddSample(2'000'000, Timestamp(9'000'000), 2'000'010);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  ClockInterval interval;
  EXPECT_FALSE(clock.Now(&interval));
}

// The master's time is true time; the member's clock drifts against it, and messages take random times.
TEST(ClusterClockTest, TrueTimeLiesInTheIntervalAndLowerNeverDecreases) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    FakeClock local;
    ClusterClock clock(local, {});
    clock.StartSampled();
    const double drift = 1 + static_cast<double>(random.Between(-900, 900)) / 1e6;
    const int64_t base = random.Between(1, 1'000'000'000);
    double truth = 1e9;
    auto advance = [&](int64_t ns) {
      truth += static_cast<double>(ns);
      local.now = base + static_cast<Nanos>((truth - 1e9) * drift);
    };
    uint64_t lower = 0;
    for (int i = 0; i < 300; ++i) {
      const Nanos send = local.now;
      advance(random.Between(100, 300'000));
      const Timestamp master(static_cast<uint64_t>(truth));
      advance(random.Between(100, 300'000));
      ASSERT_TRUE(clock.AddSample(send, master, local.now).ok());
      for (int j = 0; j < 5; ++j) {
        ClockInterval interval;
        ASSERT_TRUE(clock.Now(&interval));
        EXPECT_LE(interval.lower.value(), static_cast<uint64_t>(truth) + 2);
        EXPECT_GE(interval.upper.value() + 2, static_cast<uint64_t>(truth));
        EXPECT_GE(interval.lower.value(), lower);
        lower = interval.lower.value();
        advance(random.Between(1, 4'000'000));
      }
    }
  }
}

TEST(ClusterClockTest, BestSamplesNarrowTheInterval) {
  FakeClock local;
  ClusterClock clock(local, {});
  clock.StartSampled();
  ASSERT_TRUE(clock.AddSample(1'000'000, Timestamp(1'050'000), 1'100'000).ok());
  local.now = 1'200'000;
  const Nanos wide = clock.Uncertainty();
  ASSERT_TRUE(clock.AddSample(1'199'000, Timestamp(1'199'500), 1'200'000).ok());
  EXPECT_LT(clock.Uncertainty(), wide);
  EXPECT_LE(clock.Uncertainty(), 1'010);
}

// A reader never mixes the words of two samples: it would see lower above upper, or time run backwards.
TEST(ClusterClockTest, ReadersAndWriterDoNotTear) {
  ClusterClock clock(MonotonicClock(), {});
  clock.StartSampled();
  auto sample = [&](Nanos delay) {
    Nanos now = clock.LocalNow();
    return clock.AddSample(now - delay, Timestamp(static_cast<uint64_t>(now - delay / 2) + 1'000'000'000),
                           now);
  };
  ASSERT_TRUE(sample(100'000).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  Thread reader({.name = "reader", .realtime_priority = 0, .cpu = {}}, [&] {
    uint64_t last = 0;
    while (!stop.load()) {
      ClockInterval interval;
      if (!clock.Now(&interval) || interval.lower > interval.upper || interval.lower.value() < last) ++wrong;
      last = interval.lower.value();
    }
  });
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(sample(100'000 - i % 1000 * 50).ok());
  stop = true;
  reader.Join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace furrow::cluster
