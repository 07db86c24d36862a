#include "cluster/region_directory.h"

#include <gtest/gtest.h>

namespace furrow::cluster {
namespace {

RegionMapping Mapping(uint64_t config, NodeId primary, bool active) {
  RegionMapping mapping;
  mapping.id = RegionId(7);
  mapping.locality = RegionId(7);
  mapping.config = ConfigId(config);
  mapping.replicas.push_back({primary, {}});
  mapping.active = active;
  return mapping;
}

TEST(RegionDirectoryTest, TheMappingOfTheNewestConfigurationStays) {
  RegionDirectory directory;
  const RegionMapping* first = directory.Put(Mapping(1, NodeId(1), true));
  const RegionMapping* second = directory.Put(Mapping(2, NodeId(2), true));
  EXPECT_EQ(directory.Put(Mapping(1, NodeId(3), true)), second);
  EXPECT_EQ(directory.Find(RegionId(7)), second);
  EXPECT_EQ(first->primary().node, NodeId(1));  // what was found before stays valid
}

TEST(RegionDirectoryTest, ARegionIsActivatedInTheConfigurationThatItsMappingIsOf) {
  RegionDirectory directory;
  EXPECT_EQ(directory.Activate(RegionId(7), ConfigId(2), Timestamp(5)), nullptr);
  directory.Put(Mapping(2, NodeId(2), false));
  EXPECT_EQ(directory.Activate(RegionId(7), ConfigId(1), Timestamp(5)), nullptr);
  EXPECT_FALSE(directory.Find(RegionId(7))->active);
  const RegionMapping* active = directory.Activate(RegionId(7), ConfigId(2), Timestamp(5));
  ASSERT_NE(active, nullptr);
  EXPECT_TRUE(active->active);
  EXPECT_EQ(active->floor, Timestamp(5));
  // Said again it changes nothing.
  EXPECT_EQ(directory.Activate(RegionId(7), ConfigId(2), Timestamp(9)), active);
  EXPECT_EQ(directory.Find(RegionId(7))->floor, Timestamp(5));
}

}  // namespace
}  // namespace furrow::cluster
