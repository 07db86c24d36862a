#include "txn/transaction.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/size_class.h"
#include "txn/coordinator.h"
#include "txn/worker.h"

namespace furrow::txn {

Transaction::Transaction(Worker& worker, TransactionOptions options) : worker_(worker), options_(options) {}

Transaction::~Transaction() { Abort(); }

Task<absl::Status> Transaction::Begin() { return worker_.coordinator().Begin(*this); }

ReadResult Transaction::Fail(Conflict conflict) {
  Doom(std::move(conflict));
  return ToStatus(conflict_);
}

void Transaction::Doom(Conflict conflict) {
  FURROW_DCHECK(conflict.reason != AbortReason::kNone);
  if (doomed()) return;
  conflict_ = std::move(conflict);
  // Conflicts at LOCK and VALIDATE are counted by the commit, which knows the objects' names.
  switch (conflict_.reason) {
    case AbortReason::kReadLocked:
    case AbortReason::kSnapshotTooOld:
    case AbortReason::kEagerValidation:
      worker_.conflicts().Count(conflict_);
      break;
    default:
      break;
  }
}

absl::StatusOr<std::span<std::byte>> Transaction::OpenForWrite(Address address, uint32_t bytes) {
  if (doomed()) return ToStatus(conflict_);
  if (options_.read_only) {
    return absl::FailedPreconditionError("a read-only transaction cannot write; begin it without read_only");
  }
  Access* access = accesses_.Find(address);
  if (access == nullptr || !access->found || access->frees) {
    return absl::FailedPreconditionError("an object must be read or allocated before it is written");
  }
  if (access->old_version) {
    return Fail({.reason = AbortReason::kEagerValidation, .address = address}).status();
  }
  if (access->write != nullptr) {
    if (bytes > access->write_bytes) {
      return absl::InvalidArgumentError("an object that is written again must not grow");
    }
    return std::span<std::byte>(access->write, access->write_bytes);
  }
  if (bytes > access->read_bytes) {
    return absl::InvalidArgumentError("more bytes to write than were read");
  }
  access->write = accesses_.arena().Allocate(bytes);
  access->write_bytes = bytes;
  std::memcpy(access->write, access->read, bytes);
  ++writes_;
  return std::span<std::byte>(access->write, bytes);
}

absl::Status Transaction::Free(Address address) {
  if (doomed()) return ToStatus(conflict_);
  if (options_.read_only) {
    return absl::FailedPreconditionError("a read-only transaction cannot delete; begin it without read_only");
  }
  Access* access = accesses_.Find(address);
  if (access == nullptr || !access->found || access->frees) {
    return absl::FailedPreconditionError("an object must be read or allocated before it is freed");
  }
  if (access->old_version)
    return Fail({.reason = AbortReason::kEagerValidation, .address = address}).status();
  if (!access->written()) ++writes_;
  access->frees = true;
  access->found = false;
  return absl::OkStatus();
}

bool Transaction::TryAllocCached(RegionId locality, uint32_t bytes, absl::StatusOr<Allocation>* result) {
  if (doomed()) {
    *result = ToStatus(conflict_);
    return true;
  }
  if (options_.read_only) {
    *result = absl::FailedPreconditionError(
        "a read-only transaction cannot insert or write; begin it without read_only");
    return true;
  }
  if (bytes > storage::MaxPayload()) {
    *result =
        absl::ResourceExhaustedError("an object is larger than 1 MB, the largest that a region can hold");
    return true;
  }
  storage::SlotLease lease;
  if (!worker_.coordinator().leases().Take(locality, storage::ClassForPayload(bytes), &lease)) return false;
  Access* known = accesses_.Find(lease.address);
  if (known != nullptr && (known->found || known->observed != lease.expected)) {
    // It was something else when this transaction looked: it cannot commit with it.
    *result = Fail({.reason = AbortReason::kAllocation, .address = lease.address}).status();
    return true;
  }
  Access& access = known != nullptr ? *known : accesses_.Add(lease.address);
  access.observed = lease.expected;
  access.found = true;
  access.old_version = false;
  access.slot_bytes = lease.slot_bytes;
  access.allocates = true;
  access.write = accesses_.arena().Allocate(bytes);
  access.write_bytes = bytes;
  std::memset(access.write, 0, bytes);
  ++writes_;
  *result = Allocation{lease.address, {access.write, bytes}};
  return true;
}

Task<absl::StatusOr<Transaction::Allocation>> Transaction::AllocSlow(RegionId locality, uint32_t bytes) {
  absl::StatusOr<Allocation> result = Allocation{};
  while (!TryAllocCached(locality, bytes, &result)) {
    absl::Status filled =
        co_await worker_.coordinator().RefillLeases(locality, storage::ClassForPayload(bytes), deadline_);
    if (filled.ok()) continue;
    // Its primary is gone, or new and not yet ready to give slots out.
    if (worker_.node().recovery != nullptr &&
        (absl::IsUnavailable(filled) || absl::IsFailedPrecondition(filled))) {
      Doom({.reason = AbortReason::kReconfigured});
      co_return ToStatus(conflict_);
    }
    co_return filled;
  }
  co_return std::move(result);
}

Task<CommitResult> Transaction::Commit() { return worker_.coordinator().Commit(*this); }

void Transaction::Abort() {
  if (ended_) return;
  ended_ = true;
  Doom({.reason = AbortReason::kUser});
  Coordinator& coordinator = worker_.coordinator();
  for (uint32_t i = 0; i < accesses_.size(); ++i) {
    const Access& access = accesses_.at(i);
    // A slot whose LOCK found it taken is no lease any more.
    if (!access.allocates ||
        (conflict_.reason == AbortReason::kAllocation && conflict_.address == access.address)) {
      continue;
    }
    coordinator.GiveLease({access.address, access.observed, access.slot_bytes}, began_in_);
  }
  if (begun_) coordinator.End(*this);
}

}  // namespace furrow::txn
