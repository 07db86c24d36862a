// What becomes of regions when members are lost (SOSP'15 section 5.2, step 4), and how a new manager learns
// of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "cluster/region_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = RegionTable::Kind;

Configuration Members(uint32_t nodes, uint32_t replicas, uint64_t capacity = 100) {
  Configuration c;
  c.cluster_id = std::string(32, 'a');
  c.id = ConfigId(4);
  c.manager = NodeId(1);
  c.replicas = replicas;
  c.region_bytes = 1 << 21;
  for (uint32_t id = 1; id <= nodes; ++id) {
    Member m;
    m.id = NodeId(id);
    m.incarnation = Incarnation(id);
    m.failure_domain = absl::StrCat("rack ", id);
    c.Add(m, capacity);
  }
  return c;
}

rdma::RemoteAddress MemoryOf(RegionId id, NodeId node) {
  return {uint64_t{id.value()} << 32, rdma::RemoteKey(node.value())};
}

class RegionRemapTest : public ::testing::Test {
 protected:
  void Start(Configuration c) {
    configuration_ = std::move(c);
    table_.SetConfiguration(configuration_);
    for (const Member& m : configuration_.members) table_.SetReady(m.id);
  }
  RegionTable::Plan Plan(AllocateRegionRequest request) {
    auto decision = table_.Begin(request);
    EXPECT_TRUE(decision.ok()) << decision.status();
    EXPECT_EQ(decision->kind, Kind::kPrepare);
    return decision->plan;
  }
  void Prepare(const RegionTable::Plan& plan) {
    std::vector<rdma::RemoteAddress> memories;
    for (NodeId node : plan.replicas) memories.push_back(MemoryOf(plan.id, node));
    table_.Prepared(plan, memories);
  }
  RegionId Allocate(uint32_t primary, RegionId near = {}) {
    const RegionTable::Plan plan =
        Plan({.near = near,
              .newest_known = near == RegionId() ? RegionId() : table_.Find(near)->id,
              .preferred_primary = NodeId(primary)});
    Prepare(plan);
    return table_.Committed(plan)->id;
  }
  // The next configuration, without these.
  Configuration Without(std::vector<uint32_t> gone) {
    Configuration next = configuration_;
    next.id = ConfigId(next.id.value() + 1);
    for (uint32_t id : gone) next.Remove(NodeId(id));
    return next;
  }
  RegionTable::Remapped Lose(std::vector<uint32_t> gone) {
    Configuration next = Without(std::move(gone));
    auto remapped = table_.Remap(next);
    EXPECT_TRUE(remapped.ok()) << remapped.status();
    configuration_ = next;
    return *remapped;
  }
  std::vector<uint32_t> HoldersOf(RegionId id) {
    std::vector<uint32_t> nodes;
    for (const Replica& r : table_.Find(id)->replicas) nodes.push_back(r.node.value());
    return nodes;
  }
  Configuration configuration_;
  RegionTable table_;
};

TEST_F(RegionRemapTest, LostBackupGoesAndThePrimaryServesOn) {
  Start(Members(3, 3));
  const RegionId id = Allocate(1);
  RegionTable::Remapped remapped = Lose({3});
  EXPECT_THAT(remapped.changed, ElementsAre(id));
  EXPECT_THAT(HoldersOf(id), ElementsAre(1, 2));
  const RegionMapping* m = table_.Find(id);
  EXPECT_TRUE(m->active);
  EXPECT_EQ(m->config, ConfigId(5));
  EXPECT_EQ(m->last_replica_change, ConfigId(5));
  EXPECT_EQ(m->last_primary_change, ConfigId(4));
  EXPECT_EQ(remapped.missing, 1u) << "there is nobody to hold a third copy";
}

