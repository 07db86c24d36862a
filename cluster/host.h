// MemberHost: what the cluster needs of the process that it runs in: memory for replicas, rings to new
// members, figures for status. client/ implements it with txn::Node; tests with fakes.
#ifndef FURROW_CLUSTER_HOST_H_
#define FURROW_CLUSTER_HOST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cluster/view.h"

namespace furrow::cluster {

struct ReplicaSpec {
  RegionId id;
  RegionId locality;
  uint64_t bytes = 0;
  ConfigId config;
  bool primary = false;
};

// Figures of one member. Counters count from its start.
struct MemberReport {
  uint64_t memory_limit = 0;  // bytes
  uint64_t memory_used = 0;
  std::map<std::string, uint64_t> memory_by_kind;
  uint64_t huge_page_bytes = 0;
  uint64_t committed = 0;
  uint64_t read_only = 0;  // of the committed ones
  uint64_t unknown = 0;
  std::map<std::string, uint64_t> aborted;  // by reason
  uint64_t local_reads = 0;
  uint64_t remote_reads = 0;
  uint64_t distributed = 0;
  uint64_t applied = 0;
  uint64_t written = 0;  // transactions, from anywhere, that wrote here as at a primary
};

// Why the cluster is no more, for this member.
struct ClusterEnd {
  bool in_good_order = false;  // somebody stopped it; otherwise something was lost
  std::string why;             // one sentence
  NodeId lost{};               // the member whose silence or broken connection is the reason; 0: none
};

// Called on threads of gRPC or on the control thread, never on a worker. Thread-safe. Except where it says
// so, a call may take as long as it needs, but not wait for another call of the cluster.
class MemberHost {
 public:
  virtual ~MemberHost() = default;

  // PREPARE of a region: creates this node's copy, zeroed; idempotent. ResourceExhausted: no memory.
  virtual absl::StatusOr<rdma::RemoteAddress> CreateReplica(const ReplicaSpec& spec) = 0;
  // COMMIT of a region of which this node has a copy; the directory knows it already. If this is the primary,
  // allocation from it begins now.
  virtual void CommitReplica(const RegionMapping& mapping) = 0;
  // ABORT: the region was not committed: nobody has learnt of it.
  virtual void ReleaseReplica(RegionId id) = 0;

  // NEW-CONFIG. Adopts the view: accepts its members as peers and sends nothing to others. Returns when this
  // member's workers have rings to every storage member of the view; with `joining` (this member is itself
  // the new one) it opens none yet, since its peers do not know it.
  virtual absl::Status OnNewConfiguration(std::shared_ptr<const ClusterView> view, bool joining) = 0;
  // NEW-CONFIG-COMMIT: every member has adopted it.
  virtual void OnConfigurationCommitted(ConfigId config) = 0;

  // On the manager, when the cluster has enough storage members for its number of copies and its first
  // region: makes what lies in there from the start. Every member can be reached over the rings. Until it
  // returns nobody else gets a region.
  virtual absl::Status OnFounded(RegionId first_region) = 0;

  virtual MemberReport Report() = 0;

  // Once, and nothing after it. The cluster is over: serve nothing, report nothing. Does not block.
  virtual void OnEnded(const ClusterEnd& end) = 0;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_HOST_H_
