#include "cluster/clock_failover.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/manual_clock.h"
#include "base/random.h"
#include "base/thread.h"
#include "cluster/cluster_clock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

Timestamp UpperOf(const ClusterClock& clock) {
  ClockInterval now;
  EXPECT_TRUE(clock.Now(&now));
  return now.upper;
}
Timestamp LowerOf(const ClusterClock& clock) {
  ClockInterval now;
  EXPECT_TRUE(clock.Now(&now));
  return now.lower;
}

TEST(ClockFailoverTest, AdvancesToTheGreatestReportWhenAllHaveReported) {
  const std::vector<NodeId> members = {NodeId(2), NodeId(3), NodeId(4)};
  ClockFailover failover;
  failover.Begin(ConfigId(8), members);
  failover.Reported(NodeId(2), ConfigId(8), Timestamp(70));
  failover.Reported(NodeId(3), ConfigId(8), Timestamp(90));
  failover.Reported(NodeId(4), ConfigId(7), Timestamp(80));
  EXPECT_EQ(failover.Committed(ConfigId(8)), std::nullopt) << "node 4 has reported for another configuration";
  failover.Reported(NodeId(4), ConfigId(8), Timestamp(80));
  EXPECT_EQ(failover.Committed(ConfigId(7)), std::nullopt);
  EXPECT_EQ(failover.Committed(ConfigId(8)), Timestamp(90));
}

TEST(ClockFailoverTest, ClockGoesOnWhenAllHaveAdvanced) {
  const std::vector<NodeId> members = {NodeId(2), NodeId(3)};
  ClockFailover failover;
  failover.Begin(ConfigId(8), members);
  for (NodeId node : members) failover.Reported(node, ConfigId(8), Timestamp(5));
  EXPECT_FALSE(failover.Advanced(NodeId(2), ConfigId(8))) << "not yet told";
  failover.Committed(ConfigId(8));
  EXPECT_FALSE(failover.Advanced(NodeId(2), ConfigId(8)));
  EXPECT_FALSE(failover.Advanced(NodeId(2), ConfigId(8))) << "the same again";
  EXPECT_FALSE(failover.Advanced(NodeId(3), ConfigId(7)));
  EXPECT_TRUE(failover.Advanced(NodeId(3), ConfigId(8)));
  EXPECT_FALSE(failover.Advanced(NodeId(3), ConfigId(8)));
}

TEST(ClockFailoverTest, WhatWasReportedForAChangeThatWasNotCommittedStillCounts) {
  std::vector<NodeId> members = {NodeId(2), NodeId(3), NodeId(4)};
  ClockFailover failover;
  failover.Begin(ConfigId(8), members);
  failover.Reported(NodeId(4), ConfigId(8), Timestamp(99));
  members.pop_back();
  failover.Begin(ConfigId(9), members);
  for (NodeId node : members) failover.Reported(node, ConfigId(9), Timestamp(5));
  EXPECT_EQ(failover.Committed(ConfigId(9)), Timestamp(99));
}

// --- the clock ---

TEST(ClockFailoverTest, DisabledClockSaysNothingAndItsReportIsAboveAllThatItSaid) {
  ManualClock local(5000);
  ClusterClock clock(local, {.uncertainty_ns = 300});
  clock.StartMaster(Timestamp(1'000'000));
  local.Advance(77);
  const Timestamp said = UpperOf(clock);
  const Timestamp report = clock.Disable();
  EXPECT_GE(report, said);
  ClockInterval now;
  EXPECT_FALSE(clock.Now(&now));
  local.Advance(1'000'000);
  EXPECT_EQ(clock.Disable(), report) << "a repetition";
  EXPECT_EQ(clock.FastForward(Timestamp(5)), report) << "it only grows";
  const Timestamp ahead = report.Plus(12345);
  EXPECT_EQ(clock.FastForward(ahead), ahead);
  clock.RestartMaster();
  EXPECT_GT(LowerOf(clock), ahead);
}

