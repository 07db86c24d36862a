#include "txn/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "txn/coordinator.h"
#include "txn/participant.h"
#include "txn/recovery/worker_recovery.h"

namespace furrow::txn {
namespace {

// Housekeeping of a worker that has had nothing to do comes this seldom at last.
constexpr Nanos kIdleHousekeepingNs = 200 * kMillisecond;
constexpr Nanos kDrainDeadlineNs = 30 * kSecond;
// What the last attempt of Run() gets, however little its deadline has left.
constexpr Nanos kShortestAttemptNs = 1 * kMillisecond;

class Dispatcher final : public rdma::RecordHandler {
 public:
  Dispatcher(Participant& participant, Coordinator& coordinator, WorkerRecovery& recovery)
      : participant_(participant), coordinator_(coordinator), recovery_(recovery) {}

  void OnRecord(rdma::InboundRing& ring, const rdma::RingRecord& record) override {
    if (ring.closed) return;
    switch (ring.kind) {
      case rdma::InboundRing::Kind::kLog:
        participant_.OnLog(ring, record);
        return;
      case rdma::InboundRing::Kind::kMessages:
        participant_.OnRequest(ring, record);
        return;
      case rdma::InboundRing::Kind::kReplies:
        coordinator_.OnAnswer(ring, record);
        ring.reader->Release(record.end);
        if (ring.heads != nullptr) ring.heads->Return(record.end, false);
        return;
    }
  }
  void OnRingClosed(rdma::InboundRing& ring) override {
    recovery_.post().OnRingClosed(ring);
    participant_.OnRingClosed(ring);
  }
  void OnLinkLost(rdma::OutboundLink& link) override { coordinator_.OnLinkLost(link); }

