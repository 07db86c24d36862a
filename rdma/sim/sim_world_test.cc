#include "rdma/sim/sim_world.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/task.h"

namespace furrow::rdma {
namespace {

// A process with one loop.
struct Host {
  Host(SimWorld& world, uint32_t node)
      : process(world.StartProcess(NodeId(node))),
        parker(process.NewParker()),
        loop(process.clock(), parker) {
    process.Attach(loop, parker);
  }
  SimProcess& process;
  SimParker& parker;
  EventLoop loop;
};

Task<void> Count(EventLoop& loop, int rounds, int& done) {
  for (int i = 0; i < rounds; ++i) {
    co_await loop.SleepFor(10 * kMicrosecond);
    co_await loop.Yield();
  }
  ++done;
}

uint64_t DigestOfARun(uint64_t seed) {
  SimWorld world(seed);
  Host a(world, 1), b(world, 2), c(world, 3);
  int done = 0;
  for (Host* host : {&a, &b, &c}) host->loop.Spawn(Count(host->loop, 50, done));
  EXPECT_TRUE(world.RunUntil([&] { return done == 3; }).ok());
  return world.digest();
}

TEST(SimWorld, SameSeedGivesTheSameDigestAndAnotherSeedAnother) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(DigestOfARun(seed), DigestOfARun(seed)) << "seed " << seed;
    EXPECT_NE(DigestOfARun(seed), DigestOfARun(seed + 1)) << "seed " << seed;
  }
}

TEST(SimWorld, TimersFireWhenTheNodesOwnClockSaysSo) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimWorld world(seed);
    Host host(world, 1);
    Nanos due = host.process.clock().Now() + 300 * kMillisecond;
    Nanos fired = 0;
    host.loop.CallAt(due, [&] { fired = host.process.clock().Now(); });
    ASSERT_TRUE(world.RunUntil([&] { return fired != 0; }).ok());
    EXPECT_GE(fired, due) << "seed " << seed;
    EXPECT_LT(fired, due + kMillisecond) << "seed " << seed;
  }
}

TEST(SimWorld, ClocksStayWithinTheirDriftBoundAndNeverGoBack) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimWorldOptions options;
    options.clocks.max_drift_ppb = 1'000'000;
    SimWorld world(seed, options);
    SimProcess& process = world.StartProcess(NodeId(1));
    Nanos last_true = world.now();
    Nanos last_local = process.clock().Now();
    EXPECT_LE(std::abs(last_local - last_true), options.clocks.max_offset);
    bool drifted = false;
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(world.RunFor(kMillisecond).ok());
      Nanos passed = world.now() - last_true;
      Nanos local = process.clock().Now();
      Nanos error = (local - last_local) - passed;
      ASSERT_LE(std::abs(error), passed / 1000 + 1) << "seed " << seed;
      drifted |= error != 0;
      ASSERT_GE(local, last_local);
      last_true = world.now();
      last_local = local;
    }
    EXPECT_TRUE(drifted);
  }
}

TEST(SimWorld, CodeThatWaitsForTheClockInAPlainLoopEnds) {
  SimWorld world(1);
  Host host(world, 1);
  bool done = false;
  host.loop.CallAt(0, [&] {
    Nanos end = host.loop.Now() + kMillisecond;
    while (host.loop.Now() < end) {
    }
    done = true;
  });
  Nanos before = world.now();
  ASSERT_TRUE(world.RunUntil([&] { return done; }).ok());
  EXPECT_GE(world.now() - before, kMillisecond * 99 / 100);
}

TEST(SimWorld, NoTwoReadingsOfTrueTimeDuringStepsAreEqual) {
  SimWorld world(1);
  Host a(world, 1), b(world, 2);
  std::vector<Nanos> readings;
  for (Host* host : {&a, &b}) {
    for (int i = 0; i < 100; ++i) {
      host->loop.CallAt(0, [&] { readings.push_back(world.true_clock().Now()); });
    }
  }
  ASSERT_TRUE(world.RunUntil([&] { return readings.size() == 200; }).ok());
  for (size_t i = 1; i < readings.size(); ++i) EXPECT_LT(readings[i - 1], readings[i]);
}

Task<void> YieldForever(EventLoop& loop) {
  for (;;) co_await loop.Yield();
}

TEST(SimWorld, ALivelockIsAFailureThatNamesSeedAndTime) {
  SimWorldOptions options;
  options.max_steps = 10'000;
  SimWorld world(77, options);
  Host host(world, 1);
  host.loop.Spawn(YieldForever(host.loop));
  absl::Status status = world.RunUntil([] { return false; });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("seed 77 at virtual time 1.0"), std::string::npos) << status;
}

TEST(SimWorld, CodeThatYieldsInACircleMovesTimeOn) {
  SimWorld world(1);
  Host host(world, 1);
  host.loop.Spawn(YieldForever(host.loop));
  EXPECT_TRUE(world.RunFor(10 * kMillisecond).ok());
}

TEST(SimWorld, APausedProcessDoesNothingUntilItIsResumedAndADeadOneNothingAtAll) {
  SimWorld world(5);
  Host paused(world, 1), dead(world, 2);
  int paused_runs = 0, dead_runs = 0;
  world.Pause(paused.process);
  paused.loop.Post([&] { ++paused_runs; });
  world.Kill(dead.process);
  dead.loop.Post([&] { ++dead_runs; });
  ASSERT_TRUE(world.RunFor(10 * kMillisecond).ok());
  EXPECT_EQ(paused_runs, 0);
  world.Resume(paused.process);
  ASSERT_TRUE(world.RunFor(10 * kMillisecond).ok());
  EXPECT_EQ(paused_runs, 1);
  EXPECT_EQ(dead_runs, 0);
}

TEST(SimWorld, StepsOfDifferentLoopsInterleaveDifferentlyUnderDifferentSeeds) {
  std::vector<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimWorld world(seed);
    Host a(world, 1), b(world, 2), c(world, 3);
    std::vector<int> order;
    int id = 0;
    for (Host* host : {&a, &b, &c}) {
      host->loop.Post([&order, i = id++] { order.push_back(i); });
    }
    ASSERT_TRUE(world.RunUntil([&] { return order.size() == 3; }).ok());
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  EXPECT_GE(orders.size(), 3u);
}

}  // namespace
}  // namespace furrow::rdma
