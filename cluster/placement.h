// Where the copies of a new locality group go. Pure.
#ifndef FURROW_CLUSTER_PLACEMENT_H_
#define FURROW_CLUSTER_PLACEMENT_H_

#include <cstdint>
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
  bool has_room() const { return ready && replicas < capacity; }
};

// Primary first. The primary is `preferred` if that has room (0: nobody is), else the member with room and
// the fewest primaries, whatever table or group they belong to, then the most room. Each backup is in a
// failure domain of its own as long as there is one with room; among those the member with the fewest
// replicas. ResourceExhausted: fewer than `copies` members have room.
absl::StatusOr<std::vector<NodeId>> Place(std::span<const StorageLoad> members, uint32_t copies,
                                          NodeId preferred);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_PLACEMENT_H_
