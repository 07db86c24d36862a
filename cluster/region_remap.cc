// RegionTable: what becomes of the regions when members are lost, and how a new manager learns of them.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/region_table.h"

namespace furrow::cluster {
namespace {

constexpr size_t kNamedRegions = 8;  // in an error

const Replica* At(const RegionMapping& mapping, NodeId node) {
  for (const Replica& r : mapping.replicas) {
    if (r.node == node) return &r;
  }
  return nullptr;
}

// The whole group, at one node.
bool CompleteAt(const std::vector<RegionMapping*>& regions, NodeId node) {
  return std::all_of(regions.begin(), regions.end(), [&](const RegionMapping* m) {
    const Replica* r = At(*m, node);
    return r != nullptr && r->complete;
  });
}

absl::Status NothingLeft(const std::vector<RegionId>& lost) {
  std::string ids;
  for (size_t i = 0; i < lost.size() && i < kNamedRegions; ++i) {
    absl::StrAppend(&ids, i == 0 ? "" : ", ", lost[i].value());
  }
  if (lost.size() > kNamedRegions) absl::StrAppend(&ids, " and ", lost.size() - kNamedRegions, " more");
  return absl::DataLossError(
      absl::StrCat(lost.size() == 1 ? "region " : "regions ", ids, lost.size() == 1 ? " has" : " have",
                   " no complete copy left: too many of the members that held one are lost, and the cluster "
                   "cannot go on without that data"));
}

}  // namespace

std::map<RegionId, RegionTable::Group> RegionTable::Groups() {
  std::map<RegionId, Group> groups;
  for (auto& [id, mapping] : regions_) {
    Group& group = groups[mapping.locality];
    group.regions.push_back(&mapping);
    group.primary = mapping.primary().node;
  }
  return groups;
}

bool RegionTable::Survives(const Group& group, NodeId node, const Configuration& next) {
  const StorageLoad* load = Load(node);
  const Member* member = next.Find(node);
  if (load == nullptr || member == nullptr || member->incarnation != load->incarnation) return false;
  if (!refused_.contains(node)) return true;
  return std::all_of(group.regions.begin(), group.regions.end(), [&](const RegionMapping* m) {
    const Replica* r = At(*m, node);
    return r != nullptr && r->memory.key != rdma::RemoteKey();
  });
}

absl::StatusOr<RegionTable::Remapped> RegionTable::Remap(const Configuration& next) {
  std::map<RegionId, Group> groups = Groups();
  std::vector<RegionId> lost;
  for (auto& [locality, group] : groups) {
    for (const Replica& r : group.regions[0]->replicas) {
      if (Survives(group, r.node, next)) group.left.push_back(r.node);
    }
    group.shrunk = group.left.size() < group.regions[0]->replicas.size();
    if (std::none_of(group.left.begin(), group.left.end(),
                     [&](NodeId node) { return CompleteAt(group.regions, node); })) {
      for (const RegionMapping* m : group.regions) lost.push_back(m->id);
    }
  }
  if (!lost.empty()) {
    std::sort(lost.begin(), lost.end());
    return NothingLeft(lost);
  }

  SetConfiguration(next);
  groups_under_way_.clear();
  names_under_way_.clear();
  refused_.clear();
  // All go before anybody is promoted, and all are promoted before anything is placed: by what is left.
  for (auto& [locality, group] : groups) {
    for (RegionMapping* m : group.regions) {
      std::erase_if(m->replicas, [&](const Replica& r) {
        return std::find(group.left.begin(), group.left.end(), r.node) == group.left.end();
      });
    }
  }
  CountLoads();
  Remapped result;
  for (auto& [locality, group] : groups) {
    group.promotes = group.left[0] != group.primary || !CompleteAt(group.regions, group.primary);
    if (group.promotes) Load(group.left[0])->primaries -= group.regions.size();
  }
  for (auto& [locality, group] : groups) {
    if (group.promotes) Promote(group);
  }
  for (auto& [locality, group] : groups) {
    if (group.shrunk) AddBackups(group, &result);
    MarkChanged(group, &result);
    result.missing += group.regions.size() * (copies_ - std::min<size_t>(copies_, group.left.size()));
  }
  prepared_.clear();
  IndexGroups();
  std::sort(result.changed.begin(), result.changed.end());
  return result;
}

// The complete backup that is primary of the fewest regions.
void RegionTable::Promote(Group& group) {
  auto rank = [&](NodeId node) {
    return std::tuple(!CompleteAt(group.regions, node), Load(node)->primaries, node);
  };
  const NodeId chosen = *std::min_element(group.left.begin(), group.left.end(),
                                          [&](NodeId a, NodeId b) { return rank(a) < rank(b); });
  Load(chosen)->primaries += group.regions.size();
  std::stable_partition(group.left.begin(), group.left.end(), [&](NodeId node) { return node == chosen; });
  for (RegionMapping* m : group.regions) {
    std::stable_partition(m->replicas.begin(), m->replicas.end(),
                          [&](const Replica& r) { return r.node == chosen; });
  }
}

void RegionTable::AddBackups(Group& group, Remapped* result) {
  while (group.left.size() < copies_) {
    const std::optional<NodeId> node = PlaceBackup(loads_, group.left, group.regions.size());
    if (!node.has_value()) return;
    group.left.push_back(*node);
    Load(*node)->replicas += group.regions.size();
    for (RegionMapping* m : group.regions) {
      m->replicas.push_back({.node = *node, .memory = {}, .complete = false});
      result->copies.push_back({m->id, *node});
    }
  }
}

void RegionTable::MarkChanged(const Group& group, Remapped* result) {
  for (RegionMapping* m : group.regions) {
    // Whose primary had not become active recovers again, from its start.
    const bool new_primary = group.promotes || !m->active;
    if (!group.shrunk && !new_primary && !prepared_.contains(m->id)) continue;
    m->config = config_;
    if (group.shrunk) m->last_replica_change = config_;
    if (new_primary) {
      m->last_primary_change = config_;
      m->active = false;
    }
    result->changed.push_back(m->id);
  }
}

void RegionTable::CountLoads() {
  for (StorageLoad& load : loads_) {
    load.replicas = ReplicasAt(load.id);
    load.primaries = PrimariesAt(load.id);
  }
}

void RegionTable::IndexGroups() {
  newest_.clear();
  named_.clear();
  for (const auto& [id, mapping] : regions_) {
    newest_[mapping.locality] = id;
    if (mapping.name != 0) named_[mapping.name] = id;
  }
}

std::vector<RegionMapping> RegionTable::ChangedSince(ConfigId since) const {
  std::vector<RegionMapping> changed;
  for (const auto& [id, mapping] : regions_) {
    if (mapping.config > since) changed.push_back(mapping);
  }
  return changed;
}

Replica* RegionTable::Find(NewCopy copy) {
  auto it = regions_.find(copy.region);
  return it == regions_.end() ? nullptr : const_cast<Replica*>(At(it->second, copy.node));
}

void RegionTable::Made(NewCopy copy, rdma::RemoteAddress memory) {
  if (Replica* replica = Find(copy)) replica->memory = memory;
}

void RegionTable::Refused(NodeId node) {
  StorageLoad* load = Load(node);
  if (load == nullptr) return;
  refused_.insert(node);
  uint64_t made = 0;
  for (const auto& [id, mapping] : regions_) {
    const Replica* r = At(mapping, node);
    if (r != nullptr && r->memory.key != rdma::RemoteKey()) ++made;
  }
  load->capacity = made;
}

void RegionTable::Completed(NewCopy copy) {
  if (Replica* replica = Find(copy)) replica->complete = true;
}

void RegionTable::Activate(RegionId id, ConfigId config, Timestamp floor) {
  auto it = regions_.find(id);
  if (it == regions_.end() || it->second.config != config || it->second.active) return;
  it->second.active = true;
  it->second.floor = floor;
}

void RegionTable::CollectMapping(const RegionMapping& mapping) {
  auto [it, added] = regions_.try_emplace(mapping.id, mapping);
  RegionMapping& known = it->second;
  if (added || mapping.config < known.config) return;
  if (mapping.config > known.config) {
    known = mapping;
  } else if (mapping.active && !known.active) {  // one of the two has heard REGION-ACTIVE
    known.active = true;
    known.floor = mapping.floor;
  }
}

void RegionTable::Collect(const Configuration& configuration, std::span<const Report> reports) {
  SetConfiguration(configuration);
  absl::flat_hash_set<NodeId> there;
  absl::flat_hash_map<std::pair<RegionId, NodeId>, const Report::Copy*> copies;
  absl::flat_hash_set<std::pair<RegionId, NodeId>> prepared;
  for (const Report& report : reports) {
    there.insert(report.node);
    if (report.ready) SetReady(report.node);
    for (const Report::Copy& c : report.copies) copies[{c.region, report.node}] = &c;
    for (const Plan& plan : report.prepared) prepared.insert({plan.id, report.node});
    for (const RegionMapping& mapping : report.mappings) CollectMapping(mapping);
  }
  for (const Report& report : reports) {
    for (const Plan& plan : report.prepared) {
      if (regions_.contains(plan.id)) continue;
      const bool everywhere = std::all_of(plan.replicas.begin(), plan.replicas.end(), [&](NodeId node) {
        return !there.contains(node) || prepared.contains({plan.id, node});
      });
      if (everywhere) Prepared(plan, std::vector<rdma::RemoteAddress>(plan.replicas.size()));
    }
  }
  // Each holder knows its own copies best.
  for (auto& [id, mapping] : regions_) {
    for (Replica& replica : mapping.replicas) {
      if (!there.contains(replica.node)) continue;
      auto copy = copies.find({id, replica.node});
      replica.memory = copy == copies.end() ? rdma::RemoteAddress() : copy->second->memory;
      replica.complete = copy != copies.end() && copy->second->complete;
    }
  }
  CountLoads();
  IndexGroups();
}

}  // namespace furrow::cluster
