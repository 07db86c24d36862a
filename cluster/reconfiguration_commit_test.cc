// Steps 5 to 7 of SOSP'15 section 5.2: acknowledgements, leases, the commit and what may come between.
#include "cluster/reconfiguration_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InitiatorTest, CommitWaitsForTheEndOfTheEvictedMembersLease) {
  One cm(1, Members({1, 2, 3, 4}));
  cm->Suspect(NodeId(3), false, cm.now);
  const auto probe = cm.Next<Initiator::Probe>();
  cm->OnProbed(NodeId(2), probe.round, ConfigId(7), cm.now);
  cm->OnProbeFailed(NodeId(4), probe.round, true, cm.now);  // gone: it has no lease, whatever was granted
  const Configuration next = cm.Win();
  cm.Remap();
  cm.lease_ends = {{3, cm.now + 77}, {4, cm.now + 1000}};
  cm.AcknowledgeAll(next);
  EXPECT_TRUE(cm.nothing());
  EXPECT_EQ(cm->NextDeadline(), cm.now + 77);
  cm->Tick(cm.now + 76);
  EXPECT_TRUE(cm.nothing());
  cm->Tick(cm.now + 77);
  cm.Next<Initiator::Commit>();
}

// The old one may live, and its grants, and those that it passed on, end a lease after the last member has
// turned to the new manager.
TEST(InitiatorTest, NewManagerWaitsALeaseFromTheLastAcknowledgement) {
  One two(2, Members({1, 2, 3}));
  two->Suspect(NodeId(1), false, two.now);
  const Configuration next = two.Announce();
  two->OnAcknowledged(NodeId(2), next.id, two.now);
  two->OnAcknowledged(NodeId(3), next.id, two.now + 500);
  EXPECT_TRUE(two.nothing());
  two->Tick(two.now + 500 + kLease - 1);
  EXPECT_TRUE(two.nothing());
  two->Tick(two.now + 500 + kLease);
  two.Next<Initiator::Commit>();
}

TEST(InitiatorTest, ManagerKnowsTheLeasesAgainOnceItHasCommitted) {
  One two(2, Members({1, 2, 3, 4, 5}));
  two->Suspect(NodeId(1), false, two.now);
  two.AcknowledgeAll(two.Announce());
  two->Tick(two.now + kLease);
  two.Next<Initiator::Commit>();
  two->Suspect(NodeId(3), false, two.now);
  two.ProbeAll();
  two.Win();
  EXPECT_FALSE(two.Next<Initiator::Remap>().collected);
  two->OnRemapped(ConfigId(9), absl::OkStatus(), two.now);
  two.lease_ends = {{1, two.now + 100}, {3, two.now}};
  two.AcknowledgeAll(two.Next<Initiator::Announce>().next);
  two.Next<Initiator::Commit>();
}

TEST(InitiatorTest, NewManagerDoesNotWaitIfTheOldOneIsKnownToBeDead) {
  One two(2, Members({1, 2, 3}));
  two->Suspect(NodeId(1), true, two.now);
  two.AcknowledgeAll(two.Announce());
  two.Next<Initiator::Commit>();
}

// Its predecessor evicted somebody and died before it had committed that.
TEST(InitiatorTest, NewManagerWaitsForWhomAConfigurationEvictedThatItHasNotSeenCommitted) {
  for (const bool committed : {false, true}) {
    One two(2, Members({1, 2, 3, 4, 5}));
    Configuration without_five = Members({1, 2, 3, 4});
    without_five.id = ConfigId(8);
    ASSERT_TRUE(two->OnNewConfiguration(without_five, two.now));
    if (committed) two->OnCommitted(ConfigId(8));
    two->Suspect(NodeId(1), true, two.now);
    two.ProbeAll(ConfigId(8));
    two.Win();
    const auto announce = two.Remap();
    EXPECT_EQ(announce.since, ConfigId(8));
    two.AcknowledgeAll(announce.next);
    EXPECT_EQ(two.nothing(), !committed);
  }
}

TEST(InitiatorTest, MemberThatIsLostBeforeTheCommitStartsTheNextChange) {
  for (const bool silent : {false, true}) {
    SCOPED_TRACE(silent);
    One cm(1, Members({1, 2, 3, 4, 5}));
    cm->Suspect(NodeId(5), false, cm.now);
    cm.lease_ends = {{5, cm.now + 5 * kSecond}};
    const Configuration first = cm.Announce();
    for (uint32_t id : {1u, 2u, 3u}) cm->OnAcknowledged(NodeId(id), first.id, cm.now);
    if (silent) {
      cm->Tick(cm->NextDeadline());  // its lease goes on, and it does not acknowledge
    } else {
      cm->Suspect(NodeId(4), true, cm.now);
    }
    EXPECT_THAT(cm.ProbeAll(), ElementsAre(2, 3));
    const Configuration second = cm.Win();
    EXPECT_EQ(second.id, ConfigId(9));
    EXPECT_THAT(MembersOf(second), ElementsAre(1, 2, 3));
    EXPECT_EQ(cm.Remap().since, ConfigId(7)) << "not all have the mappings of the first change";
    cm->OnAcknowledged(NodeId(4), first.id, cm.now);
    cm.AcknowledgeAll(second);
    EXPECT_TRUE(cm.nothing()) << "node 5 was evicted by the first change, which was not committed";
    cm->Tick(cm.now + 5 * kSecond);
    EXPECT_EQ(cm.Next<Initiator::Commit>().config, second.id);
  }
}

TEST(InitiatorTest, AnnouncementOfANewerConfigurationEndsWhatIsUnderWay) {
  One two(2, Members({1, 2, 3}));
  two->Suspect(NodeId(1), true, two.now);
  Configuration next = Members({2, 3}, 3);
  next.id = ConfigId(8);
  const auto probe = two.Next<Initiator::Probe>();
  EXPECT_TRUE(two->OnNewConfiguration(next, two.now));
  two->OnProbed(NodeId(3), probe.round, ConfigId(7), two.now);
  EXPECT_TRUE(two.nothing());
  EXPECT_EQ(two->configuration().id, ConfigId(8));
  Configuration without = Members({3}, 3);
  without.id = ConfigId(9);
  EXPECT_FALSE(two->OnNewConfiguration(without, two.now));
  EXPECT_THAT(two.Next<Initiator::Stop>().why, HasSubstr("node 2 was evicted by node 3"));
}

TEST(InitiatorTest, RecoveryHasEndedWhenEachMemberHasSaidSo) {
  One cm(1, Members({1, 2, 3}));
  cm->Suspect(NodeId(3), true, cm.now);
  const Configuration next = cm.Announce();
  cm->OnRecovered(NodeId(1), next.id);
  cm.AcknowledgeAll(next);
  cm.Next<Initiator::Commit>();
  cm->OnRecovered(NodeId(1), ConfigId(7));
  cm->OnRecovered(NodeId(2), next.id);
  EXPECT_TRUE(cm.nothing());
  cm->OnRecovered(NodeId(1), next.id);
  EXPECT_EQ(cm.Next<Initiator::Recovered>().config, next.id);
  cm->OnRecovered(NodeId(1), next.id);
  EXPECT_TRUE(cm.nothing()) << "once";
}

}  // namespace
}  // namespace furrow::cluster
