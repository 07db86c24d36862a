// The commit (FaRMv2 section 4.2 over SOSP'15 section 4), step by step. See coordinator.h for the phases.
#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "storage/region.h"
#include "txn/commit_run.h"
#include "txn/coordinator.h"
#include "txn/participant.h"

namespace furrow::txn {

CommitRun::~CommitRun() {
  for (Body& body : bodies_) {
    // A LOCK that was not answered may still be read by its WRITE.
    if (op_ != nullptr && op_->replies_pending > 0) {
      op_->limbo.push_back(body.bytes);
    } else {
      worker_.mesh().ReleaseStaged(body.bytes);
    }
  }
  if (op_ != nullptr) coordinator_.Release(*op_);
}

// --- records ---

LogHeader CommitRun::Header(LogType type, Timestamp w) const {
  LogHeader h{};
  h.type = type;
  h.format = kRecordFormat;
  h.config = id_.config.value();
  h.local = id_.local;
  h.node = id_.node.value();
  h.worker = id_.worker.value();
  h.low_bound = coordinator_.low_bound();
  h.timestamp = w.value();
  return h;
}

absl::StatusOr<CommitRun::Body*> CommitRun::Build(uint64_t groups) {
  for (Body& body : bodies_) {
    if (body.groups == groups) return &body;
  }
  FURROW_ASSIGN_OR_RETURN(std::span<std::byte> bytes, worker_.mesh().StageRecord(RecordBodyBytes(groups)));
  bodies_.push_back(Body{.groups = groups, .bytes = bytes});
  size_t at = sizeof(LogHeader);
  std::memset(bytes.data() + at, 0, Pad8(4 * regions_.size()));
  std::memcpy(bytes.data() + at, regions_.data(), 4 * regions_.size());
  at += Pad8(4 * regions_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if ((groups >> g & 1) == 0) continue;
    for (const Access* access : groups_[g].writes) {
      uint32_t payload = access->frees ? 0 : access->write_bytes;
      ObjectEntry entry{
          .address = access->address.bits(),
          .expected = access->observed.bits(),
          .payload = payload,
          .flags = (access->allocates ? kEntryAllocates : 0) | (access->frees ? kEntryFrees : 0)};
      WriteAt(bytes, at, entry);
      at += sizeof entry;
      if (payload > 0) {
        uint64_t zero = 0;
        std::memcpy(bytes.data() + at + Pad8(payload) - 8, &zero, 8);
        std::memcpy(bytes.data() + at, access->write, payload);
      }
      at += Pad8(payload);
    }
  }
  FURROW_CHECK(at == bytes.size());
  return &bodies_.back();
}

absl::Status CommitRun::AppendBody(Party& party, LogType type, uint64_t groups, Timestamp w, uint64_t done_id,
                                   rdma::WorkRequest::Notify notify) {
  FURROW_ASSIGN_OR_RETURN(Body * body, Build(groups));
  if (body->written_as != type) {
    LogHeader h = Header(type, w);
    h.region_count = static_cast<uint16_t>(regions_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      if ((groups >> g & 1) != 0) h.object_count += static_cast<uint32_t>(groups_[g].writes.size());
    }
    WriteAt(body->bytes, 0, h);
    body->written_as = type;
    body->hash = rdma::HashBody(body->bytes);
  }
  FURROW_RETURN_IF_ERROR(party.state->link->log->Append({body->bytes, body->hash}, done_id, notify));
  party.reserved -= rdma::RecordBytes(body->bytes.size());
  return absl::OkStatus();
}

absl::Status CommitRun::AppendSmall(Party& party, LogType type, Timestamp w, CommitOp* op) {
  absl::Status appended =
      coordinator_.AppendSmall(*party.state, Header(type, w), op, rdma::WorkRequest::Notify::kWake);
  if (appended.ok()) party.reserved -= kSmallRecordRoom;
  return appended;
}

// --- LOCK ---

const Access* CommitRun::ChangedLocally() const {
  for (const Group& group : groups_) {
    if (group.mapping->primary().node != node_.options.id) continue;
    for (const Access* access : group.writes) {
      storage::Region* region = node_.regions.Find(access->address.region());
      std::byte* slot = region == nullptr ? nullptr : region->SlotAt(access->address.offset());
      if (slot == nullptr || storage::LoadWord(slot) != access->observed) return access;
    }
  }
  return nullptr;
}

absl::Status CommitRun::SendLock(Party& party) {
  ++op_->replies_pending;
  op_->owing.push_back(party.node);
  absl::Status sent =
      AppendBody(party, LogType::kLock, party.primary_of, Timestamp(), 0, rdma::WorkRequest::Notify::kWake);
  if (!sent.ok()) {
    --op_->replies_pending;
    op_->owing.pop_back();
    return sent;
  }
  party.lock_sent = true;
  if (party.self()) worker_.mesh().DeliverSelf();
  return absl::OkStatus();
}

// Remote primaries first: while their answers travel nothing is locked here, and hot local objects are locked
// only from now on, for microseconds. Which of the two orders locks are taken in is free: a LOCK never waits
// for another.
Task<absl::Status> CommitRun::Lock() {
  bool remote = false;
  for (Party& party : parties_) remote = remote || (party.primary_of != 0 && !party.self());
  // No use in bothering others if our own part cannot succeed.
  const Access* changed = remote && !Mutated(Mutation::kSkipLock) ? ChangedLocally() : nullptr;
  if (changed != nullptr) {
    op_->refused = true;
    op_->conflict = {.reason = changed->allocates ? AbortReason::kAllocation : AbortReason::kLockConflict,
                     .address = changed->address,
                     .other = node_.locks.Holder(changed->address)};
    co_return absl::OkStatus();
  }
  for (Party& party : parties_) {
    if (party.primary_of == 0 || party.self()) continue;
    while (!SendLock(party).ok()) {  // the request queue is full: completions will make room
      op_->lost = op_->lost || party.state->link->gone;
      op_->timed_out = worker_.loop().Now() > tx_.deadline_;
      if (op_->lost || op_->timed_out) break;
      co_await worker_.loop().Yield();
    }
    if (op_->lost || op_->timed_out) break;
  }
  if (op_->refused || op_->lost || op_->timed_out) co_return absl::OkStatus();
  if (op_->replies_pending > 0) co_await coordinator_.WaitForReplies(*op_, tx_.deadline_);
  if (op_->refused || op_->lost || op_->timed_out) co_return absl::OkStatus();
  for (Party& party : parties_) {
    if (party.primary_of != 0 && party.self()) FURROW_CO_RETURN_IF_ERROR(SendLock(party));
  }
  FURROW_CHECK(op_->replies_pending == 0);  // our own participant answers inside SendLock
  co_return absl::OkStatus();
}

Task<void> CommitRun::AbortLocked() {
  for (Party& party : parties_) {
    if (!party.lock_sent) continue;
    while (!party.state->link->gone && !op_->recovering) {
      absl::Status sent = AppendSmall(party, LogType::kAbort, Timestamp(), nullptr);
      if (sent.ok()) break;
      co_await worker_.loop().Yield();  // the request queue is full; the log room is reserved
    }
    if (party.self()) worker_.mesh().DeliverSelf();
  }
  DropReservations();
}

// --- W ---

Task<Timestamp> CommitRun::WriteTimestamp() {
  cluster::ClockInterval now;
  while (!node_.timestamps.Now(&now)) {
    if (worker_.loop().Now() > tx_.deadline_) co_return Timestamp::Max();
    co_await worker_.loop().SleepFor(100 * kMicrosecond);
  }
  Timestamp w = now.upper.Next();
  // Strictly greater than every version that the transaction read or replaces.
  for (uint32_t i = 0; i < tx_.accesses_.size(); ++i) {
    w = std::max(w, tx_.accesses_.at(i).observed.timestamp().Next());
  }
  if (!Mutated(Mutation::kSkipWriteWait) && !co_await coordinator_.WaitUntilPassed(w, tx_.deadline_)) {
    co_return Timestamp::Max();
  }
  co_return w;
}

// --- COMMIT-BACKUP, COMMIT-PRIMARY ---

Task<bool> CommitRun::CommitBackups(Timestamp w) {
  for (Party& party : parties_) {
    if (party.backup_of == 0) continue;
    rdma::OutboundLink& link = *party.state->link;
    backups_.Add();
    while (true) {
      // Not waking, unless the ring fills up: a backup has nothing to do before truncation.
      bool half_full = link.log->free_bytes() < link.log->capacity() / 2;
      absl::Status sent =
          AppendBody(party, LogType::kCommitBackup, party.backup_of, w, backups_.id(),
                     half_full ? rdma::WorkRequest::Notify::kWake : rdma::WorkRequest::Notify::kQuiet);
      if (sent.ok()) break;
      if (link.gone || op_->recovering) {
        backups_.Forget();
        op_->lost = true;
        break;
      }
      co_await worker_.loop().Yield();
    }
    if (op_->recovering) break;
    if (party.self()) {
      worker_.mesh().DeliverSelf();
    } else if (link.connection->completes_at_once()) {
      worker_.mesh().PollCompletions();
    }
  }
  if (Mutated(Mutation::kSkipBackupWait)) co_return true;
  const bool acknowledged = co_await backups_.Wait() == rdma::CompletionStatus::kOk;
  co_return acknowledged && (!op_->lost || Mutated(Mutation::kKeepAcknowledgements));
}

Task<bool> CommitRun::CommitPrimaries(Timestamp w) {
  // Our own primary first: its acknowledgement costs nothing, and one suffices for the report.
  for (bool self : {true, false}) {
    for (Party& party : parties_) {
      if (party.primary_of == 0 || party.self() != self || Stops()) continue;
      ++op_->primaries_pending;
      while (true) {
        absl::Status sent = AppendSmall(party, LogType::kCommitPrimary, w, op_);
        if (sent.ok()) break;
        if (party.state->link->gone || Stops()) {
          rdma::Operation::Complete(op_->id(), rdma::CompletionStatus::kPeerGone);
          break;
        }
        co_await worker_.loop().Yield();
      }
      if (self) {
        worker_.mesh().DeliverSelf();
      } else if (party.state->link->connection->completes_at_once()) {
        worker_.mesh().PollCompletions();
      }
    }
  }
  if (!op_->primary_acknowledged) co_await coordinator_.WaitForPrimary(*op_);
  co_return op_->primary_acknowledged;
}

// --- the whole ---

CommitResult CommitRun::Aborted(Conflict conflict) {
  if (op_ != nullptr) coordinator_.Completed(*op_, false);
  if (Access* access = conflict.address.is_null() ? nullptr : tx_.accesses_.Find(conflict.address)) {
    std::span<const std::byte> payload(access->read, access->read == nullptr ? 0 : access->read_bytes);
    if (node_.name_object && !payload.empty()) conflict.object = node_.name_object(payload);
    worker_.conflicts().Count(conflict);
  }
  tx_.Doom(std::move(conflict));
  ++worker_.mutable_stats().aborted[static_cast<size_t>(tx_.conflict().reason)];
  return CommitResult{.outcome = Outcome::kAborted, .id = id_, .status = ToStatus(tx_.conflict())};
}

CommitResult CommitRun::UnknownOutcome(std::string_view why) {
  op_->lost = true;  // its records stay at the participants until recovery has decided
  ++worker_.mutable_stats().unknown;
  return CommitResult{.outcome = Outcome::kUnknown,
                      .id = id_,
                      .status = absl::UnknownError(
                          absl::StrCat("the outcome of transaction ", ToString(id_), " is unknown: ", Sv(why),
                                       ". It may have committed: read before you try again"))};
}

Task<CommitResult> CommitRun::AwaitRecovery(std::string_view why) {
  DropReservations();
  op_->lost = true;
  if (node_.recovery != nullptr) co_await coordinator_.WaitForDecision(*op_, tx_.deadline_);
  switch (op_->decision) {
    case CommitOp::Decision::kCommitted:
      co_return Committed(op_->decided_w);
    case CommitOp::Decision::kAborted:
      co_return Aborted({.reason = AbortReason::kReconfigured});
    case CommitOp::Decision::kOpen:
      break;
  }
  co_return UnknownOutcome(why);
}

CommitResult CommitRun::Committed(Timestamp w) {
  if (!node_.lease.valid()) {
    // Committed, but who has no lease may not say so: it may be evicted already.
    ++worker_.mutable_stats().unknown;
    return CommitResult{
        .outcome = Outcome::kUnknown,
        .id = id_,
        .status = absl::UnknownError("this node lost its lease before it could report the outcome of "
                                     "transaction " +
                                     ToString(id_))};
  }
  WorkerStats& stats = worker_.mutable_stats();
  ++stats.committed;
  if (tx_.distributed_) ++stats.distributed;
  return CommitResult{.outcome = Outcome::kCommitted, .id = id_, .timestamp = w, .status = absl::OkStatus()};
}

Task<CommitResult> CommitRun::Run() {
  if (absl::Status planned = Plan(); !planned.ok()) {
    co_return CommitResult{.outcome = Outcome::kAborted, .status = planned};
  }
  if (absl::Status reserved = co_await Reserve(); !reserved.ok()) {
    ++worker_.mutable_stats().aborted[static_cast<size_t>(AbortReason::kResource)];
    co_return CommitResult{.outcome = Outcome::kAborted, .status = reserved};
  }
  // Read once: it may change at any moment, and then Adopt() judges this one by the configuration it has
  // here.
  const cluster::ClusterView* const view = node_.current_view();
  if (view != view_ && Moved()) {
    GiveBackReservations();
    co_return Aborted({.reason = AbortReason::kReconfigured});
  }
  op_ = &coordinator_.NewOp();
  op_->config = view->id();
  for (uint32_t region : regions_) op_->regions.push_back(RegionId(region));
  id_ = TxId{op_->config, node_.options.id, worker_.id(), op_->local};
  for (Party& party : parties_) op_->links.push_back(party.state);

  absl::Status sent = co_await Lock();
  if (!sent.ok() || op_->refused || op_->lost || op_->timed_out) {
    co_await AbortLocked();
    Conflict conflict = op_->conflict;
    if (op_->timed_out) conflict = {.reason = AbortReason::kDeadline};
    if (op_->lost) conflict = WhyLost();
    if (!sent.ok()) conflict = {.reason = AbortReason::kResource};
    co_return Aborted(conflict);
  }
  Timestamp w = co_await WriteTimestamp();
  if (w == Timestamp::Max()) op_->timed_out = true;
  if (op_->timed_out || op_->lost || !co_await Validate() || op_->lost || ReadRegionsMoved()) {
    co_await AbortLocked();
    Conflict conflict = op_->conflict;
    if (op_->timed_out) conflict = {.reason = AbortReason::kDeadline};
    if (op_->lost) conflict = WhyLost();
    co_return Aborted(conflict);
  }
  if (!co_await CommitBackups(w)) {
    co_return co_await AwaitRecovery("a backup did not acknowledge COMMIT-BACKUP");
  }
  bool acknowledged = co_await CommitPrimaries(w);
  co_await backups_.Wait();  // at once, except where the mutation has put it off
  if (!acknowledged) co_return co_await AwaitRecovery("no primary acknowledged COMMIT-PRIMARY");
  DropReservations();
  co_return Committed(w);
}

Task<CommitResult> Coordinator::Commit(Transaction& tx) {
  if (tx.ended_) {
    co_return CommitResult{.status = absl::FailedPreconditionError("the transaction has ended already")};
  }
  if (tx.doomed()) {
    ++worker_.mutable_stats().aborted[static_cast<size_t>(tx.conflict_.reason)];
    CommitResult result{.outcome = Outcome::kAborted, .status = ToStatus(tx.conflict_)};
    tx.Abort();
    co_return result;
  }
  WorkerStats& stats = worker_.mutable_stats();
  stats.local_reads += tx.local_reads_;
  stats.remote_reads += tx.remote_reads_;
  if (tx.writes_ > 0) {
    // What was allocated and freed again in here was never anybody's: a transaction with nothing else only
    // reads.
    bool writes = false;
    for (uint32_t i = 0; i < tx.accesses_.size() && !writes; ++i) {
      const Access& access = tx.accesses_.at(i);
      writes = access.written() && !(access.allocates && access.frees);
    }
    if (!writes) {
      for (uint32_t i = 0; i < tx.accesses_.size(); ++i) {
        const Access& access = tx.accesses_.at(i);
        if (access.allocates) GiveLease({access.address, access.observed, access.slot_bytes}, tx.began_in_);
      }
      tx.writes_ = 0;
    }
  }
  if (tx.writes_ == 0) {
    // All reads were of one snapshot, R, which is its serialization point: no message, nothing to validate.
    tx.ended_ = true;
    End(tx);
    if (!node_.lease.valid()) {
      co_return CommitResult{.outcome = Outcome::kAborted,
                             .status = absl::UnavailableError("this node lost its lease")};
    }
    ++stats.committed;
    ++stats.read_only;
    co_return CommitResult{
        .outcome = Outcome::kCommitted, .timestamp = tx.read_ts_, .status = absl::OkStatus()};
  }
  CommitRun run(*this, tx);
  CommitResult result = co_await run.Run();
  if (result.outcome != Outcome::kAborted) {
    // Slots that were taken and freed by the same transaction went through no LOCK: they are leased as
    // before.
    for (uint32_t i = 0; i < tx.accesses_.size(); ++i) {
      const Access& access = tx.accesses_.at(i);
      if (access.allocates && access.frees)
        GiveLease({access.address, access.observed, access.slot_bytes}, tx.began_in_);
    }
  }
  if (result.committed()) {
    tx.ended_ = true;
    End(tx);
  } else if (result.outcome == Outcome::kAborted) {
    tx.Doom({.reason = AbortReason::kResource});
    tx.Abort();
  } else {
    tx.ended_ = true;  // unknown: its allocations may exist
    End(tx);
  }
  co_return result;
}

}  // namespace furrow::txn