TEST_F(RegionRemapTest, LostPrimaryIsReplacedByABackupThatIsNotActiveYet) {
  Start(Members(3, 3));
  const RegionId id = Allocate(2);
  EXPECT_THAT(Lose({2}).changed, ElementsAre(id));
  EXPECT_THAT(HoldersOf(id), ElementsAre(1, 3));
  const RegionMapping* m = table_.Find(id);
  EXPECT_FALSE(m->active);
  EXPECT_EQ(m->last_primary_change, ConfigId(5));
  EXPECT_EQ(m->last_replica_change, ConfigId(5));
  EXPECT_EQ(m->primary().memory, MemoryOf(id, NodeId(1))) << "each keeps its own memory";
}

TEST_F(RegionRemapTest, WhatHasLostNothingIsNotTouched) {
  Start(Members(4, 2));
  const RegionId here = Allocate(1);
  const std::vector<uint32_t> before = HoldersOf(here);
  std::vector<uint32_t> others;
  for (uint32_t id : {1u, 2u, 3u, 4u}) {
    if (std::find(before.begin(), before.end(), id) == before.end()) others.push_back(id);
  }
  EXPECT_THAT(Lose({others[0]}).changed, IsEmpty());
  EXPECT_EQ(table_.Find(here)->config, ConfigId(4));
  EXPECT_EQ(HoldersOf(here), before);
}

TEST_F(RegionRemapTest, RegionsOfAGroupGetTheSameReplicasAndPrimary) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    table_ = RegionTable();
    Start(Members(8, 3, 9));
    std::vector<RegionId> firsts;
    for (int i = 0; i < 12; ++i) {
      const bool near = !firsts.empty() && random.Below(2) == 0;
      if (!near) {
        firsts.push_back(Allocate(static_cast<uint32_t>(1 + random.Below(8))));
        continue;
      }
      auto decision =
          table_.Begin({.near = firsts[random.Below(firsts.size())], .newest_known = RegionId(1000)});
      if (!decision.ok()) continue;
      Prepare(decision->plan);
      table_.Committed(decision->plan);
    }
    for (int round = 0; round < 4; ++round) {
      const NodeId gone = configuration_.members[random.Below(configuration_.members.size())].id;
      auto remapped = table_.Remap(Without({gone.value()}));
      if (!remapped.ok()) break;
      configuration_ = Without({gone.value()});
      for (const RegionMapping* m : table_.From(RegionId(0), 1000)) {
        const RegionMapping* first = table_.Find(m->locality);
        ASSERT_EQ(m->replicas.size(), first->replicas.size());
        for (size_t i = 0; i < m->replicas.size(); ++i) {
          EXPECT_EQ(m->replicas[i].node, first->replicas[i].node);
          EXPECT_NE(m->replicas[i].node, gone);
        }
        EXPECT_TRUE(m->primary().complete);
        EXPECT_EQ(m->primary().memory, MemoryOf(m->id, m->primary().node));
        EXPECT_EQ(m->active, m->last_primary_change == ConfigId(4));
      }
      for (const Member& m : configuration_.members) EXPECT_LE(table_.ReplicasAt(m.id), 9u);
      for (const RegionTable::NewCopy& copy : remapped->copies) {
        table_.Made(copy, MemoryOf(copy.region, copy.node));
        table_.Completed(copy);
      }
    }
  }
}

TEST_F(RegionRemapTest, PromotionsAreSpreadOverTheBackups) {
  Start(Members(5, 5));
  for (int i = 0; i < 8; ++i) Allocate(1);
  Lose({1});
  for (uint32_t id : {2u, 3u, 4u, 5u}) EXPECT_EQ(table_.PrimariesAt(NodeId(id)), 2u) << "node " << id;
}

TEST_F(RegionRemapTest, NewBackupGoesWhereTheRulesSayAndIsNotComplete) {
  Configuration c = Members(5, 2);
  c.members[2].failure_domain = c.members[0].failure_domain;  // 3 with 1
  Start(c);
  RegionId id = Allocate(1);
  const uint32_t backup = HoldersOf(id)[1];
  ASSERT_NE(backup, 3u);
  RegionTable::Remapped remapped = Lose({backup});
  ASSERT_EQ(remapped.copies.size(), 1u);
  const RegionTable::NewCopy copy = remapped.copies[0];
  EXPECT_EQ(copy.region, id);
  EXPECT_NE(copy.node, NodeId(3)) << "another failure domain than the primary's";
  EXPECT_EQ(remapped.missing, 0u);
  const Replica& added = table_.Find(id)->replicas[1];
  EXPECT_FALSE(added.complete);
  EXPECT_EQ(added.memory.key, rdma::RemoteKey());
  table_.Made(copy, MemoryOf(id, copy.node));
  EXPECT_EQ(added.memory, MemoryOf(id, copy.node));
}

