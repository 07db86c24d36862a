#include "txn/result.h"

#include "absl/strings/str_cat.h"

namespace furrow::txn {

std::string_view ToString(AbortReason reason) {
  switch (reason) {
    case AbortReason::kNone:
      return "none";
    case AbortReason::kUser:
      return "user";
    case AbortReason::kLockConflict:
      return "lock_conflict";
    case AbortReason::kValidateConflict:
      return "validate_conflict";
    case AbortReason::kReadLocked:
      return "read_locked";
    case AbortReason::kSnapshotTooOld:
      return "snapshot_too_old";
    case AbortReason::kEagerValidation:
      return "eager_validation";
    case AbortReason::kAllocation:
      return "allocation";
    case AbortReason::kResource:
      return "resource";
    case AbortReason::kDeadline:
      return "deadline";
    case AbortReason::kMemberLost:
      return "member_lost";
    case AbortReason::kReconfigured:
      return "reconfigured";
    case AbortReason::kCount:
      break;
  }
  return "invalid";
}

namespace {

std::string_view Sentence(AbortReason reason) {
  switch (reason) {
    case AbortReason::kUser:
      return "the transaction was aborted by its caller";
    case AbortReason::kLockConflict:
      return "conflict at LOCK: an object to be written was locked or has changed";
    case AbortReason::kValidateConflict:
      return "conflict at VALIDATE: an object that was read has changed";
    case AbortReason::kReadLocked:
      return "conflict at read: the object stayed locked by a commit in progress";
    case AbortReason::kSnapshotTooOld:
      return "snapshot too old: the version at the read timestamp is gone";
    case AbortReason::kEagerValidation:
      return "conflict at read: a writing transaction met an object that has changed since it began";
    case AbortReason::kAllocation:
      return "conflict at LOCK: a leased slot was taken meanwhile";
    case AbortReason::kResource:
      return "a limit was reached";
    case AbortReason::kDeadline:
      return "the transaction's deadline has passed";
    case AbortReason::kMemberLost:
      return "a member that the transaction needs is gone";
    case AbortReason::kReconfigured:
      return "the cluster was reconfigured while the transaction ran";
    default:
      return "the transaction was aborted";
  }
}

absl::StatusCode CodeOf(AbortReason reason) {
  switch (reason) {
    case AbortReason::kUser:
      return absl::StatusCode::kCancelled;
    case AbortReason::kResource:
      return absl::StatusCode::kResourceExhausted;
    case AbortReason::kDeadline:
      return absl::StatusCode::kDeadlineExceeded;
    case AbortReason::kMemberLost:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kAborted;
  }
}

}  // namespace

absl::Status ToStatus(const Conflict& conflict) {
  std::string message(Sentence(conflict.reason));
  if (!conflict.object.empty()) absl::StrAppend(&message, "; ", conflict.object);
  if (!conflict.address.is_null()) absl::StrAppend(&message, "; object ", ToString(conflict.address));
  if (!conflict.other.is_null()) absl::StrAppend(&message, "; other transaction ", ToString(conflict.other));
  return absl::Status(CodeOf(conflict.reason), message);
}

}  // namespace furrow::txn
