// The steps of SOSP'15 section 5.2 up to the announcement, one at a time.
#include "cluster/reconfiguration.h"

#include "cluster/reconfiguration_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = Initiator::State;

TEST(InitiatorTest, ManagerRemovesAMemberStepByStep) {
  One cm(1, Members({1, 2, 3, kCompute}));
  cm->Suspect(NodeId(3), true, cm.now);
  EXPECT_THAT(cm.ProbeAll(), ElementsAre(2, kCompute));
  const Configuration next = cm.Win();
  EXPECT_EQ(next.id, ConfigId(8));
  EXPECT_EQ(next.manager, NodeId(1));
  EXPECT_THAT(MembersOf(next), ElementsAre(1, 2, kCompute));
  EXPECT_EQ(next.first_region, 1u) << "its range is its own";
  const auto announce = cm.Remap();
  EXPECT_EQ(announce.since, ConfigId(7));
  cm->OnAcknowledged(NodeId(1), next.id, cm.now);
  cm->OnAcknowledged(NodeId(2), next.id, cm.now);
  EXPECT_TRUE(cm.nothing()) << "the compute member has not acknowledged";
  cm->OnAcknowledged(NodeId(kCompute), ConfigId(7), cm.now);  // another configuration
  EXPECT_TRUE(cm.nothing());
  cm->OnAcknowledged(NodeId(kCompute), next.id, cm.now);
  EXPECT_EQ(cm.Next<Initiator::Commit>().config, next.id);
  EXPECT_EQ(cm.state(), State::kIdle);
}

TEST(InitiatorTest, ProbingFindsThoseWhoDiedTogether) {
  One cm(1, Members({1, 2, 3, 4, 5, kCompute}));
  cm->Suspect(NodeId(3), true, cm.now);
  const auto probe = cm.Next<Initiator::Probe>();
  cm->OnProbed(NodeId(2), probe.round, ConfigId(7), cm.now);
  cm->OnProbed(NodeId(kCompute), probe.round - 1, ConfigId(7), cm.now);  // of another round
  cm->OnProbeFailed(NodeId(5), probe.round, true, cm.now);
  cm->OnProbed(NodeId(4), probe.round, ConfigId(7), cm.now);
  EXPECT_TRUE(cm.nothing());
  cm->Tick(cm->NextDeadline() - 1);
  EXPECT_TRUE(cm.nothing());
  cm->Tick(cm->NextDeadline());  // the compute member does not answer
  EXPECT_THAT(MembersOf(cm.Win()), ElementsAre(1, 2, 4));
}

TEST(InitiatorTest, FewerThanHalfOfTheStorageMembersStop) {
  for (const bool answers : {false, true}) {
    One cm(1, Members({1, 2, 3, 4, 5, kCompute, kCompute + 1}));
    cm->Suspect(NodeId(2), false, cm.now);
    const auto probe = cm.Next<Initiator::Probe>();
    for (uint32_t id : {kCompute, kCompute + 1}) cm->OnProbed(NodeId(id), probe.round, ConfigId(7), cm.now);
    cm->OnProbed(NodeId(3), probe.round, ConfigId(7), cm.now);
    if (answers) cm->OnProbed(NodeId(4), probe.round, ConfigId(7), cm.now);
    cm->Tick(cm->NextDeadline());
    if (answers) {
      cm.Next<Initiator::Swap>();
      continue;
    }
    EXPECT_THAT(cm.Next<Initiator::Stop>().why, HasSubstr("reaches 2 of 5 storage members"));
    EXPECT_EQ(cm.state(), State::kStopped);
    cm->Suspect(NodeId(3), false, cm.now);
    EXPECT_FALSE(cm->OnNewConfiguration(Members({1, 2}, 2), cm.now));
    EXPECT_TRUE(cm.nothing());
  }
}

