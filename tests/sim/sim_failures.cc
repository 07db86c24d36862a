// Members that die, and the manager that notices it: reconfiguration with drawn delays, as the members see
// it.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/sim_member.h"
#include "txn/recovery/worker_recovery.h"

namespace furrow::sim {

// One configuration on its way to the members.
struct SimCluster::Change {
  std::shared_ptr<const cluster::ClusterView> view;
  std::set<uint32_t> adopted;
  std::set<uint32_t> recovered;
  bool leases_are_over = false;
  bool committed = false;
};

bool SimCluster::IsMember(uint32_t node) const { return members_[node]->member; }

std::shared_ptr<const cluster::ClusterView> SimCluster::MakeView() const {
  std::vector<cluster::Member> described;
  NodeId manager;
  for (const auto& m : members_) {
    if (!m->member) continue;
    if (manager == NodeId()) manager = IdOf(m->index);
    cluster::Member& member = described.emplace_back();
    member.id = IdOf(m->index);
    member.incarnation = Incarnation(1);
    member.role = IsStorage(m->index) ? cluster::Role::kStorage : cluster::Role::kCompute;
    member.fabric_endpoint = absl::StrCat(m->index + 1);
    member.workers = options_.workers;
    member.old_versions = m->old_region->remote_address();
    member.old_version_bytes = m->old_memory.size();
  }
  return std::make_shared<const cluster::ClusterView>(config_, manager, std::move(described));
}

void SimCluster::Kill(uint32_t node) {
  FURROW_CHECK(options_.recovery);
  if (members_[node]->process.dead()) return;
  world_.Kill(members_[node]->process);
  world_.After(random_.Between(100 * kMicrosecond, 6 * kMillisecond), [this, node] { Evict(node); });
}

void SimCluster::Evict(uint32_t node) {
  FURROW_CHECK(options_.recovery);
  Member& member = *members_[node];
  if (!member.member) return;
  member.member = false;
  rounds_.Remove(IdOf(node));
  Reconfigure();
}

void SimCluster::EvictAtOnce(uint32_t node) {
  members_[node]->member = false;
  rounds_.Remove(IdOf(node));
  NextConfiguration();
  members_[node]->lease.Expire();
  const std::shared_ptr<Change> change = change_;
  for (auto& m : members_) {
    if (!m->member) continue;
    m->recovery->OnNewConfiguration({.view = change->view, .regions = regions_}, [] {});
    m->recovery->OnConfigurationCommitted(change->view->id(),
                                          [raw = m.get(), change] { change->recovered.insert(raw->index); });
  }
}

// What SOSP'15 section 5.2 calls remap.
void SimCluster::NextConfiguration() {
  config_ = ConfigId(config_.value() + 1);
  for (cluster::RegionMapping& mapping : regions_) {
    const NodeId primary = mapping.primary().node;
    const size_t before = mapping.replicas.size();
    std::erase_if(mapping.replicas, [this](const auto& r) { return !IsMember(r.node.value() - 1); });
    if (mapping.replicas.size() == before) continue;
    FURROW_CHECK(!mapping.replicas.empty());  // plans of failures leave one
    mapping.config = mapping.last_replica_change = config_;
    if (mapping.primary().node == primary) continue;
    mapping.last_primary_change = config_;
    mapping.active = false;
  }
  change_ = std::make_shared<Change>();
  change_->view = MakeView();
}

// NEW-CONFIG to every member.
void SimCluster::Reconfigure() {
  NextConfiguration();
  const std::shared_ptr<Change> change = change_;
  for (auto& m : members_) {
    if (!m->member) {
      // It has not heard of it, and serves for as long as its lease lasts.
      world_.After(random_.Between(0, options_.lease_ns), [raw = m.get()] { raw->lease.Expire(); });
      continue;
    }
    world_.After(random_.Between(1, kMillisecond), [this, raw = m.get(), change] {
      if (change != change_ || raw->process.dead()) return;
      cluster::Reconfiguration news{.view = change->view, .regions = regions_};
      raw->recovery->OnNewConfiguration(std::move(news), [this, raw, change] {
        world_.After(random_.Between(1, 200 * kMicrosecond),
                     [this, raw, change] { Adopted(change, raw->index); });
      });
    });
  }
  world_.After(options_.lease_ns, [this, change] {
    change->leases_are_over = true;
    CommitIfAdopted(change);
  });
}

void SimCluster::Adopted(const std::shared_ptr<Change>& change, uint32_t node) {
  change->adopted.insert(node);
  CommitIfAdopted(change);
}

void SimCluster::CommitIfAdopted(const std::shared_ptr<Change>& change) {
  if (change != change_ || change->committed || !change->leases_are_over) return;
  for (auto& m : members_) {
    if (m->member && !change->adopted.contains(m->index)) return;
  }
  change->committed = true;
  for (auto& m : members_) {
    if (!m->member) continue;
    world_.After(random_.Between(1, kMillisecond), [this, raw = m.get(), change] {
      if (change != change_ || raw->process.dead()) return;
      raw->recovery->OnConfigurationCommitted(change->view->id(),
                                              [raw, change] { change->recovered.insert(raw->index); });
    });
  }
}

bool SimCluster::Recovered() const {
  return std::all_of(members_.begin(), members_.end(), [this](const auto& m) {
    if (!m->member) return true;
    return !m->process.dead() && (change_ == nullptr || change_->recovered.contains(m->index));
  });
}

std::string SimCluster::DescribeRecovery() const {
  std::string text;
  for (const auto& m : members_) {
    absl::StrAppend(&text, "\n  node ", m->index + 1, m->member ? "" : " (no member)",
                    m->process.dead() ? " is dead" : "");
    if (m->process.dead() || m->recovery == nullptr) continue;
    for (const cluster::RegionMapping* mapping : m->directory.All()) {
      if (!mapping->active) absl::StrAppend(&text, "; region ", mapping->id.value(), " is not active");
    }
    if (!change_->recovered.contains(m->index)) absl::StrAppend(&text, "; not recovered");
    for (const auto& worker : m->workers) absl::StrAppend(&text, "; ", worker->recovery().Describe());
  }
  return text;
}

}  // namespace furrow::sim
