// MemberHostImpl: what the cluster's agent asks of the process that client::Member assembles
// (cluster/host.h): replicas in txn::Node, rings between workers, figures.
#ifndef FURROW_CLIENT_MEMBER_HOST_H_
#define FURROW_CLIENT_MEMBER_HOST_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "cluster/host.h"
#include "rdma/fabric.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::client {

class MemberHostImpl final : public cluster::MemberHost {
 public:
  using OnEnd = std::function<void(bool in_good_order, const std::string& why)>;
  // What the founder makes in the cluster's first region; on the first worker.
  using Found = std::function<Task<absl::Status>(txn::Worker&, RegionId first_region)>;
  MemberHostImpl(OnEnd on_end, Found found) : on_end_(std::move(on_end)), found_(std::move(found)) {}

  // Once, before the member is admitted. Both outlive Close().
  void Open(txn::Node* node, std::vector<txn::Worker*> workers);
  // No worker or node is used from here on. Waits for calls that use them.
  void Close();

  // For the fabric's acceptor: a worker of a peer opens its rings.
  absl::StatusOr<rdma::AcceptDecision> Accept(const rdma::ConnectRequest& request);
  // Opens the rings of every worker to every storage member of the view; blocks. Unavailable, with the
  // member, or DeadlineExceeded.
  absl::Status ConnectAll(const cluster::ClusterView& view);
  // Truncates what the workers have written; blocks, at most until `deadline`.
  absl::Status Drain(Nanos deadline);

  // OK while the cluster lives; Unavailable with the reason after it. / Waits for the end; false at the
  // deadline.
  absl::Status ended() const;
  bool WaitForEnd(Nanos deadline) const;

  // --- MemberHost ---
  absl::StatusOr<rdma::RemoteAddress> CreateReplica(const cluster::ReplicaSpec& spec) override;
  void CommitReplica(const cluster::RegionMapping& mapping) override;
  void ReleaseReplica(RegionId id) override;
  absl::Status OnNewConfiguration(std::shared_ptr<const cluster::ClusterView> view, bool joining) override;
  void OnConfigurationCommitted(ConfigId config) override {}
  absl::Status OnFounded(RegionId first_region) override;
  cluster::MemberReport Report() override;
  void OnEnded(const cluster::ClusterEnd& end) override;

 private:
  // Runs `task` of each worker on its loop and waits for all. The first error, or DeadlineExceeded (tasks
  // that are still running go on).
  absl::Status OnAllWorkers(std::function<Task<absl::Status>(txn::Worker&)> task, Nanos deadline,
                            const std::string& what);
  absl::Status Use(txn::Node** node, std::vector<txn::Worker*>* workers);
  void Unuse();

  Mutex connect_mutex_;  // one ConnectAll() at a time: two attempts of one worker at one peer would undo each
                         // other
  const OnEnd on_end_;
  const Found found_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that use node or workers now
  txn::Node* node_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<txn::Worker*> workers_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::client

#endif  // FURROW_CLIENT_MEMBER_HOST_H_
