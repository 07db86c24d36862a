// Member: assembles a member of a cluster, storage or compute, inside any process: the fabric, the workers on
// their threads, txn::Node, and the cluster's agent. What `furrow node` and Database stand on.
//
//   Start() ----> running ----> Stop(): leaves in good order, or ends the cluster if it cannot leave
//                    |
//                    +--------> ended: on_end was called; Stop() only tidies up
//
// Threads: Start() and Stop() by the owner, not on a worker. worker() may be used on the worker's own thread
// only: post to its loop(). Nothing here ends the process.
#ifndef FURROW_CLIENT_MEMBER_H_
#define FURROW_CLIENT_MEMBER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "client/find_cluster.h"
#include "client/member_options.h"
#include "cluster/view.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::client {

class Member {
 public:
  // Blocks until the member is admitted. Every error is one sentence that says what to do, and nothing is
  // left behind.
  static absl::StatusOr<std::unique_ptr<Member>> Start(MemberOptions options);
  ~Member();  // as Stop()

  NodeId id() const;
  const std::string& cluster_id() const;
  const std::string& control_address() const;
  const std::string& fabric() const;  // "shm" or "verbs"
  std::shared_ptr<const cluster::ClusterView> view() const;

  uint16_t workers() const;
  EventLoop& loop(size_t worker);
  txn::Worker& worker(size_t worker);
  txn::Node& node();

  // The reason once the cluster has ended for this member; OK before.
  absl::Status ended() const;
  // Waits for the end of the cluster; false at the deadline (monotonic clock). Not on a worker.
  bool WaitForEnd(Nanos deadline) const;

  // Idempotent. OK also when the cluster had ended before.
  absl::Status Stop();

 private:
  class Impl;
  explicit Member(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace furrow::client

#endif  // FURROW_CLIENT_MEMBER_H_
