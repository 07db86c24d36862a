#include "txn/node.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow::txn {

Node::Node(NodeOptions node_options, const Clock& node_clock, rdma::Fabric& node_fabric,
           MemoryFactory memory_factory, const cluster::TimestampSource& timestamp_source,
           const cluster::Lease& node_lease, cluster::SafePoint& node_safe_point,
           cluster::RegionDirectory& region_directory, storage::OldVersionArena* arena,
           storage::MemoryBudget& memory_budget)
    : options(std::move(node_options)),
      clock(node_clock),
      fabric(node_fabric),
      memory(std::move(memory_factory)),
      timestamps(timestamp_source),
      lease(node_lease),
      safe_point(node_safe_point),
      directory(region_directory),
      old_versions(arena),
      budget(memory_budget) {}

Node::~Node() = default;

absl::StatusOr<rdma::RemoteAddress> Node::CreateReplica(RegionId id, RegionId locality, uint64_t bytes,
                                                        ConfigId config, bool primary) {
  MutexLock lock(&mutex_);
  for (const Replica& replica : replicas_) {
    if (replica.id == id) return replica.registration->remote_address();
  }
  FURROW_RETURN_IF_ERROR(budget.Charge("regions", bytes));
  absl::StatusOr<rdma::RemoteAddress> made = MakeReplica(id, locality, bytes, config, primary);
  if (!made.ok()) budget.Release("regions", bytes);
  return made;
}

absl::StatusOr<rdma::RemoteAddress> Node::MakeReplica(RegionId id, RegionId locality, uint64_t bytes,
                                                      ConfigId config, bool primary) {
  FURROW_ASSIGN_OR_RETURN(MemoryFile file, memory(absl::StrCat("region-", id.value()), bytes));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<storage::Region> region,
                          storage::Region::Create(std::move(file), id, config, options.cluster_hash));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::MemoryRegion> registration,
                          fabric.Register(region->file(), rdma::Access::kRead));
  storage::Region& added = *region;
  FURROW_RETURN_IF_ERROR(regions.Add(std::move(region)));
  if (primary) allocator.AddRegion(added, locality);
  rdma::RemoteAddress address = registration->remote_address();
  replicas_.push_back(Replica{id, std::move(registration)});
  return address;
}

void Node::ReleaseReplica(RegionId id) {
  MutexLock lock(&mutex_);
  auto it = std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& r) { return r.id == id; });
  if (it == replicas_.end()) return;
  replicas_.erase(it);
  std::unique_ptr<storage::Region> region = regions.Remove(id);
  budget.Release("regions", region->bytes());
  // What cannot be unlinked lies in the node's memory directory, which is removed as a whole when it stops.
  const std::string& path = region->file().path();
  if (!path.empty()) unlink(path.c_str());
}

void Node::SetView(std::shared_ptr<const cluster::ClusterView> view, bool committed) {
  MutexLock lock(&mutex_);
  if (!views_.empty() && committed) {
    // Members leave in good order, with their transactions ended: the slots that they had leased are free
    // again.
    for (const cluster::Member& member : views_.back()->members()) {
      if (!view->Contains(member.id)) allocator.RevokeLeases(member.id);
    }
  }
  if (committed) committed_.store(view->id().value(), std::memory_order_release);
  current_.store(view.get(), std::memory_order_release);
  views_.push_back(std::move(view));
}

void Node::RevokeLeasesOfStrangers() {
  MutexLock lock(&mutex_);
  for (const auto& view : views_) {
    for (const cluster::Member& member : view->members()) {
      if (!views_.back()->Contains(member.id)) allocator.RevokeLeases(member.id);
    }
  }
}

void Node::SetCommitted(ConfigId config) { committed_.store(config.value(), std::memory_order_release); }

std::shared_ptr<const cluster::ClusterView> Node::view() const {
  MutexLock lock(&mutex_);
  return views_.empty() ? nullptr : views_.back();
}

}  // namespace furrow::txn