TEST_F(RegionRemapTest, BackupThatIsNotCompleteNeverBecomesPrimary) {
  Start(Members(4, 2));
  const RegionId id = Allocate(1);
  const RegionTable::NewCopy copy = Lose({HoldersOf(id)[1]}).copies.at(0);
  auto lost = table_.Remap(Without({1}));
  EXPECT_TRUE(absl::IsDataLoss(lost.status())) << lost.status();
  table_.Completed(copy);
  Lose({1});
  EXPECT_EQ(table_.Find(id)->primary().node, copy.node);
}

TEST_F(RegionRemapTest, CompleteBackupIsPreferredHoweverManyPrimariesItHas) {
  Start(Members(4, 3));
  const RegionId id = Allocate(1);
  const std::vector<uint32_t> holders = HoldersOf(id);
  const RegionTable::NewCopy copy = Lose({holders[1]}).copies.at(0);
  for (int i = 0; i < 5; ++i) Allocate(holders[2]);
  Lose({1});
  EXPECT_EQ(table_.Find(id)->primary().node, NodeId(holders[2]));
  EXPECT_EQ(table_.Find(id)->replicas[1].node, copy.node);
}

// Its coming is no reason to stop the transactions of others.
TEST_F(RegionRemapTest, CopiesThatWereMissingAreNotAddedWhenAnotherMemberComes) {
  Start(Members(3, 3));
  const RegionId id = Allocate(1);
  Lose({3});
  configuration_ = Without({});
  Member fourth;
  fourth.id = NodeId(4);
  configuration_.Add(fourth, 10);
  ASSERT_TRUE(table_.Remap(configuration_).ok());
  table_.SetReady(NodeId(4));
  RegionTable::Remapped remapped = Lose({});
  EXPECT_THAT(remapped.changed, IsEmpty());
  EXPECT_EQ(remapped.missing, 1u);
  EXPECT_THAT(HoldersOf(id), ElementsAre(1, 2));
}

TEST_F(RegionRemapTest, RegionsWithoutACompleteCopyAreNamedAndNothingChanges) {
  Start(Members(4, 2));
  const RegionId first = Allocate(1);
  const RegionId second = Allocate(1, first);
  const uint32_t backup = HoldersOf(first)[1];
  const Configuration next = Without({1, backup});
  auto remapped = table_.Remap(next);
  ASSERT_TRUE(absl::IsDataLoss(remapped.status())) << remapped.status();
  EXPECT_THAT(remapped.status().message(), HasSubstr(absl::StrCat("regions ", first.value(), ", ",
                                                                  second.value(), " have no complete copy")));
  EXPECT_THAT(HoldersOf(first), ElementsAre(1, backup));
  EXPECT_EQ(table_.Find(first)->config, ConfigId(4));
}

// A process that comes back under its old id has none of the memory that it had.
TEST_F(RegionRemapTest, MemberInAnotherLifeHoldsNothing) {
  Start(Members(3, 2));
  const RegionId id = Allocate(1);
  Configuration next = Without({});
  next.members[0].incarnation = Incarnation(77);
  auto remapped = table_.Remap(next);
  ASSERT_TRUE(remapped.ok());
  EXPECT_NE(table_.Find(id)->primary().node, NodeId(1));
  EXPECT_FALSE(table_.Find(id)->active);
  for (const RegionTable::NewCopy& copy : remapped->copies) {
    EXPECT_NE(copy.node, NodeId(1)) << "it has not said that it is ready";
  }
}

