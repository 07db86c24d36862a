#include "txn/recovery/recovering.h"

#include <algorithm>
#include <vector>

namespace furrow::txn {

bool Recovers(const TxId& id, Incarnation coordinator, std::span<const RegionId> written,
              const cluster::ClusterView& view, const cluster::RegionDirectory& directory) {
  if (id.config >= view.id()) return false;
  const cluster::Member* member = view.Find(id.node);
  if (member == nullptr || member->incarnation != coordinator) return true;
  return std::any_of(written.begin(), written.end(), [&](RegionId region) {
    const cluster::RegionMapping* mapping = directory.Find(region);
    return mapping != nullptr && mapping->last_replica_change > id.config;
  });
}

const cluster::Member* RecoveryCoordinatorOf(const TxId& id, const cluster::ClusterView& view) {
  std::vector<const cluster::Member*> storage;
  for (const cluster::Member& member : view.members()) {
    if (member.role != cluster::Role::kStorage) continue;
    if (member.id == id.node) return &member;
    storage.push_back(&member);
  }
  if (storage.empty()) return nullptr;
  const uint64_t hash =
      (id.node.value() * 0x9e3779b97f4a7c15u) ^ (id.local * 0xc2b2ae3d27d4eb4fu) ^ id.worker.value();
  return storage[(hash >> 17) % storage.size()];
}

}  // namespace furrow::txn
