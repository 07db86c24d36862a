#include "cluster/wire.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/region_directory.h"

namespace furrow::cluster {
namespace {

// Sizes that no honest peer exceeds.
constexpr size_t kMaxText = 1024;
constexpr uint64_t kMaxRegionBytes = uint64_t{4} << 30;
constexpr uint32_t kMaxReplicas = 16;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("bad control message: ", what));
}

}  // namespace

void ToProto(const Member& member, uint64_t region_capacity, pb::Member* out) {
  out->set_id(member.id.value());
  out->set_incarnation(member.incarnation.value());
  out->set_role(member.role == Role::kCompute ? 1 : 0);
  out->set_failure_domain(member.failure_domain);
  out->set_control_address(member.control_address);
  out->set_fabric_endpoint(member.fabric_endpoint);
  out->set_workers(member.workers);
  out->set_old_versions_address(member.old_versions.address);
  out->set_old_versions_key(member.old_versions.key.value());
  out->set_old_version_bytes(member.old_version_bytes);
  out->set_region_capacity(region_capacity);
}

absl::StatusOr<Member> FromProto(const pb::Member& in) {
  if (in.id() == 0) return Bad("a member without an id");
  if (in.role() > 1) return Bad(absl::StrCat("member ", in.id(), " has the unknown role ", in.role()));
  if (in.workers() == 0 || in.workers() > std::numeric_limits<uint16_t>::max()) {
    return Bad(absl::StrCat("member ", in.id(), " has ", in.workers(), " workers"));
  }
  if (in.failure_domain().size() > kMaxText || in.control_address().size() > kMaxText ||
      in.fabric_endpoint().size() > kMaxText) {
    return Bad(absl::StrCat("member ", in.id(), " has an overlong address or failure domain"));
  }
  Member member;
  member.id = NodeId(in.id());
  member.incarnation = Incarnation(in.incarnation());
  member.role = in.role() == 1 ? Role::kCompute : Role::kStorage;
  member.failure_domain = in.failure_domain();
  member.control_address = in.control_address();
  member.fabric_endpoint = in.fabric_endpoint();
  member.workers = static_cast<uint16_t>(in.workers());
  member.old_versions = {in.old_versions_address(), rdma::RemoteKey(in.old_versions_key())};
  member.old_version_bytes = in.old_version_bytes();
  return member;
}

void ToProto(const Configuration& configuration, pb::Configuration* out) {
  out->set_cluster_id(configuration.cluster_id);
  out->set_id(configuration.id.value());
  out->set_manager(configuration.manager.value());
  out->set_first_region(configuration.first_region);
  out->set_replicas(configuration.replicas);
  out->set_region_bytes(configuration.region_bytes);
  out->set_next_compute_id(configuration.next_compute_id);
  out->set_lease_ns(static_cast<uint64_t>(configuration.lease_ns));
  out->set_fabric(configuration.fabric);
  for (const Member& member : configuration.members) {
    ToProto(member, configuration.CapacityOf(member.id), out->add_members());
  }
}

absl::StatusOr<Configuration> FromProto(const pb::Configuration& in) {
  if (in.members_size() > static_cast<int>(kMaxMembers)) {
    return Bad(absl::StrCat(in.members_size(), " members exceed the limit of ", kMaxMembers));
  }
  Configuration configuration;
  configuration.cluster_id = in.cluster_id();
  configuration.id = ConfigId(in.id());
  configuration.manager = NodeId(in.manager());
  configuration.first_region = in.first_region();
  configuration.replicas = in.replicas();
  configuration.region_bytes = in.region_bytes();
  configuration.next_compute_id = in.next_compute_id();
  if (in.lease_ns() != 0) {
    configuration.lease_ns = static_cast<Nanos>(std::min<uint64_t>(in.lease_ns(), kMaxLeaseNs + 1));
  }
  configuration.fabric = in.fabric();
  for (const pb::Member& m : in.members()) {
    FURROW_ASSIGN_OR_RETURN(Member member, FromProto(m));
    configuration.Add(std::move(member), m.region_capacity());
  }
  FURROW_RETURN_IF_ERROR(Validate(configuration));
  return configuration;
}

void ToProto(const RegionMapping& mapping, pb::Region* out) {
  out->set_id(mapping.id.value());
  out->set_bytes(mapping.bytes);
  out->set_locality(mapping.locality.value());
  for (const Replica& replica : mapping.replicas) {
    auto* r = out->add_replicas();
    r->set_node(replica.node.value());
    r->set_address(replica.memory.address);
    r->set_key(replica.memory.key.value());
    r->set_incomplete(!replica.complete);
  }
  out->set_config(mapping.config.value());
  out->set_last_primary_change(mapping.last_primary_change.value());
  out->set_last_replica_change(mapping.last_replica_change.value());
  out->set_floor(mapping.floor.value());
  out->set_name(mapping.name);
  out->set_inactive(!mapping.active);
}

absl::StatusOr<RegionMapping> FromProto(const pb::Region& in) {
  if (in.id() == 0 || in.id() >= RegionDirectory::kMaxRegions)
    return Bad(absl::StrCat("region id ", in.id()));
  if (in.locality() == 0 || in.locality() > in.id()) return Bad("the locality group of a region");
  if (in.bytes() == 0 || in.bytes() > kMaxRegionBytes)
    return Bad(absl::StrCat("region of ", in.bytes(), " bytes"));
  if (in.replicas_size() == 0 || in.replicas_size() > static_cast<int>(kMaxReplicas)) {
    return Bad(absl::StrCat("region ", in.id(), " has ", in.replicas_size(), " replicas"));
  }
  if (in.floor() > Timestamp::kMaxValue) return Bad("the floor of a region");
  RegionMapping mapping;
  mapping.id = RegionId(in.id());
  mapping.bytes = in.bytes();
  mapping.locality = RegionId(in.locality());
  for (const pb::Replica& r : in.replicas()) {
    mapping.replicas.push_back({NodeId(r.node()), {r.address(), rdma::RemoteKey(r.key())}, !r.incomplete()});
  }
  if (!mapping.primary().complete) {
    return Bad(absl::StrCat("the primary of region ", in.id(), " is not complete"));
  }
  mapping.config = ConfigId(in.config());
  mapping.last_primary_change = ConfigId(in.last_primary_change());
  mapping.last_replica_change = ConfigId(in.last_replica_change());
  mapping.floor = Timestamp(in.floor());
  mapping.name = in.name();
  mapping.active = !in.inactive();
  return mapping;
}

}  // namespace furrow::cluster
