#include "cluster/placement.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace furrow::cluster {

absl::StatusOr<std::vector<NodeId>> Place(std::span<const StorageLoad> members, uint32_t copies,
                                          NodeId preferred) {
  std::vector<const StorageLoad*> left;
  for (const StorageLoad& m : members) {
    if (m.has_room()) left.push_back(&m);
  }
  if (left.size() < copies) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a region needs ", copies, " storage members with room for it, and ", left.size(),
                     " of ", members.size(),
                     " have it: add storage members or give them more memory (MemberOptions::memory_bytes)"));
  }
  std::vector<NodeId> chosen;
  absl::flat_hash_set<std::string> domains;
  auto take = [&](auto rank) {
    auto best = std::min_element(left.begin(), left.end(), [&](const StorageLoad* a, const StorageLoad* b) {
      return rank(*a) < rank(*b);
    });
    chosen.push_back((*best)->id);
    domains.insert((*best)->failure_domain);
    left.erase(best);
  };
  take([&](const StorageLoad& m) {
    const uint64_t no_room = std::numeric_limits<uint64_t>::max() - (m.capacity - m.replicas);
    return std::tuple(m.id != preferred, m.primaries, no_room, m.id);
  });
  while (chosen.size() < copies) {
    take([&](const StorageLoad& m) {
      return std::tuple(domains.contains(m.failure_domain), m.replicas, m.primaries, m.id);
    });
  }
  return chosen;
}

std::optional<NodeId> PlaceBackup(std::span<const StorageLoad> members, std::span<const NodeId> holders,
                                  uint64_t regions) {
  auto holds = [&](NodeId node) { return std::find(holders.begin(), holders.end(), node) != holders.end(); };
  absl::flat_hash_set<std::string> domains;
  for (const StorageLoad& m : members) {
    if (holds(m.id)) domains.insert(m.failure_domain);
  }
  auto rank = [&](const StorageLoad& m) {
    return std::tuple(domains.contains(m.failure_domain), m.replicas, m.primaries, m.id);
  };
  const StorageLoad* best = nullptr;
  for (const StorageLoad& m : members) {
    if (!m.ready || m.replicas + regions > m.capacity || holds(m.id)) continue;
    if (best == nullptr || rank(m) < rank(*best)) best = &m;
  }
  if (best == nullptr) return std::nullopt;
  return best->id;
}

}  // namespace furrow::cluster
