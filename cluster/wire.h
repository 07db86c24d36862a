// Conversions between the cluster's own types and the messages of proto/cluster.proto. For .cc files of this
// folder. What comes from a peer is checked here; an error names the field.
#ifndef FURROW_CLUSTER_WIRE_H_
#define FURROW_CLUSTER_WIRE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/configuration.h"
#include "cluster/view.h"

namespace furrow::cluster {

namespace pb {
class Member;
class Configuration;
class Region;
}  // namespace pb

void ToProto(const Member& member, uint64_t region_capacity, pb::Member* out);
absl::StatusOr<Member> FromProto(const pb::Member& in);
void ToProto(const Configuration& configuration, pb::Configuration* out);
absl::StatusOr<Configuration> FromProto(const pb::Configuration& in);
void ToProto(const RegionMapping& mapping, pb::Region* out);
absl::StatusOr<RegionMapping> FromProto(const pb::Region& in);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_WIRE_H_
