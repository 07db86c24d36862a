// What crosses the wire comes back as it was, and what no honest peer sends is refused.
#include "cluster/wire.h"

#include "cluster/proto/cluster.pb.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

RegionMapping Mapping() {
  RegionMapping m;
  m.id = RegionId(9);
  m.bytes = 1 << 21;
  m.locality = RegionId(4);
  m.replicas = {{NodeId(2), {77, rdma::RemoteKey(5)}}, {.node = NodeId(3), .memory = {}, .complete = false}};
  m.config = m.last_primary_change = m.last_replica_change = ConfigId(12);
  return m;
}

TEST(WireTest, MappingKeepsWhetherItIsActiveAndWhichCopiesAreComplete) {
  for (const bool active : {false, true}) {
    RegionMapping m = Mapping();
    m.active = active;
    pb::Region message;
    ToProto(m, &message);
    absl::StatusOr<RegionMapping> back = FromProto(message);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->active, active);
    EXPECT_TRUE(back->replicas[0].complete);
    EXPECT_FALSE(back->replicas[1].complete);
    EXPECT_EQ(back->replicas[0].memory, m.replicas[0].memory);
  }
}

TEST(WireTest, PrimaryThatIsNotCompleteIsRefused) {
  RegionMapping m = Mapping();
  m.replicas[0].complete = false;
  pb::Region message;
  ToProto(m, &message);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
}

}  // namespace
}  // namespace furrow::cluster
