#include "cluster/safe_point_rounds.h"

#include "cluster/beat_schedule.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

Timestamp T(uint64_t ns) { return Timestamp(ns); }

TEST(SafePointRoundsTest, OldestActiveIsTheMinimumOverTheMembers) {
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Add(NodeId(2));
  rounds.Report(NodeId(1), T(100), T(0));
  EXPECT_EQ(rounds.global_oldest(), T(0));  // node 2 may be reading at anything
  rounds.Report(NodeId(2), T(50), T(0));
  EXPECT_EQ(rounds.global_oldest(), T(50));
}

TEST(SafePointRoundsTest, SafePointWaitsUntilEveryMemberKnowsTheOldest) {
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Add(NodeId(2));
  rounds.Report(NodeId(1), T(100), T(0));
  rounds.Report(NodeId(2), T(100), T(0));
  ASSERT_EQ(rounds.global_oldest(), T(100));
  EXPECT_EQ(rounds.safe_point(), T(0));
  rounds.Report(NodeId(1), T(150), T(100));
  EXPECT_EQ(rounds.safe_point(), T(0));
  rounds.Report(NodeId(2), T(120), T(100));
  EXPECT_EQ(rounds.safe_point(), T(100));
  EXPECT_EQ(rounds.global_oldest(), T(120));
}

TEST(SafePointRoundsTest, WithoutTheSecondRoundTheSafePointOvertakesWhoDoesNotKnow) {
#ifdef FURROW_MUTATIONS
  SetMutation(Mutation::kOneRoundSafePoint);
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Add(NodeId(2));
  rounds.Report(NodeId(1), T(100), T(0));
  rounds.Report(NodeId(2), T(100), T(0));
  SetMutation(Mutation::kNone);
  // Node 2, which knows of no global oldest timestamp, may still start a read at 50.
  EXPECT_EQ(rounds.safe_point(), T(100));
#else
  GTEST_SKIP() << "built without mutation switches";
#endif
}

TEST(SafePointRoundsTest, NeitherEverDecreases) {
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Report(NodeId(1), T(100), T(0));
  rounds.Report(NodeId(1), T(60), T(100));
  EXPECT_EQ(rounds.global_oldest(), T(100));
  EXPECT_EQ(rounds.safe_point(), T(100));
  rounds.Report(NodeId(1), T(60), T(20));
  EXPECT_EQ(rounds.safe_point(), T(100));
}

TEST(SafePointRoundsTest, MemberThatJoinsHoldsTheOldestBackUntilItReports) {
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Report(NodeId(1), T(100), T(0));
  rounds.Add(NodeId(2));
  rounds.Report(NodeId(1), T(900), T(100));
  EXPECT_EQ(rounds.global_oldest(), T(100));
  rounds.Report(NodeId(2), T(800), T(100));
  EXPECT_EQ(rounds.global_oldest(), T(800));
}

TEST(SafePointRoundsTest, MemberThatLeavesHoldsNothingBack) {
  SafePointRounds rounds;
  rounds.Add(NodeId(1));
  rounds.Add(NodeId(2));
  rounds.Report(NodeId(1), T(100), T(0));
  rounds.Remove(NodeId(2));
  EXPECT_EQ(rounds.global_oldest(), T(100));
  rounds.Report(NodeId(2), T(1), T(0));
  EXPECT_EQ(rounds.global_oldest(), T(100));
}

TEST(BeatScheduleTest, BacksOffWhenNothingHappensAndReturnsAtOnce) {
  BeatSchedule schedule({.fast_ns = 10, .slow_ns = 1000, .extra_fast = 2});
  EXPECT_EQ(schedule.Next(true), 10);
  EXPECT_EQ(schedule.Next(false), 10);
  EXPECT_EQ(schedule.Next(false), 10);
  EXPECT_EQ(schedule.Next(false), 20);
  EXPECT_EQ(schedule.Next(false), 40);
  for (int i = 0; i < 20; ++i) schedule.Next(false);
  EXPECT_EQ(schedule.Next(false), 1000);
  EXPECT_EQ(schedule.Next(true), 10);
}

}  // namespace
}  // namespace furrow::cluster
