#include "txn/participant.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/mutation.h"
#include "txn/coordinator.h"

namespace furrow::txn {

Participant::Participant(Worker& worker) : worker_(worker), node_(worker.node()) {
  if (node_.old_versions != nullptr) {
    old_versions_ = std::make_unique<storage::OldVersionWriter>(*node_.old_versions);
  }
}

Participant::~Participant() = default;

Participant::Sender& Participant::SenderOf(rdma::InboundRing& ring) {
  if (ring.context == nullptr) {
    senders_.push_back(std::make_unique<Sender>());
    senders_.back()->ring = &ring;
    ring.context = senders_.back().get();
  }
  return *static_cast<Sender*>(ring.context);
}

void Participant::Malformed(rdma::InboundRing& ring, std::string_view what) {
  ++malformed_;
  // First of all: what it goes on to write must not be acknowledged to it and then stay unread.
  if (ring.heads != nullptr) worker_.mesh().Withdraw(ring);
  ring.closed = true;
  FURROW_LOG(ERROR) << "node " << ring.from.node.value() << " worker " << ring.from.worker.value()
                    << " sent a malformed " << what
                    << "; its ring is closed. Do both sides run the same version?";
}

void Participant::OnLog(rdma::InboundRing& ring, const rdma::RingRecord& record) {
  Sender& sender = SenderOf(ring);
  // Nobody needs it unless Keep() says so; a malformed one goes as soon as those before it have gone.
  sender.held.push_back(Held{record.end, true});
  ++held_;
  Take(sender, record.body);
  ReleaseFront(sender);
}

void Participant::Take(Sender& sender, std::span<const std::byte> body) {
  rdma::InboundRing& ring = *sender.ring;
  std::optional<LogView> view = LogView::Parse(body);
  if (!view.has_value() || view->id().node != ring.from.node || view->id().worker != ring.from.worker) {
    return Malformed(ring, "log record");
  }
  Truncate(sender, *view);
  if (ring.closed || IsLate(sender, *view)) return;
  const LogHeader& h = view->header();
  const bool begins = h.type == LogType::kLock || h.type == LogType::kCommitBackup;
  if (begins && h.local < sender.low_bound) {
    return Malformed(ring, "log record (of a transaction that is truncated)");
  }
  switch (h.type) {
    case LogType::kLock:
      OnLock(sender, *view, body);
      break;
    case LogType::kCommitBackup: {
      sender.outcomes.Advance(h.local);
      Pending& pending = sender.pending.Insert(h.local);
      if (!pending.commit_backup.empty())
        return Malformed(ring, "COMMIT-BACKUP (the second of its transaction)");
      pending.commit_backup = body;
      pending.timestamp = view->timestamp();
      Keep(sender, pending);
      break;
    }
    case LogType::kCommitPrimary:
      OnCommitPrimary(sender, *view);
      break;
    case LogType::kAbort:
      OnAbort(sender, *view);
      break;
    case LogType::kTruncate:
      break;
  }
}

void Participant::OnLock(Sender& sender, const LogView& record, std::span<const std::byte> body) {
  sender.outcomes.Advance(record.header().local);
  if (const Pending* known = sender.pending.Find(record.header().local);
      known != nullptr && known->state != State::kNone) {
    return Malformed(*sender.ring, "LOCK (the second of its transaction)");
  }
  LockReply reply{};
  bool locked = LockAll(record, &reply);
  Pending& pending = sender.pending.Insert(record.header().local);
  pending.lock = body;
  pending.state = locked ? State::kLocked : State::kRefused;
  Keep(sender, pending);
  ReplyToLock(sender, record, reply, locked ? AnswerCode::kOk : AnswerCode::kConflict);
}

bool Participant::LockObject(const ObjectEntry& e, size_t payload, const TxId& id, LockReply* in_the_way) {
  const Address address = Address::FromBits(e.address);
  const bool allocates = (e.flags & kEntryAllocates) != 0;
  *in_the_way = LockReply{.address = e.address, .allocation = allocates ? uint8_t{1} : uint8_t{0}};
  storage::Region* region = node_.regions.Find(address.region());
  // False: the block is being cut, or there is none; the address is stale. While we count as a writer it
  // stays as it is.
  // Only the primary locks, and only once its region is active.
  if (region == nullptr || !region->serving() || !region->AddWriter(address.offset())) return false;
  std::byte* slot = region->SlotAt(address.offset());
  storage::ObjectWord expected = storage::ObjectWord::FromBits(e.expected);
  bool fits = slot != nullptr && payload <= storage::PayloadCapacity(region->SlotBytesAt(address.offset()));
  if (fits && allocates && Mutated(Mutation::kIgnoreLeaseTimestamp)) {
    expected = storage::LoadWord(slot).WithLock(false);
  } else if (allocates == expected.allocated()) {
    fits = false;  // an allocation takes a free slot, and every other write an object
  }
  TxId holder;
  if (fits && !expected.locked() &&
      (Mutated(Mutation::kSkipLock) || node_.locks.TryLock(address, slot, expected, id, &holder))) {
    return true;
  }
  region->RemoveWriter(address.offset());
  in_the_way->locked = holder.is_null() ? 0 : 1;
  in_the_way->holder_worker = holder.worker.value();
  in_the_way->holder_node = holder.node.value();
  in_the_way->holder_local = holder.local;
  in_the_way->holder_config = holder.config.value();
  return false;
}

bool Participant::LockAll(const LogView& record, LockReply* in_the_way) {
  uint32_t count = 0;
  const TxId id = record.id();
  bool ok = record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
    if (!LockObject(e, payload.size(), id, in_the_way)) return false;
    ++count;
    return true;
  });
  if (ok) *in_the_way = LockReply{};
  if (!ok) UnlockFirst(record, count);
  return ok;
}

