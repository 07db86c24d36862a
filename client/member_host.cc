#include "client/member_host.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "client/cluster_files.h"
#include "rdma/ring/mesh.h"

namespace furrow::client {
namespace {

constexpr Nanos kConnectTimeoutNs = 10 * kSecond;
constexpr Nanos kFoundTimeoutNs = 20 * kSecond;
constexpr Nanos kReportTimeoutNs = kSecond;

Task<absl::Status> ConnectWorker(txn::Worker& worker,
                                 std::shared_ptr<const std::vector<cluster::Member>> members) {
  for (const cluster::Member& m : *members) {
    absl::Status connected = co_await worker.ConnectTo(m.id, m.fabric_endpoint);
    if (!connected.ok()) {
      co_return absl::UnavailableError(absl::StrCat("cannot open rings to node ", m.id.value(), " at ",
                                                    m.fabric_endpoint, ": ", connected.message()));
    }
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Nothing() { co_return absl::OkStatus(); }

}  // namespace

void MemberHostImpl::Open(txn::Node* node, std::vector<txn::Worker*> workers) {
  MutexLock lock(&mutex_);
  node_ = node;
  workers_ = std::move(workers);
  open_ = true;
}

void MemberHostImpl::Close() {
  MutexLock lock(&mutex_);
  open_ = false;
  while (users_ > 0) changed_.Wait(&mutex_);
}

absl::Status MemberHostImpl::Use(txn::Node** node, std::vector<txn::Worker*>* workers) {
  MutexLock lock(&mutex_);
  if (!open_) return absl::UnavailableError("this member is starting or stopping");
  ++users_;
  if (node != nullptr) *node = node_;
  if (workers != nullptr) *workers = workers_;
  return absl::OkStatus();
}

void MemberHostImpl::Unuse() {
  MutexLock lock(&mutex_);
  --users_;
  changed_.SignalAll();
}

absl::StatusOr<rdma::AcceptDecision> MemberHostImpl::Accept(const rdma::ConnectRequest& request) {
  FURROW_ASSIGN_OR_RETURN(WorkerId from, rdma::ConnectingWorker(request));
  txn::Node* node;
  std::vector<txn::Worker*> workers;
  FURROW_RETURN_IF_ERROR(Use(&node, &workers));
  absl::Cleanup unuse = [this] { Unuse(); };
  std::shared_ptr<const cluster::ClusterView> view = node->view();
  if (view == nullptr || !view->Contains(request.peer)) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", request.peer.value(), " is no member of this configuration"));
  }
  return workers[from.value() % workers.size()]->PrepareAccept(request);
}

absl::Status MemberHostImpl::OnAllWorkers(std::function<Task<absl::Status>(txn::Worker&)> task,
                                          Nanos deadline, const std::string& what) {
  // Shared with the tasks: one that comes too late still finds it.
  struct Progress {
    std::function<Task<absl::Status>(txn::Worker&)> task;
    Mutex mutex;
    CondVar changed;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  std::vector<txn::Worker*> workers;
  FURROW_RETURN_IF_ERROR(Use(nullptr, &workers));
  absl::Cleanup unuse = [this] { Unuse(); };
  auto progress = std::make_shared<Progress>();
  progress->task = std::move(task);
  MutexLock lock(&progress->mutex);
  progress->left = workers.size();
  static constexpr auto kRun = [](std::shared_ptr<Progress> p, txn::Worker* worker) -> Task<void> {
    absl::Status status = co_await p->task(*worker);
    MutexLock done(&p->mutex);
    if (!status.ok() && p->status.ok()) p->status = std::move(status);
    --p->left;
    p->changed.SignalAll();
  };
  for (txn::Worker* worker : workers) {
    worker->loop().Post([progress, worker] { worker->loop().Spawn(kRun(progress, worker)); });
  }
  while (progress->left > 0 && progress->status.ok()) {
    if (!progress->changed.WaitUntil(&progress->mutex, deadline)) {
      return absl::DeadlineExceededError(absl::StrCat(what, " takes too long"));
    }
  }
  return progress->status;
}

absl::Status MemberHostImpl::ConnectAll(const cluster::ClusterView& view) {
  MutexLock one_at_a_time(&connect_mutex_);
  txn::Node* node;
  FURROW_RETURN_IF_ERROR(Use(&node, nullptr));
  const NodeId self = node->options.id;
  Unuse();
  auto members = std::make_shared<std::vector<cluster::Member>>();
  for (const cluster::Member& m : view.members()) {
    if (m.id != self && m.role == cluster::Role::kStorage) members->push_back(m);
  }
  if (members->empty()) return absl::OkStatus();
  return OnAllWorkers([members](txn::Worker& worker) { return ConnectWorker(worker, members); },
                      MonotonicClock().Now() + kConnectTimeoutNs, "opening rings to the members");
}

absl::Status MemberHostImpl::Drain(Nanos deadline) {
  return OnAllWorkers([](txn::Worker& worker) { return worker.Drain(); }, deadline,
                      "truncating the last transactions");
}

absl::Status MemberHostImpl::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

bool MemberHostImpl::WaitForEnd(Nanos deadline) const {
  MutexLock lock(&mutex_);
  while (ended_.ok()) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return !ended_.ok();
  }
  return true;
}

absl::StatusOr<rdma::RemoteAddress> MemberHostImpl::CreateReplica(const cluster::ReplicaSpec& spec) {
  txn::Node* node;
  FURROW_RETURN_IF_ERROR(Use(&node, nullptr));
  absl::Cleanup unuse = [this] { Unuse(); };
  // Not yet as primary: nothing is allocated from a region that nobody knows.
  return node->CreateReplica(spec.id, spec.locality, spec.bytes, spec.config, /*primary=*/false);
}

void MemberHostImpl::CommitReplica(const cluster::RegionMapping& mapping) {
  txn::Node* node;
  if (!Use(&node, nullptr).ok()) return;
  absl::Cleanup unuse = [this] { Unuse(); };
  storage::Region* region = node->regions.Find(mapping.id);
  FURROW_CHECK(region != nullptr);
  if (mapping.primary().node == node->options.id) node->allocator.AddRegion(*region, mapping.locality);
}

void MemberHostImpl::ReleaseReplica(RegionId id) {
  txn::Node* node;
  if (!Use(&node, nullptr).ok()) return;
  absl::Cleanup unuse = [this] { Unuse(); };
  node->ReleaseReplica(id);
}

absl::Status MemberHostImpl::OnNewConfiguration(std::shared_ptr<const cluster::ClusterView> view,
                                                bool joining) {
  txn::Node* node;
  FURROW_RETURN_IF_ERROR(Use(&node, nullptr));
  absl::Cleanup unuse = [this] { Unuse(); };
  node->SetView(view);
  if (joining) return absl::OkStatus();
  absl::Status connected = ConnectAll(*view);
  if (connected.ok()) return connected;
  // The new member cannot be reached; the others have been all along.
  return absl::FailedPreconditionError(connected.message());
}

absl::Status MemberHostImpl::OnFounded(RegionId first_region) {
  auto found = [this, first_region](txn::Worker& worker) -> Task<absl::Status> {
    if (worker.id() != WorkerId(0)) return Nothing();
    return found_(worker, first_region);
  };
  return OnAllWorkers(found, MonotonicClock().Now() + kFoundTimeoutNs, "making the catalog");
}

cluster::MemberReport MemberHostImpl::Report() {
  cluster::MemberReport report;
  txn::Node* node;
  if (!Use(&node, nullptr).ok()) return report;
  absl::Cleanup unuse = [this] { Unuse(); };
  report.huge_page_bytes = HugePageBytes();
  report.memory_limit = node->budget.limit();
  report.memory_used = node->budget.used();
  for (const auto& [kind, bytes] : node->budget.UseByKind()) report.memory_by_kind[kind] = bytes;
  struct Sum {
    Mutex mutex;
    txn::WorkerStats stats ABSL_GUARDED_BY(mutex);
  };
  auto sum = std::make_shared<Sum>();
  auto add = [sum](txn::Worker& worker) -> Task<absl::Status> {
    const txn::WorkerStats& one = worker.stats();
    MutexLock lock(&sum->mutex);
    sum->stats.committed += one.committed;
    sum->stats.read_only += one.read_only;
    sum->stats.unknown += one.unknown;
    for (size_t i = 0; i < std::size(one.aborted); ++i) sum->stats.aborted[i] += one.aborted[i];
    sum->stats.distributed += one.distributed;
    sum->stats.local_reads += one.local_reads;
    sum->stats.remote_reads += one.remote_reads;
    sum->stats.applied += one.applied;
    sum->stats.written += one.written;
    co_return absl::OkStatus();
  };
  // A worker that does not answer in time is missing from the sums.
  OnAllWorkers(add, MonotonicClock().Now() + kReportTimeoutNs, "collecting figures").IgnoreError();
  MutexLock lock(&sum->mutex);
  report.committed = sum->stats.committed;
  report.read_only = sum->stats.read_only;
  report.unknown = sum->stats.unknown;
  for (size_t i = 0; i < std::size(sum->stats.aborted); ++i) {
    if (sum->stats.aborted[i] == 0) continue;
    report.aborted[std::string(txn::ToString(static_cast<txn::AbortReason>(i)))] = sum->stats.aborted[i];
  }
  report.local_reads = sum->stats.local_reads;
  report.remote_reads = sum->stats.remote_reads;
  report.distributed = sum->stats.distributed;
  report.applied = sum->stats.applied;
  report.written = sum->stats.written;
  return report;
}

void MemberHostImpl::OnEnded(const cluster::ClusterEnd& end) {
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    ended_ = absl::UnavailableError(absl::StrCat("the cluster has ended: ", end.why));
    changed_.SignalAll();
  }
  if (on_end_) on_end_(end.in_good_order, end.why);
}

}  // namespace furrow::client
