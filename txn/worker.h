// Worker: one thread's share of a node's transactions: it coordinates those that begin here and serves, as
// participant, the rings of the peers' workers that end here. Everything is touched by the owner thread
// alone, but for what the comments say.
#ifndef FURROW_TXN_WORKER_H_
#define FURROW_TXN_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/random.h"
#include "base/task.h"
#include "rdma/ring/mesh.h"
#include "txn/hot_objects.h"
#include "txn/node.h"
#include "txn/result.h"
#include "txn/transaction.h"

namespace furrow::txn {

struct RunOptions {
  TransactionOptions transaction{};
  Nanos deadline_ns = 10 * kSecond;  // of all attempts together
  // Back-off after the n-th conflict: uniform in [0, min(first << n, max)).
  Nanos first_backoff_ns = 20 * kMicrosecond;
  Nanos max_backoff_ns = 5 * kMillisecond;
};

struct WorkerStats {
  uint64_t committed = 0;
  uint64_t read_only = 0;  // of the committed ones
  uint64_t unknown = 0;
  uint64_t aborted[static_cast<size_t>(AbortReason::kCount)] = {};
  uint64_t distributed = 0;  // committed ones with a participant that is primary on another node
  uint64_t local_reads = 0;
  uint64_t remote_reads = 0;
  uint64_t applied = 0;  // objects applied as a backup
  uint64_t written = 0;  // transactions, from anywhere, whose writes were installed here, at a primary
};

class Coordinator;
class Participant;
class WorkerRecovery;

class Worker {
 public:
  // What a body does: reads and writes through the transaction. A non-OK status other than Aborted ends Run()
  // with it and aborts the transaction.
  using Body = std::function<Task<absl::Status>(Transaction&)>;

  // `seed`: of back-off and the like. Node, loop and queue outlive the worker.
  Worker(Node& node, WorkerId id, EventLoop& loop, rdma::CompletionQueue& queue, uint64_t seed);
  ~Worker();

  // Makes the rings, registers with the loop. Owner thread, or before the loop runs.
  absl::Status Start();
  // Opens the rings to a member; idempotent.
  Task<absl::Status> ConnectTo(NodeId node, rdma::Endpoint endpoint);
  // For the fabric's acceptor; any thread.
  absl::StatusOr<rdma::AcceptDecision> PrepareAccept(const rdma::ConnectRequest& request);

  // Runs `body` in transactions until one commits: conflicts retry with randomised back-off. The status is
  // OK, the body's own error, Unknown (outcome open: not retried), ResourceExhausted, DeadlineExceeded.
  Task<CommitResult> Run(Body body, RunOptions options = {});

  // Sends what waits to be truncated and waits until every record that this worker has written is truncated
  // at its receivers (for checks that compare replicas).
  Task<absl::Status> Drain();

  Node& node() { return node_; }
  WorkerId id() const { return id_; }
  EventLoop& loop() { return loop_; }
  const WorkerStats& stats() const { return stats_; }

  // The objects on which transactions that began here collided most.
  HotObjects& conflicts() { return conflicts_; }

  // --- the parts; for txn/ only ---
  Coordinator& coordinator() { return *coordinator_; }
  Participant& participant() { return *participant_; }
  rdma::RingMesh& mesh() { return *mesh_; }
  WorkerRecovery& recovery() { return *recovery_; }
  WorkerStats& mutable_stats() { return stats_; }
  // Something was left to truncate: housekeeping comes soon, also after a long idle time.
  void NoteActivity() {
    if (housekeeping_interval_ > node_.options.truncate_flush_ns) HousekeepSoon();
  }
  Random& random() { return random_; }

 private:
  void Housekeep();
  void HousekeepSoon();
  Task<absl::Status> Attempt(const Body& body, const RunOptions& options, CommitResult* result);

  Node& node_;
  const WorkerId id_;
  EventLoop& loop_;
  Random random_;
  WorkerStats stats_;
  HotObjects conflicts_;
  std::unique_ptr<Participant> participant_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<WorkerRecovery> recovery_;
  std::unique_ptr<rdma::RecordHandler> handler_;
  std::unique_ptr<rdma::RingMesh> mesh_;
  Nanos housekeeping_interval_ = 0;
  EventLoop::TimerId housekeeping_ = 0;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_WORKER_H_
