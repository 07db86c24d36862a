#include "cluster/view.h"

#include <algorithm>

namespace furrow::cluster {

ClusterView::ClusterView(ConfigId id, NodeId manager, std::vector<Member> members)
    : id_(id), manager_(manager), members_(std::move(members)) {
  std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) { return a.id < b.id; });
}

const Member* ClusterView::Find(NodeId id) const {
  for (const Member& m : members_) {
    if (m.id == id) return &m;
  }
  return nullptr;
}

}  // namespace furrow::cluster
