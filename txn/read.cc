// Reads: local ones with loads, remote ones with READs; the reader's rules of design and FaRMv2:
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
#include "txn/transaction.h"

namespace furrow::txn {
namespace {

using storage::CopyResult;
using storage::ObjectHeader;
using storage::ObjectWord;

// How often a torn copy is taken again before others get a turn: an install takes less than a copy.
constexpr int kTornRetries = 8;
// A READ that took longer may have met line versions that wrapped (design, section 4).
constexpr Nanos kMaxReadNs = 1 * kMillisecond;

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

void Transaction::TooOld(Address address, bool hint, ReadResult* result) {
  if (hint) {
    *result = absl::Status(absl::StatusCode::kNotFound, "");
  } else if (has_writes()) {
    *result = Fail({.reason = AbortReason::kEagerValidation, .address = address});
  } else {
    *result = Fail({.reason = AbortReason::kSnapshotTooOld, .address = address});
  }
}

bool Transaction::TryReadLocal(Address address, uint32_t bytes, bool hint, ReadResult* result) {
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
  if (mapping == nullptr || mapping->primary().node != node.options.id) return false;
  storage::Region* region = node.regions.Find(address.region());
  if (region == nullptr) return false;
  return LookLocal(*mapping, *region, address, bytes, hint, result) == Look::kDone;
}

Transaction::Look Transaction::LookLocal(const cluster::RegionMapping& mapping, storage::Region& region,
                                         Address address, uint32_t bytes, bool hint, ReadResult* result) {
  const std::byte* slot = region.SlotAt(address.offset());
  const uint32_t slot_bytes = slot == nullptr ? 0 : region.SlotBytesAt(address.offset());
  if (slot == nullptr || bytes > storage::PayloadCapacity(slot_bytes)) {
    *result = hint ? absl::Status(absl::StatusCode::kNotFound, "")
                   : absl::InvalidArgumentError("no object of that size at " + ToString(address));
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
  storage::Region* region = worker_.node().regions.Find(address.region());
  if (region == nullptr || address.offset() + storage::SpanBytes(bytes) > region->bytes()) return;
  const std::byte* p = region->base() + address.offset();
  for (size_t line = 0; line < storage::SpanBytes(bytes); line += storage::kLineBytes)
    __builtin_prefetch(p + line);
}

Task<ReadResult> Transaction::ReadSlow(Address address, uint32_t bytes, bool hint) {
  Node& node = worker_.node();
  EventLoop& loop = worker_.loop();
  Nanos waited_since = 0;
  while (true) {
    ReadResult result{std::span<const std::byte>()};
    if (TryReadLocal(address, bytes, hint, &result)) co_return std::move(result);
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
    if (mapping->primary().node != node.options.id) {
      co_return co_await worker_.coordinator().ReadRemote(*this, address, bytes, hint);
    }
    // Ours, and locked or changing: somebody commits to it.
    Nanos now = loop.Now();
    if (waited_since == 0) waited_since = now;
    if (now - waited_since > node.options.locked_read_wait_ns) {
      TxId holder = node.locks.Holder(address);
      co_return Fail({.reason = AbortReason::kReadLocked, .address = address, .other = holder});
    }
    co_await loop.Yield();
  }
}

namespace {

// READs of an object: word 0, the image, word 0 again, in one post; where pieces are whole lines the image
// suffices.
struct ObjectRead {
  ObjectRead(rdma::RegisteredPool& pool, EventLoop& loop, size_t image_bytes)
      : buffer(pool, image_bytes + 16), group(loop), image_bytes(image_bytes) {}

  ScratchBuffer buffer;
  rdma::OperationGroup group;
  size_t image_bytes;

  std::span<std::byte> image() const { return buffer.bytes().subspan(0, image_bytes); }
  std::span<std::byte> before() const { return buffer.bytes().subspan(image_bytes, 8); }
  std::span<std::byte> after() const { return buffer.bytes().subspan(image_bytes + 8, 8); }

  absl::Status Post(rdma::Connection& connection, rdma::RemoteAddress at, bool whole_lines) {
    rdma::WorkRequest requests[3];
    size_t n = 0;
    auto add = [&](std::span<std::byte> local) {
      requests[n] =
          rdma::WorkRequest{.opcode = rdma::Opcode::kRead, .signaled = false, .local = local, .remote = at};
      ++n;
    };
    if (!whole_lines) add(before());
    add(image());
    if (!whole_lines) add(after());
    requests[n - 1].signaled = true;
    // If an earlier one fails, the last one is flushed: its completion tells of any failure.
    requests[n - 1].id = group.Add();
    absl::Status posted = connection.Post(std::span(requests, n));
    if (!posted.ok()) group.Forget();
    return posted;
  }

  CopyResult Strip(bool whole_lines, std::span<std::byte> dst, ObjectHeader* header) const {
    ObjectWord first = storage::LoadWord(whole_lines ? image().data() : before().data());
    ObjectWord last = storage::LoadWord(whole_lines ? image().data() : after().data());
    return storage::StripImage(image(), first, last, dst, header);
  }
};

}  // namespace

Task<ReadResult> Coordinator::ReadRemote(Transaction& tx, Address address, uint32_t bytes, bool hint) {
  const bool whole_lines = node_.fabric.read_piece_bytes() >= storage::kLineBytes;
  EventLoop& loop = worker_.loop();
  const size_t image_bytes = storage::SpanBytes(bytes);
  std::byte* data = tx.accesses_.arena().Allocate(bytes);
  const Nanos give_up = loop.Now() + node_.options.locked_read_wait_ns;
  bool old_version = false;
  Timestamp newer = Timestamp::Max();  // of the version before, in a chain
  ReadResult result{std::span<const std::byte>()};
  storage::OldVersionPointer ovp;
  while (true) {
    const cluster::RegionMapping* mapping = node_.directory.Find(address.region());
    if (image_bytes > storage::kMaxSlotBytes || loop.Now() > tx.deadline_) {
      if (image_bytes > storage::kMaxSlotBytes) {
        co_return hint ? absl::Status(absl::StatusCode::kNotFound, "")
                       : absl::InvalidArgumentError("no object of that size at " + ToString(address));
      }
      co_return tx.Fail({.reason = AbortReason::kDeadline, .address = address});
    }
    LinkState* link = LinkTo(mapping->primary().node);
    if (link == nullptr || link->link->gone || link->link->connection == nullptr) {
      co_return tx.Fail({.reason = AbortReason::kMemberLost, .address = address});
    }
    if (address.offset() + image_bytes > mapping->bytes) {
      co_return hint ? absl::Status(absl::StatusCode::kNotFound, "")
                     : absl::InvalidArgumentError("no object of that size at " + ToString(address));
    }
    rdma::RemoteAddress at = mapping->primary().memory.Plus(address.offset());
    if (old_version) {
      const cluster::Member* member = node_.current_view()->Find(mapping->primary().node);
      if (member == nullptr) co_return tx.Fail({.reason = AbortReason::kMemberLost, .address = address});
      at = member->old_versions.Plus(ovp.value());
    }
    ObjectRead read(scratch_, loop, image_bytes);
    const Nanos posted_at = loop.Now();
    if (read.buffer.empty() || !read.Post(*link->link->connection, at, whole_lines).ok()) {
      co_await loop.Yield();  // everything is in use: completions will free some
      continue;
    }
    if (link->link->connection->completes_at_once()) worker_.mesh().PollCompletions();
    if (co_await read.group.Wait() != rdma::CompletionStatus::kOk || !node_.lease.valid()) {
      if (node_.lease.valid()) OnLinkLost(*link->link);  // a failed connection does not come back
      co_return tx.Fail({.reason = AbortReason::kMemberLost, .address = address});
    }
    ++tx.remote_reads_;
    if (loop.Now() - posted_at > kMaxReadNs) continue;
    ObjectHeader header;
    CopyResult copied = read.Strip(whole_lines, {data, bytes}, &header);
    if (copied != CopyResult::kTorn && header.word.timestamp() > tx.read_ts_) {
      const bool older = header.word.timestamp() < newer;
      newer = header.word.timestamp();
      ovp = header.version.ovp();
      // Along a stale route this may be anything: its pointer is not followed, the walk without the cache
      // finds the way.
      if (hint || !older || ovp.value() == 0 || ovp.value() % storage::kLineBytes != 0 ||
          (tx.read_ts_ < mapping->floor && !Mutated(Mutation::kIgnoreFloor))) {
        tx.TooOld(address, hint, &result);
        co_return std::move(result);
      }
      old_version = true;
      continue;
    }
    if (copied == CopyResult::kHeader && header.word.locked() && Mutated(Mutation::kReadLockedHead)) {
      ObjectWord unlocked = header.word.WithLock(false);
      std::memcpy(read.image().data(), &unlocked, sizeof unlocked);
      copied = storage::StripImage(read.image(), unlocked, unlocked, {data, bytes}, &header);
    }
    if (copied == CopyResult::kObject) {
      if (hint && !header.word.allocated()) co_return absl::Status(absl::StatusCode::kNotFound, "");
      tx.Accept(address, header.word, data, bytes, 0, old_version, &result);
      co_return std::move(result);
    }
    // Locked, or torn: somebody commits to it.
    if (loop.Now() > give_up) {
      if (hint) co_return absl::Status(absl::StatusCode::kNotFound, "");
      if (!old_version) co_return tx.Fail({.reason = AbortReason::kReadLocked, .address = address});
      tx.TooOld(address, hint, &result);  // the block of old versions is somebody else's by now
      co_return std::move(result);
    }
    co_await loop.Yield();
  }
}

}  // namespace furrow::txn
