#include "cluster/placement.h"

#include <set>

#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

StorageLoad Node(uint32_t id, std::string domain, uint64_t capacity = 100, uint64_t replicas = 0,
                 uint64_t primaries = 0) {
  return {NodeId(id), std::move(domain), capacity, replicas, primaries};
}

TEST(PlacementTest, SpreadsPrimaries) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "b"), Node(3, "c")};
  for (int i = 0; i < 30; ++i) {
    auto placed = Place(nodes, 3, NodeId());
    ASSERT_TRUE(placed.ok());
    ASSERT_EQ(placed->size(), 3u);
    for (StorageLoad& n : nodes) {
      ++n.replicas;
      if (n.id == (*placed)[0]) ++n.primaries;
    }
  }
  for (const StorageLoad& n : nodes) EXPECT_EQ(n.primaries, 10u);
}

TEST(PlacementTest, OfThoseWithEquallyManyPrimariesTheOneWithTheMostRoomGetsTheNext) {
  std::vector<StorageLoad> members = {{NodeId(1), "a", 10, 4, 2}, {NodeId(2), "b", 30, 6, 2}};
  members.push_back({NodeId(3), "c", 90, 6, 3});
  EXPECT_EQ(Place(members, 1, NodeId())->at(0), NodeId(2));
  members[1].primaries = 4;
  EXPECT_EQ(Place(members, 1, NodeId())->at(0), NodeId(1));
}

TEST(PlacementTest, HonoursThePreferredPrimary) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "b"), Node(3, "c", 100, 50, 50)};
  EXPECT_EQ((*Place(nodes, 2, NodeId(3)))[0], NodeId(3));
}

TEST(PlacementTest, FullPreferredPrimaryIsPassedOver) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "b"), Node(3, "c", 5, 5)};
  auto placed = Place(nodes, 2, NodeId(3));
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(std::set<NodeId>(placed->begin(), placed->end()), (std::set<NodeId>{NodeId(1), NodeId(2)}));
}

TEST(PlacementTest, BackupsGoToOtherFailureDomainsWhilePossible) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "a"), Node(3, "a"), Node(4, "b", 100, 90)};
  auto placed = Place(nodes, 3, NodeId(1));
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ((*placed)[1], NodeId(4));  // though it is the fullest
  EXPECT_EQ(placed->size(), 3u);       // and then the same domain again, since there is no third one
}

TEST(PlacementTest, NewBackupGoesToAnotherFailureDomainThatHasRoomForTheWholeGroup) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "a"), Node(3, "b", 10, 8), Node(4, "c", 10, 7)};
  const std::vector<NodeId> holders = {NodeId(1)};
  EXPECT_EQ(PlaceBackup(nodes, holders, 3), NodeId(4));
  EXPECT_EQ(PlaceBackup(nodes, holders, 4), NodeId(2)) << "no other domain has room";
  nodes[1].ready = false;
  EXPECT_EQ(PlaceBackup(nodes, holders, 4), std::nullopt);
}

TEST(PlacementTest, TooFewMembersWithRoomIsResourceExhausted) {
  std::vector<StorageLoad> nodes = {Node(1, "a"), Node(2, "b", 3, 3)};
  EXPECT_TRUE(absl::IsResourceExhausted(Place(nodes, 2, NodeId()).status()));
}

}  // namespace
}  // namespace furrow::cluster
