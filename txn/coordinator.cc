#include "txn/coordinator.h"

#include <algorithm>

#include "base/check.h"
#include "base/mutation.h"
#include "base/status_macros.h"

namespace furrow::txn {
namespace {

// A gap of the clock that a few readings of it bridge; above it the coroutine sleeps.
constexpr int kClockReadings = 16;

}  // namespace

CommitOp::CommitOp(Coordinator& owner)
    : rdma::Operation(&Coordinator::PrimaryAcknowledged), coordinator(owner) {}

Coordinator::Coordinator(Worker& worker) : worker_(worker), node_(worker.node()) {}

Coordinator::~Coordinator() = default;

absl::Status Coordinator::Start() {
  constexpr size_t kScratchBytes = size_t{8} << 20;
  FURROW_ASSIGN_OR_RETURN(MemoryFile memory,
                          node_.memory("scratch-w" + std::to_string(worker_.id().value()), kScratchBytes));
  return scratch_.Start(node_.fabric, std::move(memory));
}

// --- timestamps ---

Task<bool> Coordinator::WaitUntilPassed(Timestamp t, Nanos deadline) {
  cluster::ClockInterval now{};
  while (true) {
    for (int i = 0; i < kClockReadings; ++i) {
      if (node_.timestamps.Now(&now) && now.lower >= t) co_return true;
    }
    if (worker_.loop().Now() > deadline) co_return false;
    Nanos gap = t > now.lower ? static_cast<Nanos>(t.value() - now.lower.value()) : 1;
    co_await worker_.loop().SleepFor(std::min<Nanos>(gap, 10 * kMillisecond));
  }
}

Task<absl::Status> Coordinator::Begin(Transaction& tx) {
  FURROW_CHECK(!tx.begun_);
  if (!node_.lease.valid())
    co_return absl::UnavailableError("this node has no lease; the cluster is not reachable");
  tx.deadline_ = worker_.loop().Now() + tx.options_.deadline_ns;
  // The lower bound is published before R is taken: the safe point cannot pass R in between. Bounds never
  // decrease, so the transactions are in order of theirs.
  cluster::ClockInterval now;
  while (!node_.timestamps.Now(&now)) {
    if (worker_.loop().Now() > tx.deadline_)
      co_return absl::UnavailableError("the cluster's clock is not running");
    co_await worker_.loop().SleepFor(100 * kMicrosecond);
  }
  tx.begun_ = true;
  tx.began_in_ = node_.current_view()->id();
  tx.open_id_ = next_open_++;
  open_.emplace_back(tx.open_id_, std::max(now.lower, node_.safe_point.oldest_allowed()));
  if (open_.size() == 1) PublishOldest();
  if (!node_.timestamps.Now(&now)) co_return absl::UnavailableError("the cluster's clock has stopped");
  tx.read_ts_ = now.upper;
  if (now.lower < tx.read_ts_ && !Mutated(Mutation::kSkipReadWait) &&
      !co_await WaitUntilPassed(tx.read_ts_, tx.deadline_)) {
    co_return absl::DeadlineExceededError(
        "the cluster's clock did not reach the read timestamp before the deadline");
  }
  co_return absl::OkStatus();
}

void Coordinator::End(Transaction& tx) {
  // Closed ones are marked by a null id and leave when they reach the front.
  bool front = !open_.empty() && open_.front().first == tx.open_id_;
  auto it = std::lower_bound(open_.begin(), open_.end(), tx.open_id_,
                             [](const auto& entry, uint64_t id) { return entry.first < id; });
  FURROW_CHECK(it != open_.end() && it->first == tx.open_id_);
  if (!front) {
    it->second = Timestamp::Max();  // closed; ids stay sorted
    return;
  }
  open_.pop_front();
  while (!open_.empty() && open_.front().second == Timestamp::Max()) open_.pop_front();
  PublishOldest();
}

void Coordinator::PublishOldest() {
  node_.safe_point.PublishOldestActive(worker_.id(), open_.empty() ? Timestamp::Max() : open_.front().second);
}

// --- transactions between LOCK and the last acknowledgement ---

CommitOp& Coordinator::NewOp() {
  std::unique_ptr<CommitOp> op;
  if (free_ops_.empty()) {
    op = std::make_unique<CommitOp>(*this);
  } else {
    op = std::move(free_ops_.back());
    free_ops_.pop_back();
  }
  op->local = next_local_++;
  ops_.push_back(std::move(op));
  return *ops_.back();
}

CommitOp* Coordinator::FindOp(uint64_t local) {
  if (local < first_local_ || local - first_local_ >= ops_.size()) return nullptr;
  return ops_[local - first_local_].get();
}

void Coordinator::Wake(CommitOp& op) {
  if (op.waiter) worker_.loop().Schedule(std::exchange(op.waiter, {}));
}

void Coordinator::OnLockReply(NodeId from, uint64_t local, AnswerCode code, const LockReply& reply) {
  CommitOp* op = FindOp(local);
  if (op == nullptr) return;  // a peer's mistake, as an answer of one who was not asked
  auto owes = std::find(op->owing.begin(), op->owing.end(), from);
  if (owes == op->owing.end()) return;
  if (from != node_.options.id) {
    if (LinkState* state = LinkTo(from); state != nullptr) state->link->reply_room += kLockReplyRoom;
  }
  op->owing.erase(owes);
  --op->replies_pending;
  if (op->recovering) return;
  if (code != AnswerCode::kOk && !op->refused) {
    op->refused = true;
    op->conflict = {.reason = reply.allocation != 0 ? AbortReason::kAllocation : AbortReason::kLockConflict,
                    .address = Address::FromBits(reply.address),
                    .other = TxId{ConfigId(reply.holder_config), NodeId(reply.holder_node),
                                  WorkerId(reply.holder_worker), reply.holder_local}};
  }
  if (op->replies_pending == 0 || op->refused) Wake(*op);
  if (op->released && op->replies_pending == 0) Recycle(*op);
}

Task<void> Coordinator::WaitForReplies(CommitOp& op, Nanos deadline) {
  CommitOp* self = &op;
  EventLoop::TimerId timer = worker_.loop().CallAt(deadline, [this, self] {
    self->timed_out = true;
    Wake(*self);
  });
  co_await OpAwaiter{op, op.replies_pending == 0 || op.refused || op.lost};
  worker_.loop().Cancel(timer);
}

void Coordinator::PrimaryAcknowledged(rdma::Operation* self, rdma::CompletionStatus status) {
  auto* op = static_cast<CommitOp*>(self);
  FURROW_CHECK(op->primaries_pending > 0);
  --op->primaries_pending;
  const bool counts = !op->recovering || Mutated(Mutation::kKeepAcknowledgements);
  if (status == rdma::CompletionStatus::kOk && counts) {
    op->primary_acknowledged = true;
  } else {
    op->lost = true;
  }
  if (op->primary_acknowledged || op->primaries_pending == 0) op->coordinator.Wake(*op);
  if (op->released && op->primaries_pending == 0) op->coordinator.Recycle(*op);
}

void Coordinator::OnLinkLost(rdma::OutboundLink& link) {
  link.gone = true;
  for (auto& op : ops_) {
    if (op == nullptr || op->replies_pending == 0) continue;
    bool takes_part = std::any_of(op->links.begin(), op->links.end(),
                                  [&](const Pinned<LinkState>& state) { return state->link == &link; });
    if (!takes_part) continue;
    op->lost = true;
    Wake(*op);
  }
  // A gone member is told nothing any more; what it holds is recovery's.
  for (auto& state : links_) {
    if (state->link == &link) state->untold.clear();
  }
  FailCalls(link.node);
  // Records that it holds are truncated by recovery alone: nobody goes on here as if nothing had happened.
  const cluster::ClusterView* view = node_.current_view();
  if (node_.data_link_lost && view != nullptr && view->Contains(link.node)) node_.data_link_lost(link.node);
}

LinkState* Coordinator::LinkTo(NodeId node) {
  for (auto& state : links_) {
    if (state->link->node == node && !state->link->gone) return state.get();
  }
  rdma::OutboundLink* link = worker_.mesh().link(node);
  if (link == nullptr) return nullptr;
  for (auto& state : links_) {
    if (state->link == link) return state.get();
  }
  links_.push_back(std::make_unique<LinkState>());
  links_.back()->link = link;
  return links_.back().get();
}

void Coordinator::Collect() {
  std::erase_if(links_, [](const auto& state) { return state->link->gone && state->pins == 0; });
}

}  // namespace furrow::txn
