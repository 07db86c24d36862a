#include "cluster/configuration.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/wire.h"

namespace furrow::cluster {

const Member* Configuration::Find(NodeId node) const {
  auto it = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.id == node; });
  return it == members.end() ? nullptr : &*it;
}

uint64_t Configuration::CapacityOf(NodeId node) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].id == node) return capacities[i];
  }
  return 0;
}

void Configuration::Add(Member member, uint64_t capacity) {
  members.push_back(std::move(member));
  capacities.push_back(capacity);
}

void Configuration::Remove(NodeId node) {
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].id != node) continue;
    members.erase(members.begin() + static_cast<ptrdiff_t>(i));
    capacities.erase(capacities.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

std::shared_ptr<const ClusterView> Configuration::View() const {
  return std::make_shared<const ClusterView>(id, manager, members);
}

std::string Encode(const Configuration& configuration) {
  pb::Configuration message;
  ToProto(configuration, &message);
  return message.SerializeAsString();
}

absl::StatusOr<Configuration> DecodeConfiguration(std::string_view bytes) {
  pb::Configuration message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the bytes are no configuration");
  }
  return FromProto(message);
}

absl::Status Validate(const Configuration& c) {
  auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("configuration ", c.id.value(), ": ", what));
  };
  if (c.id == ConfigId()) return bad("it has no id");
  if (c.cluster_id.size() != 32) return bad("it names no cluster");
  const Member* manager = c.Find(c.manager);
  if (manager == nullptr || manager->role != Role::kStorage) {
    return bad(absl::StrCat("the manager, node ", c.manager.value(), ", is no storage member"));
  }
  if (c.first_region == 0) return bad("region id 0 is reserved");
  if (c.replicas == 0 || c.replicas > 16) return bad(absl::StrCat(c.replicas, " replicas"));
  if (c.lease_ns < kMinLeaseNs || c.lease_ns > kMaxLeaseNs) {
    return bad(absl::StrCat("a lease of ", c.lease_ns, " ns"));
  }
  if (c.fabric.empty() || c.fabric.size() > 16) return bad("it names no fabric");
  if (c.members.size() > kMaxMembers) return bad(absl::StrCat(c.members.size(), " members"));
  absl::flat_hash_set<NodeId> ids;
  for (const Member& m : c.members) {
    if (!ids.insert(m.id).second) return bad(absl::StrCat("node ", m.id.value(), " is there twice"));
  }
  return absl::OkStatus();
}

}  // namespace furrow::cluster
