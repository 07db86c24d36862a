#include "cluster/region_table.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using Kind = RegionTable::Kind;

Configuration Three(uint64_t capacity = 10) {
  Configuration c;
  c.cluster_id = std::string(32, 'a');
  c.id = ConfigId(4);
  c.manager = NodeId(1);
  c.replicas = 2;
  c.region_bytes = 1 << 21;
  for (uint32_t id : {1, 2, 3}) {
    Member m;
    m.id = NodeId(id);
    m.failure_domain = std::string(1, static_cast<char>('a' + id));
    c.Add(m, capacity);
  }
  return c;
}

std::vector<rdma::RemoteAddress> Memories(const RegionTable::Plan& plan) {
  return std::vector<rdma::RemoteAddress>(plan.replicas.size());
}

const RegionMapping* Commit(RegionTable& table, const RegionTable::Plan& plan) {
  table.Prepared(plan, Memories(plan));
  return table.Committed(plan);
}

class RegionTableTest : public ::testing::Test {
 protected:
  RegionTableTest() { Start(&table_, Three()); }
  static void Start(RegionTable* table, const Configuration& configuration) {
    table->SetConfiguration(configuration);
    for (const Member& m : configuration.members) table->SetReady(m.id);
  }
  const RegionMapping* Allocate(AllocateRegionRequest request) {
    auto decision = table_.Begin(request);
    EXPECT_TRUE(decision.ok()) << decision.status();
    EXPECT_EQ(decision->kind, Kind::kPrepare);
    return Commit(table_, decision->plan);
  }
  RegionTable table_;
};

TEST_F(RegionTableTest, NewGroupIsItsOwnLocality) {
  const RegionMapping* region = Allocate({});
  EXPECT_EQ(region->id, RegionId(1));
  EXPECT_EQ(region->locality, region->id);
  EXPECT_EQ(region->replicas.size(), 2u);
  EXPECT_EQ(region->config, ConfigId(4));
  EXPECT_EQ(region->bytes, 1u << 21);
}

TEST_F(RegionTableTest, RegionsOfAGroupHaveTheSameReplicasAndPrimary) {
  const RegionMapping* first = Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(2)});
  Allocate({});
  const RegionMapping* next =
      Allocate({.near = first->id, .newest_known = first->id, .preferred_primary = {}});
  const RegionMapping* third =
      Allocate({.near = next->id, .newest_known = next->id, .preferred_primary = NodeId(3)});
  for (const RegionMapping* r : {next, third}) {
    EXPECT_EQ(r->locality, first->id);
    ASSERT_EQ(r->replicas.size(), first->replicas.size());
    for (size_t i = 0; i < r->replicas.size(); ++i) EXPECT_EQ(r->replicas[i].node, first->replicas[i].node);
  }
}

TEST_F(RegionTableTest, CallerThatDoesNotKnowTheNewestGetsIt) {
  const RegionMapping* first = Allocate({});
  const RegionMapping* second =
      Allocate({.near = first->id, .newest_known = first->id, .preferred_primary = {}});
  auto decision = table_.Begin({.near = first->id, .newest_known = first->id, .preferred_primary = {}});
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->kind, Kind::kExisting);
  EXPECT_EQ(decision->existing, second);
}

TEST_F(RegionTableTest, SecondAllocationInAGroupWaitsForTheFirst) {
  const RegionMapping* first = Allocate({});
  AllocateRegionRequest more{.near = first->id, .newest_known = first->id, .preferred_primary = {}};
  auto one = table_.Begin(more);
  auto two = table_.Begin(more);
  EXPECT_EQ(one->kind, Kind::kPrepare);
  EXPECT_EQ(two->kind, Kind::kWait);
  Commit(table_, one->plan);
  EXPECT_EQ(table_.Begin(more)->kind, Kind::kExisting);
}

// The primary may hand out addresses in a region before the manager has heard that all have committed it.
TEST_F(RegionTableTest, APreparedRegionIsFoundAndNotYetGivenToThoseWhoAllocate) {
  auto one = table_.Begin({.name = 77});
  EXPECT_EQ(table_.Find(one->plan.id), nullptr);
  const RegionMapping* prepared = table_.Prepared(one->plan, Memories(one->plan));
  EXPECT_EQ(table_.Find(one->plan.id), prepared);
  EXPECT_EQ(table_.Begin({.name = 77})->kind, Kind::kWait);
  EXPECT_EQ(table_.Begin({.near = prepared->id, .newest_known = prepared->id})->kind, Kind::kWait);
  EXPECT_EQ(table_.Committed(one->plan), prepared);
  EXPECT_EQ(table_.Begin({.name = 77})->existing, prepared);
  auto two = table_.Begin({.near = prepared->id, .newest_known = prepared->id});
  table_.Prepared(two->plan, Memories(two->plan));
  table_.Failed(two->plan, NodeId());
  EXPECT_EQ(table_.Find(two->plan.id), nullptr);
}

