#include "cluster/region_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "cluster/region_directory.h"

namespace furrow::cluster {
namespace {

// Regions of a member that are not made ahead of need: one group's forecast must not take what another one
// waits for.
uint64_t KeptForNeed(uint64_t capacity) { return std::max<uint64_t>(1, capacity / 8); }

}  // namespace

void RegionTable::SetConfiguration(const Configuration& configuration) {
  config_ = configuration.id;
  copies_ = configuration.replicas;
  region_bytes_ = configuration.region_bytes;
  next_id_ = std::max(next_id_, configuration.first_region);
  end_id_ = configuration.first_region + kRegionRange;
  std::vector<StorageLoad> loads;
  for (const Member& m : configuration.members) {
    if (m.role != Role::kStorage) continue;
    StorageLoad load;
    if (const StorageLoad* known = Load(m.id); known != nullptr && known->incarnation == m.incarnation) {
      load = *known;
    } else {
      load.id = m.id;
      load.incarnation = m.incarnation;
      load.capacity = configuration.CapacityOf(m.id);
      load.ready = false;
    }
    load.failure_domain = m.failure_domain;
    loads.push_back(std::move(load));
  }
  loads_ = std::move(loads);
}

void RegionTable::SetReady(NodeId node) {
  if (StorageLoad* load = Load(node)) load->ready = true;
}

size_t RegionTable::ready_members() const {
  return static_cast<size_t>(
      std::count_if(loads_.begin(), loads_.end(), [](const StorageLoad& l) { return l.ready; }));
}

StorageLoad* RegionTable::Load(NodeId node) {
  for (StorageLoad& load : loads_) {
    if (load.id == node) return &load;
  }
  return nullptr;
}

absl::StatusOr<RegionTable::Decision> RegionTable::Begin(const AllocateRegionRequest& request) {
  Decision decision;
  Plan& plan = decision.plan;
  if (request.near != RegionId()) {
    const RegionMapping* near = Find(request.near);
    if (near == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("there is no region ", request.near.value(), " to allocate near to"));
    }
    plan.locality = near->locality;
    // A group that is new may have no region yet that was committed everywhere.
    if (auto newest = newest_.find(plan.locality);
        newest != newest_.end() && newest->second > request.newest_known) {
      decision.existing = Find(newest->second);
      return decision;
    }
    if (groups_under_way_.contains(plan.locality)) {
      decision.kind = Kind::kWait;
      return decision;
    }
    for (const Replica& r : near->replicas) {
      plan.replicas.push_back(r.node);
      const StorageLoad* load = Load(r.node);
      if (load == nullptr || !load->has_room()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "node ", r.node.value(), ", which holds the locality group of region ", request.near.value(),
            ", has no room for another region: give it more memory (MemberOptions::memory_bytes) or delete "
            "data"));
      }
      if (request.ahead && load->capacity - load->replicas <= KeptForNeed(load->capacity)) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "node ", r.node.value(), " keeps its last room for regions that somebody waits for"));
      }
    }
  } else {
    plan.name = request.name;
    if (auto known = named_.find(plan.name); known != named_.end()) {
      decision.existing = Find(known->second);
      return decision;
    }
    if (names_under_way_.contains(plan.name)) {
      decision.kind = Kind::kWait;
      return decision;
    }
    FURROW_ASSIGN_OR_RETURN(plan.replicas, Place(loads_, copies_, request.preferred_primary));
  }
  if (next_id_ >= end_id_) {
    if (next_id_ >= RegionDirectory::kMaxRegions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("all ", RegionDirectory::kMaxRegions, " region ids are used up"));
    }
    decision.kind = Kind::kNeedIds;
    return decision;
  }
  decision.kind = Kind::kPrepare;
  plan.id = RegionId(next_id_++);
  if (plan.locality == RegionId()) plan.locality = plan.id;
  plan.bytes = region_bytes_;
  plan.config = config_;
  groups_under_way_.insert(plan.locality);
  if (plan.name != 0) names_under_way_.insert(plan.name);
  // Room is taken now, so that allocations under way at once do not share it.
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    StorageLoad* load = Load(plan.replicas[i]);
    ++load->replicas;
    if (i == 0) ++load->primaries;
  }
  return decision;
}

const RegionMapping* RegionTable::Prepared(const Plan& plan, std::vector<rdma::RemoteAddress> memories) {
  FURROW_CHECK(memories.size() == plan.replicas.size());
  RegionMapping& mapping = regions_[plan.id];
  mapping.id = plan.id;
  mapping.name = plan.name;
  mapping.bytes = plan.bytes;
  mapping.locality = plan.locality;
  for (size_t i = 0; i < memories.size(); ++i) mapping.replicas.push_back({plan.replicas[i], memories[i]});
  mapping.config = plan.config;
  mapping.last_primary_change = plan.config;
  mapping.last_replica_change = plan.config;
  mapping.floor = Timestamp();  // it was created empty: there is no history that could be missing
  prepared_.insert(plan.id);
  return &mapping;
}

const RegionMapping* RegionTable::Committed(const Plan& plan) {
  if (plan.config != config_) return Find(plan.id);
  prepared_.erase(plan.id);
  groups_under_way_.erase(plan.locality);
  names_under_way_.erase(plan.name);
  if (plan.name != 0) named_[plan.name] = plan.id;
  newest_[plan.locality] = plan.id;
  return &regions_.at(plan.id);
}

void RegionTable::Failed(const Plan& plan, NodeId full) {
  if (plan.config != config_) return;
  prepared_.erase(plan.id);
  groups_under_way_.erase(plan.locality);
  names_under_way_.erase(plan.name);
  regions_.erase(plan.id);
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    StorageLoad* load = Load(plan.replicas[i]);
    if (load == nullptr) continue;
    --load->replicas;
    if (i == 0) --load->primaries;
    if (load->id == full) load->capacity = load->replicas;
  }
}

const RegionMapping* RegionTable::Find(RegionId id) const {
  auto it = regions_.find(id);
  return it == regions_.end() ? nullptr : &it->second;
}

std::vector<const RegionMapping*> RegionTable::From(RegionId first, size_t limit) const {
  std::vector<const RegionMapping*> found;
  for (auto it = regions_.lower_bound(first); it != regions_.end() && found.size() < limit; ++it) {
    found.push_back(&it->second);
  }
  return found;
}

uint64_t RegionTable::ReplicasAt(NodeId node) const {
  return static_cast<uint64_t>(std::count_if(regions_.begin(), regions_.end(), [&](const auto& entry) {
    const auto& replicas = entry.second.replicas;
    return std::any_of(replicas.begin(), replicas.end(), [&](const Replica& r) { return r.node == node; });
  }));
}

uint64_t RegionTable::PrimariesAt(NodeId node) const {
  return static_cast<uint64_t>(std::count_if(regions_.begin(), regions_.end(), [&](const auto& entry) {
    return entry.second.primary().node == node;
  }));
}

}  // namespace furrow::cluster
