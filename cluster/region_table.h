// RegionTable: the manager's knowledge of all regions, the state of allocations under way, and what a loss of
// members does to the regions. Input in, decision out; who sends the messages is the caller's business.
//
// Invariants, after each call:
//   (1) the regions of a locality group have the same replicas in the same order
//   (2) the primary is complete, and so is the whole group at its node
//   (3) of two mappings of a region the one with the higher configuration is the newer; what a configuration
//       has not changed keeps the older one
//   (4) a name and an id stand for one region, whichever configurations follow
//
// Allocation:
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
#include <span>
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
  // A Remap() in between has decided about the region: then both change nothing, and Committed() returns the
  // mapping that it has now (null: none).

  // --- loss of members (region_remap.cc) ---
  // A new backup, which its node has to make.
  struct NewCopy {
    RegionId region;
    NodeId node;
    friend bool operator==(const NewCopy&, const NewCopy&) = default;
  };
  struct Remapped {
    std::vector<RegionId> changed;  // by id: those whose mapping is of the new configuration
    std::vector<NewCopy> copies;
    uint64_t missing = 0;  // copies that all regions lack, since nobody has room for them
  };
  // SOSP'15 section 5.2, step 4. Takes the configuration over. Each group that has lost a copy gets: without
  // it; a complete backup as primary, where that is lost; new backups where there is room. (A group that has
  // lost nothing is not touched: who comes, or leaves without copies, stops nobody.) Where the primary is
  // new, or had not become active, the region is not active. Regions that were prepared are rolled forward,
  // and other allocations under way are forgotten. DataLoss: regions without a node that has a complete copy
  // of their group; the error names them, and nothing has changed.
  absl::StatusOr<Remapped> Remap(const Configuration& next);
  // Of one change, for a member that has adopted `since`.
  std::vector<RegionMapping> ChangedSince(ConfigId since) const;

  // The new backup is there, at this address. / Its node has no memory for it: it counts as full, and the
  // next Remap() takes the copies from it that it has not made.
  void Made(NewCopy copy, rdma::RemoteAddress memory);
  void Refused(NodeId node);
  // The copy has all data, and no transaction recovers any more that it could have missed.
  void Completed(NewCopy copy);
  // REGION-ACTIVE. Ignored if the mapping is of another configuration.
  void Activate(RegionId id, ConfigId config, Timestamp floor);

  // What a member tells a new manager.
  struct Report {
    NodeId node;
    bool ready = true;
    std::vector<RegionMapping> mappings{};  // all that it knows, of any region
    struct Copy {
      RegionId region;
      rdma::RemoteAddress memory;
      bool complete = true;
    };
    std::vector<Copy> copies{};    // those that it holds, prepared ones too
    std::vector<Plan> prepared{};  // of which it has heard PREPARE, and neither COMMIT nor ABORT
  };
  // For a new, empty table, before its first Remap(): `configuration` is the one before that, and `reports`
  // are those of all its members that are still there. A region that was prepared exists if each of its
  // holders that is still there has prepared it: then it may have been committed. Otherwise it was not, and
  // its holders release it when they learn of a configuration without it.
  void Collect(const Configuration& configuration, std::span<const Report> reports);

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
  // A locality group while it is remapped.
  struct Group {
    std::vector<RegionMapping*> regions;
    std::vector<NodeId> left;  // its holders that are still there, in order
    NodeId primary;            // before
    bool shrunk = false;
    bool promotes = false;
  };
  StorageLoad* Load(NodeId node);
  Replica* Find(NewCopy copy);
  std::map<RegionId, Group> Groups();
  // Is there in `next`, in the same life, and makes its copy if it has not.
  bool Survives(const Group& group, NodeId node, const Configuration& next);
  void Promote(Group& group);
  void AddBackups(Group& group, Remapped* result);
  void MarkChanged(const Group& group, Remapped* result);
  void CollectMapping(const RegionMapping& mapping);
  void CountLoads();
  void IndexGroups();

  ConfigId config_;
  uint32_t copies_ = 1;
  uint64_t region_bytes_ = 0;
  uint32_t next_id_ = 1;
  uint32_t end_id_ = 1;
  std::vector<StorageLoad> loads_;
  std::map<RegionId, RegionMapping> regions_;
  absl::flat_hash_map<RegionId, RegionId> newest_;  // of a locality group
  absl::flat_hash_set<RegionId> groups_under_way_;
  absl::flat_hash_set<RegionId> prepared_;  // regions that were Prepared() and not yet Committed()
  absl::flat_hash_set<NodeId> refused_;     // since the last Remap()
  // New groups by the names that requests gave them: at most one for each region, which is why none is
  // forgotten.
  absl::flat_hash_map<uint64_t, RegionId> named_;
  absl::flat_hash_set<uint64_t> names_under_way_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_REGION_TABLE_H_
