// Truncation: participants keep a transaction's records until its coordinator says that nobody needs them.
// That rides on later records (the low bound on all, up to kMaxRidingIds ids on small ones) or goes as
// TRUNCATE records, for which each transaction has reserved kTruncateRoom at each participant.
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "txn/coordinator.h"

namespace furrow::txn {

void Coordinator::Completed(CommitOp& op, bool committed) {
  if (op.recovering) return;  // OnRecovered() will
  op.complete = true;
  for (const Pinned<LinkState>& state : op.links) {
    if (state->link->gone) continue;
    if (committed) {
      state->untold.push_back(op.local);
    } else {
      state->link->log->Unreserve(kTruncateRoom);  // ABORT has ended its records
    }
  }
  op.links.clear();
}

void Coordinator::Release(CommitOp& op) {
  op.released = true;
  if (op.replies_pending == 0 && op.primaries_pending == 0) Recycle(op);
}

// The end of an op: its commit has reported, and nothing is on its way any more.
void Coordinator::Recycle(CommitOp& op) {
  for (std::span<std::byte> body : op.limbo) worker_.mesh().ReleaseStaged(body);
  op.limbo.clear();
  // Without a lost participant a transaction that was not aborted has committed everywhere. With one, its
  // records stay until recovery has decided.
  if (!op.complete && !op.lost) Completed(op, true);
  if (!op.complete) return;
  std::unique_ptr<CommitOp>& place = ops_[op.local - first_local_];
  FURROW_CHECK(place.get() == &op);
  CommitOp& used = *place;
  used.replies_pending = used.primaries_pending = 0;
  used.primary_acknowledged = used.refused = used.lost = used.timed_out = used.complete = used.released =
      false;
  used.recovering = false;
  used.decision = CommitOp::Decision::kOpen;
  used.regions.clear();
  used.conflict = Conflict{};
  used.links.clear();
  used.owing.clear();
  free_ops_.push_back(std::move(place));
  while (!ops_.empty() && ops_.front() == nullptr) {
    ops_.pop_front();
    ++first_local_;
  }
}

size_t Coordinator::RidingIds(const LinkState& state, uint64_t low_bound, uint64_t* ids) const {
  size_t n = 0;
  for (uint64_t local : state.untold) {
    if (local < low_bound) continue;
    if (n == kMaxRidingIds) break;
    ids[n++] = local;
  }
  return n;
}

void Coordinator::Told(LinkState& state, uint64_t low_bound, std::span<const uint64_t> ids) {
  size_t before = state.untold.size();
  std::erase_if(state.untold, [&](uint64_t local) {
    return local < low_bound || std::find(ids.begin(), ids.end(), local) != ids.end();
  });
  state.link->log->Unreserve(kTruncateRoom * (before - state.untold.size()));
}

absl::Status Coordinator::AppendAndRelease(rdma::RingWriter& ring, std::span<std::byte> body, CommitOp* op,
                                           rdma::WorkRequest::Notify notify) {
  const rdma::RecordBody record{body, rdma::HashBody(body)};
  if (ring.completes_at_once()) {
    absl::Status appended = ring.Append(record, op == nullptr ? 0 : op->id(), notify);
    worker_.mesh().ReleaseStaged(body);
    return appended;
  }
  SentBody* sent = nullptr;
  if (op == nullptr) {
    if (free_sent_.empty()) {
      sent_.push_back(std::make_unique<SentBody>(*this));
      free_sent_.push_back(sent_.back().get());
    }
    sent = free_sent_.back();
    free_sent_.pop_back();
    sent->body = body;
  }
  absl::Status appended = ring.Append(record, op == nullptr ? sent->id() : op->id(), notify);
  if (op != nullptr) {
    if (appended.ok()) {
      op->limbo.push_back(body);
    } else {
      worker_.mesh().ReleaseStaged(body);
    }
  } else if (!appended.ok()) {
    rdma::Operation::Complete(sent->id(), rdma::CompletionStatus::kFlushed);
  }
  return appended;
}

void Coordinator::SentBody::Sent(rdma::Operation* self, rdma::CompletionStatus) {
  auto* sent = static_cast<SentBody*>(self);
  sent->coordinator.worker_.mesh().ReleaseStaged(sent->body);
  sent->coordinator.free_sent_.push_back(sent);
}

absl::Status Coordinator::AppendSmall(LinkState& state, LogHeader header, CommitOp* op,
                                      rdma::WorkRequest::Notify notify) {
  uint64_t ids[kMaxRidingIds];
  size_t n = RidingIds(state, header.low_bound, ids);
  absl::StatusOr<std::span<std::byte>> body = worker_.mesh().StageRecord(sizeof(LogHeader) + 8 * n);
  if (!body.ok()) return body.status();
  header.truncate_count = static_cast<uint16_t>(n);
  WriteAt(*body, 0, header);
  std::memcpy(body->data() + sizeof(LogHeader), ids, 8 * n);
  uint64_t used = rdma::RecordBytes(body->size());
  FURROW_RETURN_IF_ERROR(AppendAndRelease(*state.link->log, *body, op, notify));
  state.link->log->Unreserve(kSmallRecordRoom - used);
  Told(state, header.low_bound, {ids, n});
  return absl::OkStatus();
}

bool Coordinator::HasUntold() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& state) { return !state->untold.empty(); });
}

void Coordinator::FlushTruncations(bool wake) {
  for (auto& state : links_) {
    while (!state->untold.empty() && !state->link->gone) {
      // Its room: that of the ids which it tells, so it is there.
      uint64_t ids[kMaxRidingIds];
      uint64_t low = low_bound();
      size_t n = RidingIds(*state, low, ids);
      // One id is told with the room of one id; more only as far as their room covers the longer record.
      size_t covered = static_cast<size_t>(std::count_if(state->untold.begin(), state->untold.end(),
                                                         [&](uint64_t local) { return local < low; })) +
                       n;
      FURROW_CHECK(covered > 0);
      n = std::min(n, covered * kTruncateRoom >= kSmallRecordRoom ? n : size_t{1});
      absl::StatusOr<std::span<std::byte>> body = worker_.mesh().StageRecord(sizeof(LogHeader) + 8 * n);
      if (!body.ok()) break;
      LogHeader header{};
      header.type = LogType::kTruncate;
      header.format = kRecordFormat;
      header.truncate_count = static_cast<uint16_t>(n);
      header.config = node_.current_view()->id().value();
      header.node = node_.options.id.value();
      header.worker = worker_.id().value();
      header.low_bound = low;
      WriteAt(*body, 0, header);
      std::memcpy(body->data() + sizeof(LogHeader), ids, 8 * n);
      uint64_t used = rdma::RecordBytes(body->size());
      absl::Status appended =
          AppendAndRelease(*state->link->log, *body, nullptr,
                           wake ? rdma::WorkRequest::Notify::kWake : rdma::WorkRequest::Notify::kQuiet);
      if (!appended.ok()) break;
      // Append() has used up reserved room; the rest of what the told ones had reserved goes back.
      size_t before = state->untold.size();
      std::erase_if(state->untold,
                    [&](uint64_t local) { return local < low || std::find(ids, ids + n, local) != ids + n; });
      state->link->log->Unreserve(kTruncateRoom * (before - state->untold.size()) - used);
    }
  }
  worker_.mesh().DeliverSelf();
}

}  // namespace furrow::txn