TEST(InitiatorTest, MemberThatIsSuspectedAfterItHasAnsweredDoesNotCount) {
  One cm(1, Members({1, 2, 3, 4, 5}));
  cm->Suspect(NodeId(5), false, cm.now);
  const auto probe = cm.Next<Initiator::Probe>();
  cm->OnProbed(NodeId(2), probe.round, ConfigId(7), cm.now);
  cm->OnProbed(NodeId(3), probe.round, ConfigId(7), cm.now);
  cm->Suspect(NodeId(2), false, cm.now);
  cm->Suspect(NodeId(4), false, cm.now);
  EXPECT_THAT(cm.Next<Initiator::Stop>().why, HasSubstr("reaches 2 of 5"));
}

TEST(InitiatorTest, OfTwoHalvesTheOneThatWinsTheSwapGoesOn) {
  const Configuration four = Members({1, 2, 3, 4});
  One cm(1, four);
  One other(3, four);
  cm->Suspect(NodeId(3), false, cm.now);
  other->Suspect(NodeId(1), false, other.now);
  other->Suspect(NodeId(2), false, other.now);
  other->Tick(other->NextDeadline());
  other.Next<Initiator::Ask>();
  for (One* one : {&cm, &other}) {
    const NodeId ally(one == &cm ? 2 : 4);
    const auto probe = one->Next<Initiator::Probe>();
    for (NodeId node : probe.nodes) {
      if (node == ally) (*one)->OnProbed(node, probe.round, ConfigId(7), one->now);
    }
    if (one == &cm) cm->Tick(cm->NextDeadline());  // node 4 does not answer it
  }
  const Configuration next = other.Win();
  EXPECT_THAT(MembersOf(next), ElementsAre(3, 4));
  EXPECT_EQ(next.first_region, 1 + kRegionRange) << "the other may have given out any id of its range";
  cm.Next<Initiator::Swap>();
  cm->OnSwapped(absl::AbortedError("version 8"), &next, cm.now);
  EXPECT_THAT(cm.Next<Initiator::Stop>().why, HasSubstr("was evicted by node 3 with configuration 8"));
}

TEST(InitiatorTest, FirstSuccessorReplacesTheManagerAtOnce) {
  One first(4, Members({2, 3, 4, 9}, 3));
  first->Suspect(NodeId(3), true, first.now);
  EXPECT_THAT(first.ProbeAll(), ElementsAre(2, 9));
  EXPECT_EQ(first.Win().manager, NodeId(4));
}

TEST(InitiatorTest, OthersAskTheBackupsFirstAndTryThemselvesAfterATime) {
  One two(2, Members({2, 3, 4, 9}, 3));
  two->Suspect(NodeId(3), true, two.now);
  const auto ask = two.Next<Initiator::Ask>();
  EXPECT_THAT(Values(ask.nodes), ElementsAre(4, 9)) << "the k that follow the manager";
  EXPECT_EQ(ask.suspect, NodeId(3));
  two->Suspect(NodeId(9), true, two.now);
  two->Tick(two->NextDeadline() - 1);
  EXPECT_TRUE(two.nothing());
  two->Tick(two->NextDeadline());
  EXPECT_THAT(two.ProbeAll(), ElementsAre(4));
}

TEST(InitiatorTest, WhoIsAskedBeginsAtOnceIfItIsTheSameManagerAndConfiguration) {
  One nine(9, Members({2, 3, 4, 9}, 3));
  nine->OnAsked(NodeId(3), ConfigId(6), nine.now);
  nine->OnAsked(NodeId(2), ConfigId(7), nine.now);
  EXPECT_TRUE(nine.nothing());
  nine->OnAsked(NodeId(3), ConfigId(7), nine.now);
  EXPECT_THAT(nine.ProbeAll(), ElementsAre(2, 4));
  One cm(3, Members({2, 3, 4, 9}, 3));
  cm->OnAsked(NodeId(3), ConfigId(7), cm.now);
  EXPECT_TRUE(cm.nothing());
}

TEST(InitiatorTest, OnlyTheManagersLossIsForAMemberToFind) {
  One two(2, Members({1, 2, 3}));
  two->Suspect(NodeId(3), true, two.now);
  EXPECT_TRUE(two.nothing());
  EXPECT_EQ(two.state(), State::kIdle);
}

