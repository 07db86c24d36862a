// Manager: what the configuration manager (CM) does besides being a member: admits and dismisses members,
// allocates regions, collects status, ends the cluster. The rules stand in Configuration, RegionTable,
// Placement and SafePointRounds; here is who is told what, in which order.
//
//   change of configuration (join, leave, more region ids), one at a time:
//     edit a copy -> compare-and-swap in the store
//                 -> NEW-CONFIG to all, the new member first -> all acknowledge
//                 -> NEW-CONFIG-COMMIT to all -> all acknowledge
//   allocation of a region, several at a time but none during a change:
//     plan -> PREPARE to all replicas -> all have it -> COMMIT to all replicas -> all acknowledge
//                                     \-> one refuses -> ABORT to those that have it
// A member that does not answer is lost; with it the cluster ends (there is no recovery yet).
//
// Thread-safe. Methods block for as long as the members take; they run on threads of gRPC.
#ifndef FURROW_CLUSTER_MANAGER_H_
#define FURROW_CLUSTER_MANAGER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "cluster/cluster_clock.h"
#include "cluster/config_store.h"
#include "cluster/control_client.h"
#include "cluster/control_server.h"
#include "cluster/host.h"
#include "cluster/lease_book.h"
#include "cluster/region_table.h"
#include "cluster/safe_point_rounds.h"

namespace furrow::cluster {

class Manager {
 public:
  struct Options {
    NodeId self;
    Nanos lease_ns = kDefaultLeaseNs;
    std::string clock_domain;                 // of this process; empty: no other shares its clock
    Nanos change_timeout_ns = 20 * kSecond;   // for a member to adopt a configuration
    Nanos prepare_timeout_ns = 60 * kSecond;  // for a member to create a region
    // Called with the reason when a member is lost.
    std::function<void(std::string why)> lost;
    // Told, after NEW-CONFIG-COMMIT, of each configuration; and of the one member that has left with it (0:
    // none).
    std::function<void(const Configuration&, NodeId left)> changed;
    // Told when the first region is there: see MemberHost::OnFounded().
    std::function<absl::Status(RegionId)> founded;
  };
  // `local` handles what the manager would send to itself. All references outlive the manager.
  Manager(Options options, std::unique_ptr<ConfigStore> store, ControlClient& client, ControlHandler& local,
          ClusterClock& clock);

  // Stores the first configuration. FailedPrecondition: the store holds one already.
  absl::Status Bootstrap(const Configuration& first);

  absl::Status Hello(const pb::HelloRequest& request, pb::HelloReply* reply);
  absl::Status Join(const pb::JoinRequest& request, pb::JoinReply* reply);
  // The last step of an admission. With it the cluster may have storage members enough for its first region;
  // then it is founded.
  absl::Status Ready(const pb::ReadyRequest& request);
  absl::Status Leave(const pb::LeaveRequest& request);
  // Unavailable: the cluster is not founded yet, since it lacks storage members.
  absl::StatusOr<RegionMapping> Allocate(AllocateRegionRequest request);
  // The region asked for first, then others from there on, at most `limit` in all. NotFound.
  absl::StatusOr<std::vector<RegionMapping>> Lookup(RegionId id, size_t limit);
  absl::Status Status(pb::ClusterStatusReply* reply);

  // Tells every other member that the cluster has ended, and calls `told` when all know it or cannot be
  // reached. Does not block.
  void Announce(const ClusterEnd& end, std::function<void()> told);
  // Nobody waits any more for anything; later requests are refused.
  void Stop();

  // One report of a member's beat; the answer to it.
  struct Safe {
    Timestamp global_oldest;
    Timestamp safe_point;
  };
  Safe Report(NodeId node, Timestamp oldest_active, Timestamp known_global);
  // LeaseBook::OnRequest(), and this member's own right after it, by the clock's LocalNow().
  struct Leased {
    Nanos term;
    Nanos right;
  };
  Leased Lease(NodeId node, Nanos now, Nanos counter);
  Nanos right() const;

  Configuration configuration() const;
  ConfigStore& store() { return *store_; }

 private:
  class ChangeScope;
  class AllocationScope;
  using Edit = std::function<absl::Status(Configuration*)>;
  // Carries one change through, within a ChangeScope. `joining`: told first; its failure undoes the change.
  // `left`: see Options::changed.
  absl::Status Change(const Edit& edit, NodeId joining, NodeId left);
  absl::Status Adopt(const Configuration& next, NodeId joining);
  absl::Status CheckJoin(const pb::JoinRequest& request, const Member& member);
  absl::Status FoundIfPossible();
  absl::StatusOr<RegionMapping> AllocateNow(const AllocateRegionRequest& request);
  // Within an AllocationScope.
  absl::StatusOr<RegionMapping> PrepareAndCommit(const RegionTable::Plan& plan);
  absl::Status CommitAtReplicas(const RegionMapping& mapping);
  // Sends requests[i] to members[i], to this process by a call, and waits for all.
  template <class Request, class Reply>
  std::vector<absl::Status> SendAll(const std::vector<Member>& members, const std::vector<Request>& requests,
                                    std::vector<Reply>* replies, Nanos timeout_ns);
  absl::Status Lost(const Member& member, const absl::Status& why, absl::string_view what);

  const Options options_;
  const std::unique_ptr<ConfigStore> store_;
  ControlClient& client_;
  ControlHandler& local_;
  ClusterClock& clock_;

  mutable Mutex mutex_;
  CondVar progress_;                               // a change or an allocation has ended, or everything has
  bool changing_ ABSL_GUARDED_BY(mutex_) = false;  // a ChangeScope lives
  int allocations_ ABSL_GUARDED_BY(mutex_) = 0;    // AllocationScopes that live
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  Configuration configuration_ ABSL_GUARDED_BY(mutex_);
  RegionTable regions_ ABSL_GUARDED_BY(mutex_);
  uint64_t region_changes_ ABSL_GUARDED_BY(mutex_) = 0;  // allocations that have ended, one way or the other
  uint32_t next_compute_id_ ABSL_GUARDED_BY(mutex_) = kFirstComputeId;
  absl::flat_hash_set<std::string> nonces_ ABSL_GUARDED_BY(mutex_);  // given out by Hello, not yet used
  std::vector<std::string> nonce_order_ ABSL_GUARDED_BY(mutex_);
  enum class Founding { kNotYet, kUnderWay, kDone };
  Founding founding_ ABSL_GUARDED_BY(mutex_) = Founding::kNotYet;
  uint64_t hellos_ ABSL_GUARDED_BY(mutex_) = 0;
  SafePointRounds rounds_ ABSL_GUARDED_BY(mutex_);
  LeaseBook leases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_MANAGER_H_