void Participant::UnlockFirst(const LogView& record, uint32_t count) {
  const TxId id = record.id();
  uint32_t i = 0;
  record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte>) {
    if (i++ >= count) return false;
    Address address = Address::FromBits(e.address);
    storage::Region* region = node_.regions.Find(address.region());
    std::byte* slot = region == nullptr ? nullptr : region->SlotAt(address.offset());
    if (slot == nullptr) return true;
    node_.locks.Unlock(address, slot, id);
    region->RemoveWriter(address.offset());
    return true;
  });
}

void Participant::RemoveWriters(const LogView& record) {
  record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte>) {
    Address address = Address::FromBits(e.address);
    storage::Region* region = node_.regions.Find(address.region());
    if (region != nullptr && region->Writers(address.offset()) > 0) region->RemoveWriter(address.offset());
    return true;
  });
}

void Participant::OnCommitPrimary(Sender& sender, const LogView& record) {
  Pending* known = sender.pending.Find(record.header().local);
  if (known == nullptr || known->state != State::kLocked) {
    Malformed(*sender.ring, "COMMIT-PRIMARY (its transaction holds no lock here)");
    return;
  }
  Pending& pending = *known;
  // The sender can write its ring: what was looked at before may have changed since.
  std::optional<LogView> lock = LogView::Parse(pending.lock);
  if (!lock.has_value() || !CanInstall(*lock, record.timestamp())) {
    return Malformed(*sender.ring,
                     "COMMIT-PRIMARY (not newer than what it replaces, or its LOCK has changed)");
  }
  pending.timestamp = record.timestamp();
  InstallAll(*lock, pending.timestamp, record.id());
  ++worker_.mutable_stats().written;
  pending.state = State::kInstalled;
  Keep(sender, pending);
  sender.outcomes.SetCommitted(record.header().local);
}

bool Participant::CanInstall(const LogView& record, Timestamp w) const {
  return record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
    const Address address = Address::FromBits(e.address);
    storage::Region* region = node_.regions.Find(address.region());
    std::byte* slot = region == nullptr ? nullptr : region->SlotAt(address.offset());
    if (slot == nullptr || payload.size() > storage::PayloadCapacity(region->SlotBytesAt(address.offset())))
      return false;
    return storage::LoadWord(slot).timestamp() < w || Mutated(Mutation::kSkipLock) ||
           Mutated(Mutation::kSkipWriteWait);
  });
}

void Participant::InstallAll(const LogView& record, Timestamp w, const TxId& id) {
  record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
    InstallObject(e, payload, w, id);
    return true;
  });
}