TEST(ClockFailoverTest, OldSamplesAreForgottenAndNewOnesTakenWhenTheClockGoesOn) {
  ManualClock local(1'000'000);
  ClusterClock clock(local, {});
  clock.StartSampled();
  ASSERT_TRUE(clock.AddSample(999'000, Timestamp(50'000'000), 1'000'000).ok());
  const Timestamp report = clock.Disable();
  EXPECT_FALSE(clock.sampled());
  local.Advance(1000);
  ASSERT_TRUE(clock.AddSample(1'000'500, Timestamp(50'001'000), 1'001'000).ok()) << "the old manager's";
  ClockInterval now;
  EXPECT_FALSE(clock.Now(&now));
  clock.FastForward(report.Plus(1'000'000'000));
  clock.RestartSampled();
  EXPECT_FALSE(clock.Now(&now)) << "not before the first sample";
  local.Advance(1000);
  // Far from the old line: it contradicts nothing.
  const Timestamp master = report.Plus(1'000'000'500);
  ASSERT_TRUE(clock.AddSample(1'001'500, master, 1'002'000).ok());
  EXPECT_GE(LowerOf(clock), report);
  EXPECT_GE(UpperOf(clock), master);
}

TEST(ClockFailoverTest, ManagerWhoseTimeIsBehindIsNotBelieved) {
  ManualClock local(1'000'000);
  ClusterClock clock(local, {});
  clock.StartMaster(Timestamp(9'000'000));
  clock.Disable();
  clock.RestartSampled();
  EXPECT_TRUE(absl::IsFailedPrecondition(clock.AddSample(999'000, Timestamp(8'000'000), 1'000'000)));
  ClockInterval now;
  EXPECT_FALSE(clock.Now(&now));
}

TEST(ClockFailoverTest, MemberThatSharesTheNewManagersClockHasItsTime) {
  ManualClock local(1'000'000);
  ClusterClock manager(local, {});
  ClusterClock member(local, {});
  manager.StartShared(7'000'000);
  member.StartShared(7'000'000);
  const Timestamp ahead = std::max(manager.Disable(), member.Disable()).Plus(50);
  for (ClusterClock* c : {&manager, &member}) c->FastForward(ahead);
  manager.RestartMaster();
  member.RestartShared(manager.origin());
  local.Advance(10);
  EXPECT_EQ(LowerOf(manager), LowerOf(member));
  EXPECT_GT(LowerOf(member), ahead);
}

// Managers die one after the other, at any point; members' clocks drift and are sampled. No member ever sees
// cluster time go back: what is said after a fail-over is above all that anybody in it has said before.
TEST(ClockFailoverTest, TimeNeverGoesBackHoweverManyManagersDie) {
  class Drifting final : public Clock {
   public:
    Nanos Now() const override { return base + static_cast<Nanos>(static_cast<double>(*truth) * rate); }
    const Nanos* truth;
    Nanos base = 0;
    double rate = 1;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Nanos truth = kSecond;
    std::vector<std::unique_ptr<Drifting>> locals;
    std::vector<std::unique_ptr<ClusterClock>> clocks;
    for (int i = 0; i < 6; ++i) {
      locals.push_back(std::make_unique<Drifting>());
      locals[i]->truth = &truth;
      locals[i]->base = random.Between(1, kSecond);
      locals[i]->rate = 1 + static_cast<double>(random.Between(-450, 450)) / 1e6;
      clocks.push_back(std::make_unique<ClusterClock>(*locals[i], ClusterClock::Options()));
    }
    clocks[0]->StartMaster(Timestamp(1'000'000'000));
    for (int i = 1; i < 6; ++i) clocks[i]->StartSampled();
    Timestamp above;    // said before the last fail-over that has ended
    Timestamp highest;  // said at all
    uint64_t config = 1;
    for (size_t manager = 0; manager < 6; ++manager) {
      for (int i = 0; i < 50; ++i) {
        truth += random.Between(1, 200'000);
        const size_t m = manager + random.Below(6 - manager);
        if (m != manager) {
          const Nanos sent = locals[m]->Now();
          truth += random.Between(1, 50'000);
          const Timestamp sample = clocks[manager]->MasterNow();
          truth += random.Between(1, 50'000);
          ASSERT_TRUE(clocks[m]->AddSample(sent, sample, locals[m]->Now()).ok());
        }
        ClockInterval now;
        if (!clocks[m]->Now(&now)) continue;
        // Uncertainty lets a lower bound be a little behind; the upper bound is what timestamps are.
        ASSERT_GT(now.upper, above);
        highest = std::max(highest, now.upper);
      }
      // The manager dies, and perhaps its successor before its clock goes on.
      ClockFailover failover;
      for (bool again = true; again && manager + 1 < 6;) {
        ++config;
        const size_t next = manager + 1;
        std::vector<NodeId> members;
        for (size_t m = next; m < 6; ++m) members.push_back(NodeId(static_cast<uint32_t>(m)));
        failover = ClockFailover();
        failover.Begin(ConfigId(config), members);
        for (size_t m = next; m < 6; ++m) {
          failover.Reported(members[m - next], ConfigId(config), clocks[m]->Disable());
          truth += random.Between(1, 100'000);
        }
        const std::optional<Timestamp> to = failover.Committed(ConfigId(config));
        ASSERT_TRUE(to.has_value());
        const size_t told = next + random.Below(6 - next + 1);
        bool goes_on = false;
        for (size_t m = next; m < 6 && m < told; ++m) {
          clocks[m]->FastForward(*to);
          goes_on = failover.Advanced(members[m - next], ConfigId(config));
        }
        if (goes_on) {
          clocks[next]->RestartMaster();
          for (size_t m = next + 1; m < 6; ++m) clocks[m]->RestartSampled();
          above = highest;
          again = false;
        } else {
          ++manager;
        }
      }
    }
  }
}

// A reader that runs beside Disable() gets nothing, or something that the report covers.
TEST(ClockFailoverTest, ReportCoversWhatOtherThreadsAreJustReading) {
  constexpr uint64_t kGap = 1'000'000'000;
  ClusterClock clock(MonotonicClock(), {});
  clock.StartMaster(Timestamp(kGap));
  std::atomic<bool> stop{false};
  std::vector<uint64_t> said;
  Thread reader({.name = "reader"}, [&] {
    while (!stop.load()) {
      ClockInterval now;
      if (clock.Now(&now) && said.size() < 4'000'000) said.push_back(now.upper.value());
    }
  });
  std::vector<uint64_t> reports;
  for (int i = 0; i < 5000; ++i) {
    reports.push_back(clock.Disable().value());
    clock.FastForward(Timestamp(reports.back() + kGap));
    clock.RestartMaster();
    for (int spin = 0; spin < 50; ++spin) clock.fast_forward();
  }
  stop = true;
  reader.Join();
  // Between a report and where time went on nothing was ever said.
  size_t next = 0;
  for (uint64_t time : said) {
    while (next < reports.size() && time > reports[next] + kGap) ++next;
    if (next < reports.size()) ASSERT_LE(time, reports[next]);
  }
}

}  // namespace
}  // namespace furrow::cluster