 private:
  Participant& participant_;
  Coordinator& coordinator_;
  WorkerRecovery& recovery_;
};

}  // namespace

Worker::Worker(Node& node, WorkerId id, EventLoop& loop, rdma::CompletionQueue& queue, uint64_t seed)
    : node_(node), id_(id), loop_(loop), random_(seed) {
  participant_ = std::make_unique<Participant>(*this);
  coordinator_ = std::make_unique<Coordinator>(*this);
  recovery_ = std::make_unique<WorkerRecovery>(*this);
  handler_ = std::make_unique<Dispatcher>(*participant_, *coordinator_, *recovery_);
  rdma::MeshOptions mesh = node.options.mesh;
  if (!mesh.make_memory) mesh.make_memory = node.memory;
  mesh_ = std::make_unique<rdma::RingMesh>(
      loop, node.fabric, queue, rdma::WorkerIdentity{node.options.id, node.options.incarnation, id},
      std::move(mesh), *handler_);
}

Worker::~Worker() {
  if (housekeeping_ != 0) loop_.Cancel(housekeeping_);
  loop_.DestroyTasks();  // their frames hold transactions of this worker
  // They pin links and rings of the mesh.
  recovery_.reset();
  coordinator_.reset();
  participant_.reset();
}

absl::Status Worker::Start() {
  FURROW_RETURN_IF_ERROR(mesh_->Start());
  FURROW_RETURN_IF_ERROR(coordinator_->Start());
  housekeeping_interval_ = node_.options.truncate_flush_ns;
  HousekeepSoon();
  return absl::OkStatus();
}

Task<absl::Status> Worker::ConnectTo(NodeId node, rdma::Endpoint endpoint) {
  return mesh_->ConnectTo(node, std::move(endpoint));
}

absl::StatusOr<rdma::AcceptDecision> Worker::PrepareAccept(const rdma::ConnectRequest& request) {
  return mesh_->PrepareAccept(request);
}

void Worker::HousekeepSoon() {
  if (housekeeping_ != 0) loop_.Cancel(housekeeping_);
  housekeeping_interval_ = node_.options.truncate_flush_ns;
  housekeeping_ = loop_.CallAt(loop_.Now() + housekeeping_interval_, [this] { Housekeep(); });
}

// Drains what was written quietly, sends truncations that found nothing to ride on, returns ring heads,
// collects.
void Worker::Housekeep() {
  bool active = mesh_->PollAll();
  active = coordinator_->HasUntold() || active;
  coordinator_->FlushTruncations(false);
  mesh_->ReturnHeads();
  participant_->Collect();
  coordinator_->Collect();
  mesh_->Collect();
  const Nanos previous = housekeeping_interval_;
  housekeeping_interval_ = active || participant_->held_records() > 0
                               ? node_.options.truncate_flush_ns
                               : std::min(2 * housekeeping_interval_, kIdleHousekeepingNs);
  // Slots that lie in an idle worker's cache keep their blocks from being used for other sizes.
  if (housekeeping_interval_ == kIdleHousekeepingNs && previous < kIdleHousekeepingNs)
    coordinator_->ReturnLeases();
  housekeeping_ = loop_.CallAt(loop_.Now() + housekeeping_interval_, [this] { Housekeep(); });
}

Task<absl::Status> Worker::Attempt(const Body& body, const RunOptions& options, CommitResult* result) {
  Transaction tx(*this, options.transaction);
  absl::Status status = co_await tx.Begin();
  if (status.ok()) {
    status = co_await body(tx);
    if (status.ok()) {
      *result = co_await tx.Commit();
      NoteActivity();
      co_return result->status;
    }
  }
  if (tx.doomed()) {
    ++stats_.aborted[static_cast<size_t>(tx.conflict().reason)];
    // A body that swallowed or replaced the transaction's own status: the conflict decides.
    status = ToStatus(tx.conflict());
  } else {
    ++stats_.aborted[static_cast<size_t>(AbortReason::kUser)];
  }
  *result = CommitResult{.outcome = Outcome::kAborted, .status = status};
  co_return status;
}

Task<CommitResult> Worker::Run(Body body, RunOptions options) {
  const Nanos deadline = loop_.Now() + options.deadline_ns;
  for (uint32_t attempt = 0;; ++attempt) {
    CommitResult result;
    RunOptions attempt_options = options;
    attempt_options.transaction.deadline_ns =
        std::min(options.transaction.deadline_ns, std::max(deadline - loop_.Now(), kShortestAttemptNs));
    absl::Status status = co_await Attempt(body, attempt_options, &result);
    result.attempts = attempt + 1;
    if (status.code() != absl::StatusCode::kAborted || result.outcome != Outcome::kAborted) co_return result;
    const Nanos now = loop_.Now();
    if (now >= deadline) {
      result.status = absl::DeadlineExceededError(
          absl::StrCat("gave up after ", attempt + 1, " attempts; the last one: ", status.message()));
      co_return result;
    }
    Nanos limit =
        std::min(options.first_backoff_ns << std::min<uint32_t>(attempt, 20), options.max_backoff_ns);
    Nanos pause = static_cast<Nanos>(random_.Below(static_cast<uint64_t>(std::max<Nanos>(limit, 1))));
    co_await loop_.SleepUntil(std::min(now + pause, deadline));
  }
}

Task<absl::Status> Worker::Drain() {
  const Nanos deadline = loop_.Now() + kDrainDeadlineNs;
  while (true) {
    coordinator_->FlushTruncations(true);
    mesh_->PollAll();
    bool empty = !coordinator_->HasUntold() && mesh_->self_link().log->empty();
    for (const auto& state : coordinator_->links()) {
      empty = empty && (state->link->gone || state->link->log->empty());
    }
    if (empty) co_return absl::OkStatus();
    if (loop_.Now() > deadline) {
      co_return absl::DeadlineExceededError("log rings did not drain: a member does not process its records");
    }
    co_await loop_.SleepFor(1 * kMillisecond);
  }
}

}  // namespace furrow::txn
