// Where the copies of a locality group go. Pure.
#ifndef FURROW_CLUSTER_PLACEMENT_H_
#define FURROW_CLUSTER_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace furrow::cluster {

// A storage member as placement sees it.
struct StorageLoad {
  NodeId id;
  std::string failure_domain;
  uint64_t capacity = 0;  // regions that its memory holds
  uint64_t replicas = 0;  // regions that it holds, primaries included
  uint64_t primaries = 0;
  bool ready = true;  // it has said that it is
  Incarnation incarnation{};
  bool has_room() const { return ready && replicas < capacity; }
};

// Primary first. The primary is `preferred` if that has room (0: nobody is), else the member with room and
// the fewest primaries, whatever table or group they belong to, then the most room. Each backup is in a
// failure domain of its own as long as there is one with room; among those the member with the fewest
// replicas. ResourceExhausted: fewer than `copies` members have room.
absl::StatusOr<std::vector<NodeId>> Place(std::span<const StorageLoad> members, uint32_t copies,
                                          NodeId preferred);

// One more backup for a group of `regions` regions whose other copies are at `holders`, by the same rules.
// Null: nobody else has room for all of them.
std::optional<NodeId> PlaceBackup(std::span<const StorageLoad> members, std::span<const NodeId> holders,
                                  uint64_t regions);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_PLACEMENT_H_