TEST_F(RegionRemapTest, PrimaryThatHadNotBecomeActiveRecoversAgain) {
  Start(Members(4, 4));
  const RegionId slow = Allocate(1);
  const RegionId quick = Allocate(1);
  Lose({1});
  table_.Activate(quick, ConfigId(5), Timestamp(70));
  table_.Activate(slow, ConfigId(4), Timestamp(70));  // of an earlier configuration
  EXPECT_FALSE(table_.Find(slow)->active);
  EXPECT_TRUE(table_.Find(quick)->active);
  EXPECT_EQ(table_.Find(quick)->floor, Timestamp(70));
  ASSERT_EQ(table_.Find(slow)->primary().node, NodeId(2));
  Lose({4});
  EXPECT_FALSE(table_.Find(slow)->active);
  EXPECT_EQ(table_.Find(slow)->last_primary_change, ConfigId(6));
  EXPECT_TRUE(table_.Find(quick)->active);
  EXPECT_EQ(table_.Find(quick)->last_primary_change, ConfigId(5));
  EXPECT_THAT(Lose({}).changed, ElementsAre(slow));
  EXPECT_EQ(table_.Find(slow)->last_replica_change, ConfigId(6));
}

TEST_F(RegionRemapTest, MemberWithoutMemoryForItsCopyLosesItWithTheNextChangeAndGetsNoOther) {
  Start(Members(5, 2));
  const RegionId id = Allocate(1);
  const RegionTable::NewCopy copy = Lose({HoldersOf(id)[1]}).copies.at(0);
  table_.Refused(copy.node);
  RegionTable::Remapped remapped = Lose({});
  EXPECT_THAT(remapped.changed, ElementsAre(id));
  ASSERT_EQ(remapped.copies.size(), 1u);
  EXPECT_NE(remapped.copies[0].node, copy.node);
  EXPECT_TRUE(table_.Find(id)->active);
  // In its next life it may have memory again, and keeps what it is given then.
  Configuration next = Without({});
  std::find_if(next.members.begin(), next.members.end(), [&](const Member& m) {
    return m.id == copy.node;
  })->incarnation = Incarnation(77);
  ASSERT_TRUE(table_.Remap(next).ok());
  configuration_ = next;
  table_.SetReady(copy.node);
  table_.Made(remapped.copies[0], MemoryOf(id, remapped.copies[0].node));
  std::vector<uint32_t> others;
  for (const Member& m : configuration_.members) {
    if (m.id != copy.node && m.id != NodeId(1)) others.push_back(m.id.value());
  }
  EXPECT_THAT(Lose(others).copies, ElementsAre(RegionTable::NewCopy{id, copy.node}));
  EXPECT_THAT(Lose({}).changed, IsEmpty());
}

TEST_F(RegionRemapTest, ChangesAreToldSinceTheConfigurationThatAMemberKnows) {
  Start(Members(4, 3));
  const RegionId id = Allocate(1);
  Lose({HoldersOf(id)[2]});
  Configuration join = Without({});
  Member m;
  m.id = NodeId(9);
  join.Add(m, 10);
  ASSERT_TRUE(table_.Remap(join).ok());
  EXPECT_EQ(table_.ChangedSince(ConfigId(4)).size(), 1u) << "who has missed configuration 5 needs it";
  EXPECT_THAT(table_.ChangedSince(ConfigId(5)), IsEmpty());
}

// --- allocations under way ---

TEST_F(RegionRemapTest, PreparedRegionIsRolledForwardAndAnAllocationThatWasNotIsForgotten) {
  Start(Members(3, 2));
  const RegionTable::Plan prepared = Plan({.preferred_primary = NodeId(1), .name = 7});
  Prepare(prepared);
  const RegionTable::Plan begun = Plan({.preferred_primary = NodeId(2), .name = 8});
  EXPECT_THAT(Lose({3}).changed, ElementsAre(prepared.id));
  EXPECT_EQ(table_.Find(begun.id), nullptr);
  auto again = table_.Begin({.name = 7});
  ASSERT_EQ(again->kind, Kind::kExisting);
  EXPECT_EQ(again->existing->id, prepared.id);
  // Whoever carried the allocations hears of it late.
  table_.Failed(prepared, NodeId(1));
  table_.Failed(begun, NodeId());
  EXPECT_EQ(table_.Committed(prepared), table_.Find(prepared.id));
  EXPECT_EQ(table_.Committed(begun), nullptr);
  EXPECT_EQ(table_.ReplicasAt(NodeId(1)), 1u);
}