TEST(InitiatorTest, ComputeMemberAsksAgainAndNeverBecomesManager) {
  One compute(kCompute, Members({1, 2, 3, 4, kCompute}));
  compute->Suspect(NodeId(1), true, compute.now);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Values(compute.Next<Initiator::Ask>().nodes), ElementsAre(2, 3));
    compute->Tick(compute->NextDeadline());
  }
  EXPECT_THAT(compute.Next<Initiator::Stop>().why, HasSubstr("no storage member has replaced it"));
  One asked(kCompute, Members({1, 2, kCompute}));
  asked->OnAsked(NodeId(1), ConfigId(7), asked.now);
  EXPECT_EQ(asked.state(), State::kAsking);
}

// --- the store ---

TEST(InitiatorTest, SwapOfUnknownResultIsRepeatedAsItWas) {
  One cm(1, Members({1, 2, 3, 4, 5}));
  cm->Suspect(NodeId(3), true, cm.now);
  cm.ProbeAll();
  const Configuration first = cm.Next<Initiator::Swap>().next;
  cm->OnSwapped(absl::UnknownError("no answer"), nullptr, cm.now);
  cm->Suspect(NodeId(4), true, cm.now);
  cm->Tick(cm->NextDeadline());
  const Configuration again = cm.Next<Initiator::Swap>().next;
  EXPECT_EQ(Encode(again), Encode(first)) << "the first may have been stored, or may yet be";
  // Once it may have happened, "not stored" does not say that it will not.
  cm->OnSwapped(absl::UnavailableError("not stored"), nullptr, cm.now);
  cm->Tick(cm->NextDeadline());
  EXPECT_EQ(Encode(cm.Next<Initiator::Swap>().next), Encode(first));
  cm->OnSwapped(absl::AbortedError("version 8"), &first, cm.now);
  EXPECT_EQ(cm.Next<Initiator::Remap>().next.id, ConfigId(8)) << "its own attempt had won";
  cm->OnRemapped(ConfigId(8), absl::OkStatus(), cm.now);
  EXPECT_THAT(cm.ProbeAll(), ElementsAre(2, 5)) << "node 4 goes with the next change";
  EXPECT_THAT(MembersOf(cm.Win()), ElementsAre(1, 2, 5));
}

TEST(InitiatorTest, SwapThatSurelyDidNotHappenIsMadeAnewWithAllSuspects) {
  One cm(1, Members({1, 2, 3, 4, 5}));
  cm->Suspect(NodeId(3), true, cm.now);
  cm.ProbeAll();
  cm.Next<Initiator::Swap>();
  cm->OnSwapped(absl::UnavailableError("the store is away"), nullptr, cm.now);
  cm->Suspect(NodeId(4), true, cm.now);
  cm->Tick(cm->NextDeadline());
  EXPECT_THAT(cm.ProbeAll(), ElementsAre(2, 5));
  EXPECT_THAT(MembersOf(cm.Win()), ElementsAre(1, 2, 5));
}

TEST(InitiatorTest, LoserFollowsTheWinner) {
  One loser(2, Members({1, 2, 3}));
  loser->Suspect(NodeId(1), true, loser.now);
  loser.ProbeAll();
  loser.Next<Initiator::Swap>();
  Configuration won = Members({2, 3}, 3);
  won.id = ConfigId(8);
  loser->OnSwapped(absl::AbortedError("version 8"), &won, loser.now);
  EXPECT_EQ(loser.state(), State::kFollowing);
  EXPECT_TRUE(loser.nothing());
  EXPECT_TRUE(loser->OnNewConfiguration(won, loser.now));
  EXPECT_EQ(loser.state(), State::kIdle);
  EXPECT_TRUE(loser->OnNewConfiguration(won, loser.now)) << "a repetition";
  EXPECT_FALSE(loser->OnNewConfiguration(Members({1, 2, 3}), loser.now)) << "an older one";
}

