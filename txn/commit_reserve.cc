// What a commit reserves before LOCK, so that no later step can fail for lack of room: log room at every
// participant, reply room for every answer, staging memory for every body.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "txn/commit_run.h"
#include "txn/coordinator.h"

namespace furrow::txn {

size_t CommitRun::RecordBodyBytes(uint64_t groups) const {
  size_t bytes = sizeof(LogHeader) + Pad8(4 * regions_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if ((groups >> g & 1) != 0) bytes += groups_[g].bytes;
  }
  return bytes;
}

uint64_t CommitRun::LogRoom(const Party& party) const {
  uint64_t room = 0;
  if (party.primary_of != 0) {
    // LOCK, then COMMIT-PRIMARY (with ids to truncate) or ABORT.
    room += rdma::RecordBytes(RecordBodyBytes(party.primary_of)) + kSmallRecordRoom;
  }
  if (party.backup_of != 0) room += rdma::RecordBytes(RecordBodyBytes(party.backup_of));
  return room;
}

bool CommitRun::TryReserve() {
  for (size_t i = 0; i < parties_.size(); ++i) {
    Party& party = parties_[i];
    uint64_t room = LogRoom(party);
    bool reply = party.primary_of != 0 && !party.self();
    bool ok = party.state->link->log->Reserve(room + kTruncateRoom);
    if (ok && reply && party.state->link->reply_room < kLockReplyRoom) {
      party.state->link->log->Unreserve(room + kTruncateRoom);
      ok = false;
    }
    if (!ok) {
      for (size_t j = 0; j < i; ++j) {
        parties_[j].state->link->log->Unreserve(parties_[j].reserved + kTruncateRoom);
        parties_[j].reserved = 0;
        if (parties_[j].reply_reserved) parties_[j].state->link->reply_room += kLockReplyRoom;
        parties_[j].reply_reserved = false;
      }
      return false;
    }
    party.reserved = room;
    if (reply) party.state->link->reply_room -= kLockReplyRoom;
    party.reply_reserved = reply;
  }
  return true;
}

Task<absl::Status> CommitRun::Reserve() {
  for (const Party& party : parties_) {
    const rdma::RingWriter& log = *party.state->link->log;
    uint64_t need = LogRoom(party) + kTruncateRoom;
    size_t largest = std::max(RecordBodyBytes(party.primary_of), RecordBodyBytes(party.backup_of));
    if (rdma::RecordBytes(largest) > log.max_record() || need + log.max_record() > log.capacity() / 2) {
      co_return absl::ResourceExhaustedError(
          absl::StrCat("the transaction is too large: it needs ", need, " bytes of log at node ",
                       party.node.value(), " of which ", largest, " in one record; the limits are ",
                       log.capacity() / 2 - log.max_record(), " and ", log.max_record(),
                       ". Write less in one transaction, or raise log_ring_bytes and max_log_record"));
    }
  }
  for (int tries = 0; !TryReserve() || !StageBodies(); ++tries) {
    for (const Party& party : parties_) {
      if (party.state->link->gone) {
        if (node_.recovery != nullptr) co_return ToStatus(WhyLost());
        co_return absl::UnavailableError(absl::StrCat("member ", party.node.value(), " is gone"));
      }
    }
    if (worker_.loop().Now() > tx_.deadline_) {
      co_return absl::DeadlineExceededError(
          "no room in the log rings before the transaction's deadline; a member is "
          "slow, or log_ring_bytes is too small for this load");
    }
    coordinator_.FlushTruncations(true);
    if (tries < 16) {
      co_await worker_.loop().Yield();
    } else {
      co_await worker_.loop().SleepFor(50 * kMicrosecond);
    }
  }
  co_return absl::OkStatus();
}

// All bodies are staged before LOCK: what holds locks waits for no memory. False: not now; nothing is
// reserved any more.
bool CommitRun::StageBodies() {
  bool ok = true;
  for (const Party& party : parties_) {
    ok = ok && (party.primary_of == 0 || Build(party.primary_of).ok());
    ok = ok && (party.backup_of == 0 || Build(party.backup_of).ok());
  }
  if (ok) return true;
  GiveBackReservations();
  return false;
}

void CommitRun::GiveBackReservations() {
  for (Body& body : bodies_) worker_.mesh().ReleaseStaged(body.bytes);
  bodies_.clear();
  for (Party& party : parties_) {
    party.state->link->log->Unreserve(party.reserved + kTruncateRoom);
    party.reserved = 0;
    if (party.reply_reserved) party.state->link->reply_room += kLockReplyRoom;
    party.reply_reserved = false;
  }
}

void CommitRun::DropReservations() {
  for (Party& party : parties_) {
    if (party.reserved > 0) party.state->link->log->Unreserve(party.reserved);
    party.reserved = 0;
    // The answer's room comes back with the answer.
    if (party.reply_reserved && !party.lock_sent) party.state->link->reply_room += kLockReplyRoom;
    party.reply_reserved = false;
  }
}

}  // namespace furrow::txn