TEST_F(RegionRemapTest, GroupAllocatesOnAtItsNewReplicas) {
  Start(Members(3, 2));
  const RegionId first = Allocate(1);
  Plan({.near = first, .newest_known = first});  // under way when the primary is lost
  Lose({1});
  auto decision = table_.Begin({.near = first, .newest_known = first});
  ASSERT_TRUE(decision.ok()) << decision.status();
  ASSERT_EQ(decision->kind, Kind::kPrepare);
  std::vector<NodeId> holders;
  for (const Replica& r : table_.Find(first)->replicas) holders.push_back(r.node);
  EXPECT_EQ(decision->plan.replicas, holders);
  EXPECT_EQ(decision->plan.config, ConfigId(5));
}

// --- a new manager ---

class CollectTest : public RegionRemapTest {
 protected:
  // What the members of `configuration_` know, if each knows all mappings.
  RegionTable::Report ReportOf(uint32_t node) {
    RegionTable::Report report;
    report.node = NodeId(node);
    for (const RegionMapping* m : table_.From(RegionId(0), 1000)) {
      report.mappings.push_back(*m);
      for (const Replica& r : m->replicas) {
        if (r.node == NodeId(node)) report.copies.push_back({m->id, r.memory, r.complete});
      }
    }
    return report;
  }
};

TEST_F(CollectTest, TableOfANewManagerDecidesAsTheOldOneWouldHave) {
  Start(Members(4, 2));
  const RegionId a = Allocate(1);
  Allocate(2, a);
  for (uint32_t p : {2u, 3u, 4u, 1u}) Allocate(p);
  RegionTable collected;
  std::vector<RegionTable::Report> reports = {ReportOf(2), ReportOf(3), ReportOf(4)};
  // One copy's holder alone knows where the region is.
  std::erase_if(reports[0].mappings, [](const RegionMapping& m) {
    return std::none_of(m.replicas.begin(), m.replicas.end(),
                        [](const Replica& r) { return r.node == NodeId(2); });
  });
  collected.Collect(configuration_, reports);
  auto there = collected.Remap(Without({1}));
  auto here = table_.Remap(Without({1}));
  ASSERT_TRUE(there.ok() && here.ok());
  EXPECT_EQ(there->changed, here->changed);
  EXPECT_EQ(there->copies, here->copies);
  ASSERT_EQ(collected.size(), table_.size());
  for (const RegionMapping* m : table_.From(RegionId(0), 1000)) {
    const RegionMapping* n = collected.Find(m->id);
    ASSERT_EQ(n->replicas.size(), m->replicas.size());
    for (size_t i = 0; i < m->replicas.size(); ++i) {
      EXPECT_EQ(n->replicas[i].node, m->replicas[i].node);
      EXPECT_EQ(n->replicas[i].memory, m->replicas[i].memory);
      EXPECT_EQ(n->replicas[i].complete, m->replicas[i].complete);
    }
    EXPECT_EQ(n->active, m->active);
    EXPECT_EQ(n->last_primary_change, m->last_primary_change);
    EXPECT_EQ(n->last_replica_change, m->last_replica_change);
    EXPECT_EQ(n->locality, m->locality);
  }
}

