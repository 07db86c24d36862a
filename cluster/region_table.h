// RegionTable: the manager's knowledge of all regions, and the state of allocations under way. Input in,
// decision out; who sends the messages is the caller's business (ControlService).
//
//   Begin() --> kExisting: the caller does not know the newest region of the group, or the new group of this
//               name was made before; here it is
//           --> kWait: the group has an allocation under way; ask again when it has ended
//           --> kPrepare: PREPARE at all replicas, then Prepared(), COMMIT at all replicas, Committed(); or
//               Failed()
// One allocation is under way per group. Not thread-safe.
#ifndef FURROW_CLUSTER_REGION_TABLE_H_
#define FURROW_CLUSTER_REGION_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cluster/configuration.h"
#include "cluster/placement.h"
#include "cluster/seams.h"

namespace furrow::cluster {

class RegionTable {
 public:
  struct Plan {
    RegionId id;
    RegionId locality;
    uint64_t name = 0;  // of a new group
    uint64_t bytes = 0;
    ConfigId config;
    std::vector<NodeId> replicas;  // primary first
  };
  enum class Kind { kExisting, kWait, kPrepare, kNeedIds };
  struct Decision {
    Kind kind = Kind::kExisting;
    const RegionMapping* existing = nullptr;
    Plan plan;
  };

  // Takes a configuration over; regions that are known stay. Storage members that are gone keep their entries
  // in mappings.
  void SetConfiguration(const Configuration& configuration);
  // New storage members hold no region before they have said that they are ready.
  void SetReady(NodeId node);
  size_t ready_members() const;

  // NotFound: `near` names no region. ResourceExhausted: no room. kNeedIds: the reserved range is used up;
  // reserve the next one by a configuration change and ask again.
  absl::StatusOr<Decision> Begin(const AllocateRegionRequest& request);
  // All replicas have memory for it: Find() finds it from now on. Before the first replica is told to commit,
  // since its primary may then hand out addresses in it, whose users ask for the mapping.
  const RegionMapping* Prepared(const Plan& plan, std::vector<rdma::RemoteAddress> memories);
  const RegionMapping* Committed(const Plan& plan);
  // The id is not used again. A member that had no memory left, in spite of its capacity, counts as full from
  // now on (0: none of them).
  void Failed(const Plan& plan, NodeId full);

  const RegionMapping* Find(RegionId id) const;
  // By id, at most `limit`, from `first` on.
  std::vector<const RegionMapping*> From(RegionId first, size_t limit) const;
  size_t size() const { return regions_.size(); }
  // Regions of which the node holds a copy, and those of which it is primary.
  uint64_t ReplicasAt(NodeId node) const;
  uint64_t PrimariesAt(NodeId node) const;
  // The first id that was never given out.
  uint32_t next_id() const { return next_id_; }

 private:
  StorageLoad* Load(NodeId node);

  ConfigId config_;
  uint32_t copies_ = 1;
  uint64_t region_bytes_ = 0;
  uint32_t next_id_ = 1;
  uint32_t end_id_ = 1;
  std::vector<StorageLoad> loads_;
  std::map<RegionId, RegionMapping> regions_;
  absl::flat_hash_map<RegionId, RegionId> newest_;  // of a locality group
  absl::flat_hash_set<RegionId> groups_under_way_;
  // New groups by the names that requests gave them: at most one for each region, which is why none is
  // forgotten.
  absl::flat_hash_map<uint64_t, RegionId> named_;
  absl::flat_hash_set<uint64_t> names_under_way_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_REGION_TABLE_H_