TEST(InitiatorTest, WinnerThatDiesBeforeItsAnnouncementIsReplacedFromWhatItHasStored) {
  for (const bool silent : {false, true}) {
    One loser(2, Members({1, 2, 3, 4}));
    loser->Suspect(NodeId(1), true, loser.now);
    loser.ProbeAll();
    loser.Next<Initiator::Swap>();
    Configuration won = Members({2, 3, 4}, 3);
    won.id = ConfigId(8);
    loser->OnSwapped(absl::AbortedError("version 8"), &won, loser.now);
    if (silent) {
      loser->Tick(loser->NextDeadline());
    } else {
      loser->Suspect(NodeId(3), true, loser.now);
    }
    EXPECT_THAT(Values(loser.Next<Initiator::Ask>().nodes), ElementsAre(4));
    loser->Tick(loser->NextDeadline());
    EXPECT_THAT(loser.ProbeAll(), ElementsAre(4));
    EXPECT_FALSE(loser->OnNewConfiguration(won, loser.now)) << "now the store decides";
    const Configuration next = loser.Win();
    EXPECT_EQ(next.id, ConfigId(9));
    EXPECT_THAT(MembersOf(next), ElementsAre(2, 4));
    EXPECT_EQ(loser.Remap().since, ConfigId(7)) << "members have not seen configuration 8";
    loser.AcknowledgeAll(next);
    EXPECT_TRUE(loser.nothing()) << "8 evicted somebody, whose lease, too, must be over";
    loser->Tick(loser.now + kLease);
    loser.Next<Initiator::Commit>();
  }
}

// --- collect and remap ---

TEST(InitiatorTest, NewManagerCollectsFromEveryMemberBeforeItRemaps) {
  One two(2, Members({1, 2, 3, kCompute}));
  two->Suspect(NodeId(1), true, two.now);
  two.ProbeAll();
  const Configuration next = two.Win();
  EXPECT_EQ(Encode(two.Next<Initiator::Collect>().next), Encode(next));
  for (uint32_t id : {2u, 3u}) two->OnCollected(NodeId(id), next.id, two.now);
  two->OnCollected(NodeId(kCompute), ConfigId(7), two.now);
  EXPECT_TRUE(two.nothing());
  two->OnCollected(NodeId(kCompute), next.id, two.now);
  EXPECT_TRUE(two.Next<Initiator::Remap>().collected);
}

TEST(InitiatorTest, MemberThatIsLostWhileANewManagerCollectsGoesToo) {
  for (const int when : {0, 1, 2}) {
    SCOPED_TRACE(when);
    One two(2, Members({1, 2, 3, 4, 5}));
    two->Suspect(NodeId(1), true, two.now);
    two.ProbeAll();
    if (when == 0) two->Suspect(NodeId(3), true, two.now);  // the swap is under way
    two.Win();
    two.Next<Initiator::Collect>();
    if (when == 1) {
      for (uint32_t id : {2u, 4u, 5u}) two->OnCollected(NodeId(id), ConfigId(8), two.now);
      two->Tick(two->NextDeadline());
    } else if (when == 2) {
      two->Suspect(NodeId(3), true, two.now);
    }
    EXPECT_THAT(two.ProbeAll(), ElementsAre(4, 5));
    EXPECT_THAT(MembersOf(two.Win()), ElementsAre(2, 4, 5));
    two.Next<Initiator::Collect>();
  }
}

TEST(InitiatorTest, RegionWithoutACopyStopsTheCluster) {
  One cm(1, Members({1, 2, 3}));
  cm->Suspect(NodeId(3), true, cm.now);
  cm.ProbeAll();
  cm.Win();
  cm.Next<Initiator::Remap>();
  cm->OnRemapped(ConfigId(7), absl::DataLossError("of another change"), cm.now);
  EXPECT_EQ(cm.state(), State::kRemapping);
  cm->OnRemapped(ConfigId(8), absl::DataLossError("region 5 has no complete copy left"), cm.now);
  EXPECT_THAT(cm.Next<Initiator::Stop>().why, HasSubstr("region 5"));
}

}  // namespace
}  // namespace furrow::cluster
