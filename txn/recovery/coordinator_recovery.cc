// What recovery asks of a coordinator: which of its transactions recover, and what becomes of them.
#include <algorithm>
#include <utility>
#include <vector>

#include "txn/coordinator.h"
#include "txn/recovery/recovering.h"

namespace furrow::txn {
namespace {

constexpr Nanos kLeaseLookNs = 5 * kMillisecond;

}  // namespace

TxId Coordinator::IdOf(const CommitOp& op) const {
  return TxId{op.config, node_.options.id, worker_.id(), op.local};
}

void Coordinator::Adopt(const cluster::ClusterView& view) {
  std::vector<CommitOp*> all;
  for (const std::unique_ptr<CommitOp>& op : ops_) {
    if (op != nullptr) all.push_back(op.get());
  }
  for (CommitOp* op : all) {
    // Who is no member answers no LOCK any more.
    const auto gone =
        std::remove_if(op->owing.begin(), op->owing.end(), [&](NodeId node) { return !view.Contains(node); });
    op->replies_pending -= static_cast<uint32_t>(op->owing.end() - gone);
    op->owing.erase(gone, op->owing.end());
    if (!op->complete && Recovers(IdOf(*op), node_.options.incarnation, op->regions, view, node_.directory)) {
      op->recovering = op->lost = true;
      Wake(*op);
    }
    if (op->complete && op->released && op->replies_pending == 0) Recycle(*op);
  }
  std::vector<storage::SlotLease> leased;
  leases_.TakeAll(&leased);
  for (const storage::SlotLease& lease : leased) {
    GiveLease(lease, adopted_);
  }
  adopted_ = view.id();
}

bool Coordinator::HasRecovering() const {
  return std::any_of(ops_.begin(), ops_.end(),
                     [](const auto& op) { return op != nullptr && op->recovering; });
}

void Coordinator::OnDecided(uint64_t local, bool committed, Timestamp w) {
  CommitOp* op = FindOp(local);
  if (op == nullptr || !op->recovering || op->decision != CommitOp::Decision::kOpen) return;
  op->decision = committed ? CommitOp::Decision::kCommitted : CommitOp::Decision::kAborted;
  op->decided_w = w;
  Wake(*op);
}

void Coordinator::OnRecovered(uint64_t local) {
  CommitOp* op = FindOp(local);
  if (op == nullptr || !op->recovering) return;
  op->recovering = false;
  op->complete = true;
  // A LOCK that was dropped is answered by nobody; an answer that comes yet is not asked for.
  for (NodeId node : std::exchange(op->owing, {})) {
    if (LinkState* state = LinkTo(node); state != nullptr && node != node_.options.id)
      state->link->reply_room += kLockReplyRoom;
  }
  op->replies_pending = 0;
  for (const Pinned<LinkState>& state : op->links) {
    if (!state->link->gone) state->link->log->Unreserve(kTruncateRoom);
  }
  op->links.clear();
  if (op->released && op->primaries_pending == 0) Recycle(*op);
}

Task<void> Coordinator::WaitForDecision(CommitOp& op, Nanos deadline) {
  EventLoop& loop = worker_.loop();
  // Who has no lease any more is told nothing: it may have been evicted.
  while (op.decision == CommitOp::Decision::kOpen && loop.Now() < deadline && node_.lease.valid()) {
    const EventLoop::TimerId timer =
        loop.CallAt(std::min(deadline, loop.Now() + kLeaseLookNs), [this, &op] { Wake(op); });
    co_await OpAwaiter{op, false};
    loop.Cancel(timer);
  }
}

}  // namespace furrow::txn
