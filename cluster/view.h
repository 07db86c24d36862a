// What the cluster layer exports to transactions: the configuration (ClusterView, immutable), the regions'
// places (RegionMapping, RegionDirectory), and the seams to time, leases, the safe point and reconfiguration.
#ifndef FURROW_CLUSTER_VIEW_H_
#define FURROW_CLUSTER_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "rdma/fabric.h"

namespace furrow::cluster {

enum class Role : uint8_t { kStorage, kCompute };

// A process that takes part. Only storage members hold regions, vote and become configuration manager.
struct Member {
  NodeId id;
  Incarnation incarnation;
  Role role = Role::kStorage;
  std::string failure_domain;
  std::string control_address;  // gRPC, host:port
  rdma::Endpoint fabric_endpoint;
  uint16_t workers = 1;
  rdma::RemoteAddress old_versions;  // of its old-version arena; key 0 for compute members
  uint64_t old_version_bytes = 0;    // the arena's size
};

// A configuration <i, S, F, CM> (SOSP'15 section 3). Immutable; replaced as a whole.
class ClusterView {
 public:
  ClusterView(ConfigId id, NodeId manager, std::vector<Member> members);

  ConfigId id() const { return id_; }
  NodeId manager() const { return manager_; }
  const std::vector<Member>& members() const { return members_; }  // by ascending id
  const Member* Find(NodeId id) const;
  bool Contains(NodeId id) const { return Find(id) != nullptr; }

 private:
  ConfigId id_;
  NodeId manager_;
  std::vector<Member> members_;
};

// Where one copy of a region lies.
struct Replica {
  NodeId node;
  rdma::RemoteAddress memory;  // of offset 0; readable by members. Key 0: not made yet (a new backup)
  // It has all of the region's data, so that it may become primary. A new backup takes part in commits from
  // its first configuration on, and is complete once it has copied what was there before.
  bool complete = true;
};

// A region's place; replicated with the region, fetched on demand and cached. Immutable but for later
// configurations, which bring a new mapping.
struct RegionMapping {
  RegionId id;
  uint64_t bytes = 0;
  // The first region of its locality group. The regions of a group have the same primary and backups, so that
  // what is allocated near each other stays together.
  RegionId locality;
  uint64_t name = 0;              // of the group, in its first region: see AllocateRegionRequest; 0: none
  std::vector<Replica> replicas;  // [0] is the primary
  ConfigId config;                // in which this mapping was made: of two, the higher wins
  ConfigId last_primary_change;
  ConfigId last_replica_change;
  Timestamp floor;  // cluster time at which the primary became active: no snapshot below it is readable
  // False: the primary is new and recovers the locks (SOSP'15 section 5.3, step 4): nobody reads, locks or
  // validates there. REGION-ACTIVE ends that (RegionDirectory::Activate()).
  bool active = true;

  const Replica& primary() const { return replicas[0]; }
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_VIEW_H_