TEST_F(CollectTest, HighestConfigurationWinsAndWhoHasHeardThatItIsActive) {
  Start(Members(4, 3));
  const RegionId id = Allocate(1);
  RegionTable::Report old = ReportOf(4);
  Lose({1});
  const RegionTable::Report waiting = ReportOf(2);
  table_.Activate(id, ConfigId(5), Timestamp(9));
  RegionTable::Report heard = ReportOf(3);
  for (std::vector<RegionTable::Report> reports :
       {std::vector{old, waiting, heard}, std::vector{heard, waiting, old}}) {
    RegionTable collected;
    collected.Collect(configuration_, reports);
    EXPECT_EQ(collected.Find(id)->config, ConfigId(5));
    EXPECT_TRUE(collected.Find(id)->active);
    EXPECT_EQ(collected.Find(id)->floor, Timestamp(9));
    EXPECT_EQ(collected.Find(id)->last_primary_change, ConfigId(5));
  }
}

TEST_F(CollectTest, HolderThatDoesNotHaveItsCopyIsNotComplete) {
  Start(Members(3, 2));
  const RegionId id = Allocate(1);
  const uint32_t backup = HoldersOf(id)[1];
  std::vector<RegionTable::Report> reports = {ReportOf(2), ReportOf(3)};
  for (RegionTable::Report& r : reports) r.copies.clear();  // as if its memory were another life's
  RegionTable collected;
  collected.Collect(configuration_, reports);
  EXPECT_FALSE(collected.Find(id)->replicas[1].complete);
  EXPECT_TRUE(absl::IsDataLoss(collected.Remap(Without({1})).status()))
      << "node " << backup << " has nothing";
}

TEST_F(CollectTest, PreparedRegionExistsIfEachHolderThatIsLeftHasPreparedIt) {
  Start(Members(4, 3));
  const RegionTable::Plan everywhere = Plan({.preferred_primary = NodeId(1), .name = 5});
  const RegionTable::Plan somewhere = Plan({.preferred_primary = NodeId(2), .name = 6});
  std::vector<RegionTable::Report> reports;
  for (uint32_t node : {2u, 3u, 4u}) {
    RegionTable::Report& r = reports.emplace_back();
    r.node = NodeId(node);
    const bool holds = std::find(everywhere.replicas.begin(), everywhere.replicas.end(), r.node) !=
                       everywhere.replicas.end();
    if (holds) {
      r.prepared.push_back(everywhere);
      r.copies.push_back({everywhere.id, MemoryOf(everywhere.id, r.node)});
    }
    if (NodeId(node) == somewhere.replicas[0]) r.prepared.push_back(somewhere);
  }
  RegionTable collected;
  collected.Collect(configuration_, reports);
  EXPECT_EQ(collected.Find(somewhere.id), nullptr)
      << "a holder that lives has not prepared it: nobody committed";
  auto remapped = collected.Remap(Without({1}));
  ASSERT_TRUE(remapped.ok()) << remapped.status();
  EXPECT_THAT(remapped->changed, ElementsAre(everywhere.id));
  const RegionMapping* m = collected.Find(everywhere.id);
  EXPECT_EQ(m->config, ConfigId(5));
  EXPECT_EQ(m->primary().memory, MemoryOf(m->id, m->primary().node));
  EXPECT_EQ(collected.Begin({.name = 5})->kind, Kind::kExisting);
  EXPECT_EQ(collected.Begin({.name = 6})->kind, Kind::kPrepare);
}

TEST_F(CollectTest, MemberThatIsNotReadyGetsNoCopy) {
  Start(Members(4, 2));
  const RegionId id = Allocate(1);
  const uint32_t backup = HoldersOf(id)[1];
  std::vector<RegionTable::Report> reports;
  for (uint32_t node = 1; node <= 4; ++node) {
    if (node == backup) continue;
    reports.push_back(ReportOf(node));
    reports.back().ready = node == 1;
  }
  RegionTable collected;
  collected.Collect(configuration_, reports);
  auto remapped = collected.Remap(Without({backup}));
  ASSERT_TRUE(remapped.ok());
  EXPECT_THAT(remapped->copies, IsEmpty());
  EXPECT_EQ(remapped->missing, 1u);
}

}  // namespace
}  // namespace furrow::cluster