void Participant::InstallObject(const ObjectEntry& e, std::span<const std::byte> payload, Timestamp w,
                                const TxId& id) {
  Address address = Address::FromBits(e.address);
  storage::Region* region = node_.regions.Find(address.region());
  std::byte* slot = region == nullptr ? nullptr : region->SlotAt(address.offset());
  if (slot == nullptr) return;  // recovery's: the block was cut anew since, so this is over
  const uint32_t slot_bytes = region->SlotBytesAt(address.offset());
  if (storage::LoadWord(slot).timestamp() >= w && !Mutated(Mutation::kSkipLock) &&
      !Mutated(Mutation::kSkipWriteWait)) {
    return node_.locks.Unlock(address, slot, id);  // recovery's: installed here already
  }
  bool frees = (e.flags & kEntryFrees) != 0;
  storage::OldVersionPointer ovp;
  // A slot that was never used has no history to keep.
  if (storage::LoadWord(slot).timestamp() != Timestamp() && old_versions_ != nullptr) {
    ovp = old_versions_->Save(slot, slot_bytes, w);
  }
  bool still_locked = node_.locks.ReleaseForInstall(address, id);
  storage::ObjectWord word(w, !frees, still_locked);
  storage::Install(slot, slot_bytes, frees ? std::span<const std::byte>() : payload, word, ovp);
  region->NoteWrite(address.offset(), w);
  const bool allocates = (e.flags & kEntryAllocates) != 0;
  if (!frees && !allocates) return;
  storage::SlabAllocator* slab = node_.allocator.Find(address.region());
  if (slab == nullptr) return;
  if (frees) {
    slab->OnFreed(address, word);
  } else {
    slab->OnAllocated(address, w);
  }
}

void Participant::OnAbort(Sender& sender, const LogView& record) {
  uint64_t local = record.header().local;
  const Pending* pending = sender.pending.Find(local);
  if (pending == nullptr) return;  // the LOCK never came: refused earlier, or lost with its sender
  if (pending->state == State::kLocked) {
    std::optional<LogView> lock = LogView::Parse(pending->lock);
    if (!lock.has_value()) return Malformed(*sender.ring, "LOCK (it has changed in the ring)");
    UnlockFirst(*lock, lock->header().object_count);
  }
  Finish(sender, local, *pending);
}

void Participant::Truncate(Sender& sender, const LogView& record) {
  const LogHeader& h = record.header();
  for (uint32_t i = 0; i < h.truncate_count; ++i) TruncateOne(sender, record.truncate_id(i));
  if (h.low_bound <= sender.low_bound) return;
  // Nothing below the former bound is pending: OnLog() refuses it.
  sender.scratch.clear();
  sender.pending.IdsBetween(std::exchange(sender.low_bound, h.low_bound), h.low_bound, &sender.scratch);
  for (uint64_t local : sender.scratch) TruncateOne(sender, local);
}

void Participant::TruncateOne(Sender& sender, uint64_t local) {
  const Pending* known = sender.pending.Find(local);
  if (known == nullptr || known->recovering) return;
  const Pending& pending = *known;
  if (pending.state == State::kLocked) {
    Malformed(*sender.ring, "truncation (of a transaction that is locked and not decided)");
    return;
  }
  if (pending.state == State::kInstalled) {
    std::optional<LogView> lock = LogView::Parse(pending.lock);
    if (!lock.has_value()) return Malformed(*sender.ring, "LOCK (it has changed in the ring)");
    RemoveWriters(*lock);
  }
  if (!pending.commit_backup.empty() && !Mutated(Mutation::kTruncateBeforeApply)) {
    std::optional<LogView> backup = LogView::Parse(pending.commit_backup);
    if (!backup.has_value()) return Malformed(*sender.ring, "COMMIT-BACKUP (it has changed in the ring)");
    ApplyBackup(*backup, pending.timestamp);
    sender.outcomes.SetCommitted(local);
  }
  Finish(sender, local, pending);
}

void Participant::ApplyBackup(const LogView& record, Timestamp w) {
  // Backups' copies are cold: start all misses before the first is waited for.
  record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte>) {
    Address address = Address::FromBits(e.address);
    if (storage::Region* region = node_.regions.Find(address.region()); region != nullptr) {
      const size_t span = std::min<size_t>(storage::SpanBytes(e.payload), 8 * storage::kLineBytes);
      if (address.offset() + span <= region->bytes()) {
        storage::PrefetchObject(region->base() + address.offset(), span, storage::PrefetchFor::kWrite);
      }
    }
    return true;
  });
  record.ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
    ApplyWrite(e, payload, w);
    return true;
  });
}

void Participant::ApplyWrite(const ObjectEntry& e, std::span<const std::byte> payload, Timestamp w) {
  Address address = Address::FromBits(e.address);
  storage::Region* region = node_.regions.Find(address.region());
  if (region == nullptr || !region->AddWriter(address.offset())) return;
  ApplyObject(*region, address, e, payload, w);
  region->RemoveWriter(address.offset());
}

