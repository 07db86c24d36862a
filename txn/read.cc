// Reads: local ones with loads, remote ones with READs (read_remote.cc); the reader's rules of FaRMv2:
//   head unlocked, timestamp <= R: take it
//   head locked, timestamp <= R: wait, bounded, then abort (the writer's W may be <= R)
//   timestamp > R, locked or not: follow the old-version pointer; none: "snapshot too old", never "not found"
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/mutation.h"
#include "storage/object.h"
#include "storage/region.h"
#include "txn/coordinator.h"
#include "txn/lock_wait.h"
#include "txn/transaction.h"

namespace furrow::txn {
namespace {

using storage::CopyResult;
using storage::ObjectHeader;
using storage::ObjectWord;

// Between two looks at a region whose new primary recovers its locks.
constexpr Nanos kInactivePauseNs = 50 * kMicrosecond;

// What kReadLockedHead makes of a locked object: its bytes as they are, as if nobody was writing.
CopyResult CopyIgnoringLock(const std::byte* slot, uint32_t slot_bytes, std::span<std::byte> dst,
                            ObjectHeader* header) {
  std::vector<std::byte> image(slot_bytes);
  storage::CopyImage(slot, slot_bytes, image.data());
  ObjectWord word = storage::LoadWord(image.data());
  return storage::StripImage(image, word, word, dst, header);
}

}  // namespace

ReadResult Transaction::FromAccess(const Access& access, uint32_t bytes) const {
  if (!access.found) return absl::Status(absl::StatusCode::kNotFound, "");
  const std::byte* data = access.write != nullptr ? access.write : access.read;
  uint32_t have = access.write != nullptr ? access.write_bytes : access.read_bytes;
  if (bytes > have) {
    return absl::InvalidArgumentError("an object was read again with more bytes than the first time");
  }
  return std::span<const std::byte>(data, bytes);
}

void Transaction::Accept(Address address, ObjectWord word, std::byte* data, uint32_t bytes,
                         uint32_t slot_bytes, bool old_version, ReadResult* result) {
  bool found = word.allocated() || Mutated(Mutation::kSkipTombstoneCheck);
  if (old_version && has_writes()) {
    // Eager validation: it could not commit.
    *result = Fail({.reason = AbortReason::kEagerValidation, .address = address});
    return;
  }
  Access& access = accesses_.Add(address);
  access.observed = word;
  access.read = data;
  access.read_bytes = bytes;
  access.slot_bytes = slot_bytes;
  access.old_version = old_version;
  access.found = found;
  *result = FromAccess(access, bytes);
}

ReadResult Transaction::NoSuchObject(Address address, bool hint) {
  if (hint) return absl::Status(absl::StatusCode::kNotFound, "");
  return absl::InvalidArgumentError("no object of that size at " + ToString(address));
}

void Transaction::TooOld(Address address, bool hint, ReadResult* result) {
  if (hint) {
    *result = absl::Status(absl::StatusCode::kNotFound, "");
  } else if (has_writes()) {
    *result = Fail({.reason = AbortReason::kEagerValidation, .address = address});
  } else {
    *result = Fail({.reason = AbortReason::kSnapshotTooOld, .address = address});
  }
}

bool Transaction::TryReadNow(Address address, uint32_t bytes, bool hint, ReadResult* result) {
  FURROW_DCHECK(begun_);
  if (doomed()) [[unlikely]] {
    *result = ToStatus(conflict_);
    return true;
  }
  if (Access* access = accesses_.Find(address); access != nullptr) {
    *result = FromAccess(*access, bytes);
    return true;
  }
  Node& node = worker_.node();
  const cluster::RegionMapping* mapping = node.directory.Find(address.region());
  if (mapping == nullptr || !mapping->active) return false;
  if (mapping->primary().node != node.options.id) {
    return worker_.coordinator().TryReadRemote(*this, *mapping, address, bytes, hint, result);
  }
  storage::Region* region = node.regions.Find(address.region());
  if (region == nullptr) return false;
  return LookLocal(*mapping, *region, address, bytes, hint, result) == Look::kDone;
}

Transaction::Look Transaction::LookLocal(const cluster::RegionMapping& mapping, storage::Region& region,
                                         Address address, uint32_t bytes, bool hint, ReadResult* result) {
  const std::byte* slot = region.SlotAt(address.offset());
  const uint32_t slot_bytes = slot == nullptr ? 0 : region.SlotBytesAt(address.offset());
  if (slot == nullptr || bytes > storage::PayloadCapacity(slot_bytes)) {
    *result = NoSuchObject(address, hint);
    return Look::kDone;
  }
  // Who waits for a lock looks often: no memory for that.
  const ObjectWord now = storage::LoadWord(slot);
  if (now.locked() && now.timestamp() <= read_ts_ && !Mutated(Mutation::kReadLockedHead))
    return Look::kLocked;
  std::byte* data = accesses_.arena().Allocate(bytes);
  for (int i = 0; i < kTornRetries; ++i) {
    ObjectHeader header;
    CopyResult copied = storage::CopyObject(slot, {data, bytes}, &header);
    if (copied == CopyResult::kTorn) continue;
    if (header.word.timestamp() > read_ts_) {
      FollowLocal(mapping, address, bytes, slot_bytes, header.version.ovp(), hint, result);
      return Look::kDone;
    }
    if (header.word.locked() && Mutated(Mutation::kReadLockedHead)) {
      copied = CopyIgnoringLock(slot, slot_bytes, {data, bytes}, &header);
    }
    if (header.word.locked()) return Look::kLocked;
    if (copied != CopyResult::kObject) continue;
    ++local_reads_;
    if (hint && !header.word.allocated()) {
      *result = absl::Status(absl::StatusCode::kNotFound, "");
    } else {
      Accept(address, header.word, data, bytes, slot_bytes, false, result);
    }
    return Look::kDone;
  }
  return Look::kTorn;
}

void Transaction::FollowLocal(const cluster::RegionMapping& mapping, Address address, uint32_t bytes,
                              uint32_t slot_bytes, storage::OldVersionPointer ovp, bool hint,
                              ReadResult* result) {
  storage::OldVersionArena* arena = worker_.node().old_versions;
  if (read_ts_ < mapping.floor && !Mutated(Mutation::kIgnoreFloor)) return TooOld(address, hint, result);
  std::byte* data = accesses_.arena().Allocate(bytes);
  // A chain leads to ever older versions; where it does not, a block was reused, and this history is gone.
  Timestamp newer = Timestamp::Max();
  for (int torn = 0; ovp.value() != 0 && torn < kTornRetries;) {
    // Out of range: the block was cut anew under a stale address, and these are bytes of something else.
    if (arena == nullptr || ovp.value() % storage::kLineBytes != 0 ||
        ovp.value() + slot_bytes > arena->bytes())
      break;
    ObjectHeader header;
    CopyResult copied = storage::CopyObject(arena->base() + ovp.value(), {data, bytes}, &header);
    if (copied == CopyResult::kTorn) {
      ++torn;
      continue;
    }
    if (copied != CopyResult::kObject || header.word.timestamp() >= newer) break;
    newer = header.word.timestamp();
    if (header.word.timestamp() <= read_ts_) {
      ++local_reads_;
      if (hint && !header.word.allocated()) {
        *result = absl::Status(absl::StatusCode::kNotFound, "");
      } else {
        Accept(address, header.word, data, bytes, slot_bytes, true, result);
      }
      return;
    }
    ovp = header.version.ovp();
  }
  TooOld(address, hint, result);
}

void Transaction::Prefetch(Address address, uint32_t bytes) {
  Node& node = worker_.node();
  const size_t span = storage::SpanBytes(bytes);
  const cluster::RegionMapping* mapping = node.directory.Find(address.region());
  if (mapping == nullptr || address.offset() + span > mapping->bytes) return;
  if (mapping->primary().node != node.options.id) {
    return worker_.coordinator().PrefetchRemote(*mapping, address, span);
  }
  if (storage::Region* region = node.regions.Find(address.region()); region != nullptr) {
    storage::PrefetchObject(region->base() + address.offset(), span, storage::PrefetchFor::kRead);
  }
}

Task<ReadResult> Transaction::ReadSlow(Address address, uint32_t bytes, bool hint) {
  Node& node = worker_.node();
  EventLoop& loop = worker_.loop();
  Nanos waited_since = 0;
  while (true) {
    ReadResult result{std::span<const std::byte>()};
    if (TryReadNow(address, bytes, hint, &result)) co_return std::move(result);
    const cluster::RegionMapping* mapping = node.directory.Find(address.region());
    if (mapping == nullptr) {
      if (node.control == nullptr) co_return absl::NotFoundError("no region holds " + ToString(address));
      absl::StatusOr<const cluster::RegionMapping*> found =
          co_await node.control->LookupRegion(address.region());
      if (!found.ok()) {
        if (hint && found.status().code() == absl::StatusCode::kNotFound) {
          co_return absl::Status(absl::StatusCode::kNotFound, "");
        }
        co_return found.status();
      }
      continue;
    }
    if (!mapping->active) {
      if (loop.Now() > deadline_) co_return Fail({.reason = AbortReason::kReconfigured, .address = address});
      co_await loop.SleepFor(kInactivePauseNs);
      continue;
    }
    if (mapping->primary().node != node.options.id) {
      co_return co_await worker_.coordinator().ReadRemote(*this, address, bytes, hint);
    }
    // Ours, and locked or changing: somebody commits to it.
    Nanos now = loop.Now();
    if (waited_since == 0) waited_since = now;
    if (now - waited_since > node.options.locked_read_wait_ns || now > deadline_) {
      TxId holder = node.locks.Holder(address);
      co_return Fail({.reason = AbortReason::kReadLocked, .address = address, .other = holder});
    }
    co_await LookAway(loop, now - waited_since);
  }
}

}  // namespace furrow::txn
