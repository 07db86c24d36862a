// Agent: a member's part in the cluster: its control server, its beat with the manager, its lease and clock,
// and, on the manager, the Manager. What it needs of its process it asks of a MemberHost.
//
//              Bootstrap() or Join()             Leave(), or the cluster ends
//   (made) ------------------------> member -------------------------------> ended: the host was told, the
//   lease is gone
//
// Threads: the methods are called by one thread, the owner's, which may be blocked by them; never by a
// worker. The agent has a thread of its own (the control thread), and gRPC has some.
#ifndef FURROW_CLUSTER_AGENT_H_
#define FURROW_CLUSTER_AGENT_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/cluster_clock.h"
#include "cluster/config_store.h"
#include "cluster/control_client.h"
#include "cluster/control_link.h"
#include "cluster/control_server.h"
#include "cluster/host.h"
#include "cluster/manager.h"
#include "cluster/member_lease.h"
#include "cluster/region_directory.h"
#include "cluster/remote_control_plane.h"
#include "cluster/seams.h"

namespace furrow::cluster {

// What a cluster says of itself to one who wants to join.
struct Introduction {
  std::string cluster_id;
  std::string nonce;
  std::string manager_address;
  NodeId id;  // for the caller
  Incarnation incarnation;
  uint32_t replicas = 0;
  uint64_t region_bytes = 0;
  std::string fabric;  // "shm" or "verbs"
};

// Asks the member at `address`, and then the manager. `id` 0 (compute members): the manager chooses one.
// `wait`: for as long as nobody is there, up to the timeout. PermissionDenied: the cluster there has another
// secret. Unavailable: nobody there.
absl::StatusOr<Introduction> SayHello(ControlClient& client, const std::string& secret,
                                      const std::string& address, Role role, NodeId id, bool wait,
                                      Nanos timeout_ns);

class Agent final : public ControlHandler {
 public:
  struct Options {
    Member self;                   // without control_address, which Listen() gives
    uint64_t region_capacity = 0;  // regions that its memory holds
    std::string cluster_id;
    std::string secret;
    // Boot id and time namespace of this process, equal exactly where CLOCK_MONOTONIC is shared; empty: do
    // not share.
    std::string clock_domain;
    std::string fabric = "shm";  // of a new cluster: Fabric::name()
    BeatSchedule::Options schedule;
    // Of a new cluster: how long a member may be silent before it is lost; one that joins takes the
    // cluster's.
    Nanos lease_ns = kDefaultLeaseNs;
    int lease_renewals = 4;  // ControlLink::Options::renewals
    Nanos join_timeout_ns = 30 * kSecond;
  };
  // All references outlive the agent.
  Agent(Options options, MemberHost& host, const Clock& clock, rdma::Fabric& fabric,
        ClusterClock& cluster_clock, SafePoint& safe_point, RegionDirectory& directory);
  ~Agent() override;

  // Starts the control server and thread. First. See ControlServer::Start().
  absl::Status Listen(const std::string& address);
  const std::string& control_address() const { return options_.self.control_address; }

  // Becomes the first member and manager of a new cluster. `start`: cluster time begins above it.
  absl::Status Bootstrap(std::unique_ptr<ConfigStore> store, uint32_t replicas, uint64_t region_bytes,
                         Timestamp start);
  // Joins; returns when every member has admitted this one and cluster time is known.
  absl::Status Join(const Introduction& introduction);

  // The last step of either: this member's rings are open, so that regions may be placed on it. The member
  // that completes the number of copies waits here until the cluster is founded.
  absl::Status Ready();

  // In good order. FailedPrecondition: this member cannot leave (it holds regions, or is the manager);
  // nothing has changed.
  absl::Status Leave();
  // Ends the whole cluster, in good order, from any member; returns when the manager has told everybody.
  absl::Status EndCluster(std::string why);
  // Any thread, does not block: a data connection of this member to another one has failed. If both are still
  // members half as long again as a lease after it, neither has crashed, and the cluster ends with a reason
  // that names both.
  void OnDataLinkLost(NodeId peer);
  // Ends this member's part without telling anybody. Idempotent.
  void Stop();

  // For the fabric's acceptor, any thread: a peer that opens a control connection. FailedPrecondition: not a
  // member, or this is not the manager.
  absl::StatusOr<rdma::AcceptDecision> Accept(const rdma::ConnectRequest& request);

  ControlPlane& control_plane() { return control_plane_; }
  Lease& lease() { return lease_; }
  Incarnation incarnation() const { return options_.self.incarnation; }
  bool is_manager() const { return manager() != nullptr; }
  // The store, on the manager; null elsewhere.
  ConfigStore* store() { return is_manager() ? &manager()->store() : nullptr; }
  std::shared_ptr<const ClusterView> view() const;
  // On the manager, set before Bootstrap(): told of each committed configuration; for the file that tools
  // look the cluster up in.
  void SetConfigurationWatcher(std::function<void(const Configuration&)> watcher) {
    watcher_ = std::move(watcher);
  }

 private:
  enum class State { kMade, kJoining, kMember, kEnded };
#define FURROW_DECLARE(name) \
  absl::Status name(const pb::name##Request& request, pb::name##Reply* reply) override;
  FURROW_CONTROL_METHODS(FURROW_DECLARE)
#undef FURROW_DECLARE

  absl::Status StartLink(Manager* manager);
  // What Join() does once the manager has admitted this member.
  absl::Status BeginMembership(const pb::JoinReply& reply);
  void GiveUpJoining();
  ControlLink* link() const {
    MutexLock lock(&mutex_);
    return link_.get();
  }
  // Ends the cluster as seen from here; the manager tells the others first. Once; later calls do nothing.
  // Does not block.
  void End(ClusterEnd end);
  void TellHost(const ClusterEnd& end);
  void OnLost(NodeId node, ControlLink::Loss how);
  void EndForDataLink(NodeId peer, Incarnation incarnation);
  // That this process did not run for half a lease's time just now, in half a sentence; empty: it did.
  std::string Absence() const;
  // The sentence, when that is why the others have lost this member.
  std::string LostByAll(const std::string& absence) const;
  std::string HowLost(ControlLink::Loss how) const;
  // The reason, and the absence if there was one: it may have to do with the reason, or not.
  std::string WithAbsence(std::string why) const;
  // Ends the beat, and with it the connections: peers that still live learn that this member does not.
  void StopLink();
  absl::Status CheckConfig(uint64_t config) const;
  absl::Status OnlyManager() const;
  Manager* manager() const {
    MutexLock lock(&mutex_);
    return manager_.get();
  }

  Options options_;
  std::atomic<Nanos> lease_ns_;  // the cluster's, once this member is admitted
  MemberHost& host_;
  const Clock& clock_;
  rdma::Fabric& fabric_;
  ClusterClock& cluster_clock_;
  SafePoint& safe_point_;
  RegionDirectory& directory_;
  std::function<void(const Configuration&)> watcher_;
  const Nanos started_;

  MemberLease lease_;
  ControlClient client_;
  ControlClient plane_client_;  // of control_plane_ alone: what it asks ends with the cluster
  RemoteControlPlane control_plane_;
  std::unique_ptr<ControlServer> server_;

  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  Thread control_thread_;
  Thread data_link_thread_;  // tells the manager of a lost data link; started by the control thread, once

  mutable Mutex mutex_;
  // Made once and constant from then on.
  std::unique_ptr<Manager> manager_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ControlLink> link_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kMade;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool data_link_told_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const ClusterView> view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_AGENT_H_
