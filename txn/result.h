// How a transaction ends, and why it was aborted.
#ifndef FURROW_TXN_RESULT_H_
#define FURROW_TXN_RESULT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/ids.h"

namespace furrow::txn {

enum class AbortReason : uint8_t {
  kNone,
  kUser,              // the caller aborted
  kLockConflict,      // LOCK: locked by another transaction, or changed since it was read
  kValidateConflict,  // VALIDATE: an object that was read has changed or is locked
  kReadLocked,        // a read met a locked head for too long
  kSnapshotTooOld,    // the version at the read timestamp is gone
  kEagerValidation,   // a transaction that writes touched an old version: it could not commit
  kAllocation,        // a leased slot was taken meanwhile
  kResource,          // a limit: record or ring size, region memory
  kDeadline,          // the transaction's deadline passed before its outcome was decided
  kMemberLost,        // a primary or backup is gone
  kReconfigured,      // the configuration changed under it: recovery has aborted it, or it begins again
  kCount,
};
std::string_view ToString(AbortReason reason);

// Whom and what a transaction collided with, as far as it is known.
struct Conflict {
  AbortReason reason = AbortReason::kNone;
  Address address{};
  TxId other{};          // null when it is not known
  std::string object{};  // the object's own name (table and key) when it has one
};

enum class Outcome : uint8_t {
  kCommitted,
  kAborted,
  kUnknown,  // the coordinator lost its lease, or a participant, while the outcome was open. Never reported
             // as aborted
};

struct CommitResult {
  Outcome outcome = Outcome::kAborted;
  TxId id{};              // null for a read-only transaction
  Timestamp timestamp{};  // W; R for a read-only transaction
  // Ok; Aborted with phase, object and the other transaction; ResourceExhausted; Unknown with the id to ask
  // for.
  absl::Status status{};
  uint32_t attempts = 0;  // how often Run() has run the body; 0: not by Run(), or never
  bool committed() const { return outcome == Outcome::kCommitted; }
};

// The status that describes a conflict: Aborted (worth a retry), ResourceExhausted, DeadlineExceeded or
// Unavailable.
absl::Status ToStatus(const Conflict& conflict);

}  // namespace furrow::txn

#endif  // FURROW_TXN_RESULT_H_