void Participant::ApplyObject(storage::Region& region, Address address, const ObjectEntry& e,
                              std::span<const std::byte> payload, Timestamp w) {
  std::byte* slot = region.SlotAt(address.offset());
  const uint32_t slot_bytes = region.SlotBytesAt(address.offset());
  // A write from before the block was cut anew is void: all slots were free by then, by newer tombstones.
  if (slot == nullptr || payload.size() > storage::PayloadCapacity(slot_bytes) ||
      w.value() <= region.ReadBlock(address.offset() / storage::kBlockBytes).version) {
    return;
  }
  // Coordinators' logs are truncated in any order: only a newer write counts. Another worker of this backup
  // may hold the slot for the moment of its own install.
  storage::ObjectWord word = storage::LoadWord(slot);
  while (word.timestamp() < w || Mutated(Mutation::kApplyOlderWrite)) {
    if (!word.locked() && storage::TryLock(slot, word)) {
      bool frees = (e.flags & kEntryFrees) != 0;
      storage::Install(slot, slot_bytes, frees ? std::span<const std::byte>() : payload,
                       storage::ObjectWord(w, !frees, false), storage::OldVersionPointer());
      region.NoteWrite(address.offset(), w);
      ++worker_.mutable_stats().applied;
      return;
    }
    word = storage::LoadWord(slot);
  }
}

void Participant::Keep(Sender& sender, Pending& pending) {
  sender.held.back().done = false;
  for (uint64_t& number : pending.records) {
    if (number != 0) continue;
    number = sender.first_held + sender.held.size() - 1;
    return;
  }
  FURROW_CHECK(false);  // LOCK, COMMIT-BACKUP and COMMIT-PRIMARY: no fourth kind is kept
}

void Participant::Finish(Sender& sender, uint64_t local, const Pending& pending) {
  for (uint64_t number : pending.records) {
    if (number != 0) sender.held[number - sender.first_held].done = true;
  }
  sender.pending.Erase(local);
}

void Participant::ReleaseFront(Sender& sender) {
  uint64_t end = 0;
  while (!sender.held.empty() && sender.held.front().done) {
    end = sender.held.front().end;
    sender.held.pop_front();
    ++sender.first_held;
    --held_;
  }
  if (end == 0) return;
  sender.ring->reader->Release(end);
  if (sender.ring->heads != nullptr) sender.ring->heads->Return(end, false);
}

void Participant::OnRingClosed(rdma::InboundRing& ring) {
  ring.closed = true;
  // Records that are held wait for recovery, and their sender with them.
  if (ring.context != nullptr) ForgetIfOver(*static_cast<Sender*>(ring.context));
}

void Participant::ForgetIfOver(Sender& sender) {
  rdma::InboundRing& ring = *sender.ring;
  if (!ring.closed || ring.heads != nullptr || ring.reader->held() != 0 || sender.pending.size() != 0) return;
  auto it = std::find_if(senders_.begin(), senders_.end(),
                         [&sender](const auto& known) { return known.get() == &sender; });
  FURROW_CHECK(it != senders_.end());
  if (!sender.outcomes.empty()) {
    if (departed_.size() == kMaxDeparted) departed_.pop_front();
    departed_.push_back(
        {ring.from, worker_.loop().Now() + kOutcomesKeptNs, sender.low_bound, std::move(sender.outcomes)});
  }
  ring.context = nullptr;
  senders_.erase(it);
}

void Participant::Collect() {
  while (!departed_.empty() && departed_.front().until <= worker_.loop().Now()) departed_.pop_front();
  Timestamp safe_point =
      Mutated(Mutation::kReuseOldVersionsEarly) ? Timestamp::Max() : node_.safe_point.safe_point();
  if (old_versions_ != nullptr) old_versions_->Collect(safe_point);
  if (worker_.id() == WorkerId(0)) node_.allocator.Reclaim(node_.safe_point.safe_point());
}

void Participant::ReplyToLock(Sender& sender, const LogView& record, const LockReply& reply,
                              AnswerCode code) {
  if (sender.ring->heads == nullptr) {  // our own ring
    worker_.coordinator().OnLockReply(node_.options.id, record.header().local, code, reply);
    return;
  }
  std::byte bytes[sizeof(MessageHeader) + sizeof(LockReply)];
  std::span<std::byte> body(bytes);
  WriteAt(body, 0, MessageHeader{MessageType::kLockReply, code, 0, 1, record.header().local});
  WriteAt(body, sizeof(MessageHeader), reply);
  worker_.coordinator().Answer(*sender.ring, body);
}

}  // namespace furrow::txn