TEST_F(RegionTableTest, NewGroupOfANameIsMadeOnce) {
  const AllocateRegionRequest named{.preferred_primary = NodeId(2), .name = 77};
  auto one = table_.Begin(named);
  ASSERT_EQ(one->kind, Kind::kPrepare);
  EXPECT_EQ(table_.Begin(named)->kind, Kind::kWait) << "it may fail yet";
  EXPECT_EQ(Allocate({.name = 78})->name, 78u) << "others do not wait for it";
  const RegionMapping* made = Commit(table_, one->plan);
  auto again = table_.Begin({.preferred_primary = NodeId(3), .name = 77});
  EXPECT_EQ(again->kind, Kind::kExisting);
  EXPECT_EQ(again->existing, made);
  EXPECT_NE(Allocate({})->id, Allocate({})->id) << "without a name each is another";
}

TEST_F(RegionTableTest, NameOfAFailedAllocationIsFreeAgain) {
  auto one = table_.Begin({.name = 77});
  table_.Failed(one->plan, NodeId());
  EXPECT_EQ(table_.Begin({.name = 77})->kind, Kind::kPrepare);
}

TEST_F(RegionTableTest, FailedAllocationGivesItsRoomBackAndBurnsItsId) {
  const RegionMapping* first = Allocate({});
  AllocateRegionRequest more{.near = first->id, .newest_known = first->id, .preferred_primary = {}};
  auto one = table_.Begin(more);
  table_.Failed(one->plan, NodeId());
  auto again = table_.Begin(more);
  EXPECT_EQ(again->kind, Kind::kPrepare);
  EXPECT_GT(again->plan.id, one->plan.id);
}

TEST_F(RegionTableTest, MemberThatHadNoMemoryCountsAsFull) {
  auto one = table_.Begin({.near = {}, .newest_known = {}, .preferred_primary = NodeId(3)});
  table_.Failed(one->plan, NodeId(3));
  for (int i = 0; i < 4; ++i) {
    for (const Replica& r : Allocate({})->replicas) EXPECT_NE(r.node, NodeId(3));
  }
}

TEST_F(RegionTableTest, CapacityIsALimit) {
  RegionTable table;
  Start(&table, Three(/*capacity=*/2));
  for (int i = 0; i < 3; ++i) {
    auto decision = table.Begin({});
    ASSERT_TRUE(decision.ok());
    Commit(table, decision->plan);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.Begin({}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(
      table.Begin({.near = RegionId(1), .newest_known = RegionId(1), .preferred_primary = {}}).status()));
}

TEST_F(RegionTableTest, TheLastRoomIsKeptForThoseWhoWait) {
  for (const uint64_t capacity : {3, 16}) {
    RegionTable table;
    Start(&table, Three(capacity));
    auto first = table.Begin({});
    ASSERT_TRUE(first.ok());
    RegionId newest = Commit(table, first->plan)->id;
    uint64_t held = 1;
    absl::Status refused;
    for (const bool ahead : {true, false}) {
      while (true) {
        auto more = table.Begin({.near = RegionId(1), .newest_known = newest, .ahead = ahead});
        refused = more.status();
        if (!more.ok()) break;
        ++held;
        newest = Commit(table, more->plan)->id;
      }
      EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
      EXPECT_EQ(held, ahead ? capacity - std::max<uint64_t>(1, capacity / 8) : capacity);
    }
  }
}

TEST_F(RegionTableTest, MemberThatIsNotReadyHoldsNothing) {
  RegionTable table;
  table.SetConfiguration(Three());
  EXPECT_TRUE(absl::IsResourceExhausted(table.Begin({}).status()));
  table.SetReady(NodeId(1));
  table.SetReady(NodeId(3));
  EXPECT_EQ(table.ready_members(), 2u);
  auto decision = table.Begin({});
  ASSERT_TRUE(decision.ok());
  for (NodeId node : decision->plan.replicas) EXPECT_NE(node, NodeId(2));
}

TEST_F(RegionTableTest, UnknownNeighbourIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(
      table_.Begin({.near = RegionId(99), .newest_known = {}, .preferred_primary = {}}).status()));
}

TEST_F(RegionTableTest, UsedUpRangeAsksForTheNextOne) {
  Configuration c = Three(1 << 20);
  RegionTable table;
  Start(&table, c);
  for (uint32_t i = 0; i < kRegionRange; ++i) {
    auto decision = table.Begin({});
    ASSERT_EQ(decision->kind, Kind::kPrepare);
    Commit(table, decision->plan);
  }
  ASSERT_EQ(table.Begin({})->kind, Kind::kNeedIds);
  c.id = ConfigId(5);
  c.first_region = table.next_id();
  table.SetConfiguration(c);
  auto decision = table.Begin({});
  ASSERT_EQ(decision->kind, Kind::kPrepare);
  EXPECT_EQ(decision->plan.id, RegionId(kRegionRange + 1));
  EXPECT_EQ(decision->plan.config, ConfigId(5));
}

TEST_F(RegionTableTest, CountsReplicasAndPrimaries) {
  Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(1)});
  Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(1)});
  EXPECT_EQ(table_.PrimariesAt(NodeId(1)), 2u);
  EXPECT_EQ(table_.ReplicasAt(NodeId(1)), 2u);
  EXPECT_EQ(table_.ReplicasAt(NodeId(2)) + table_.ReplicasAt(NodeId(3)), 2u);
  EXPECT_EQ(table_.From(RegionId(2), 10).size(), 1u);
}

}  // namespace
}  // namespace furrow::cluster
