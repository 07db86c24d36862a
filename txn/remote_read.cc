#include "txn/remote_read.h"

#include <cstring>

#include "base/mutation.h"
#include "storage/region.h"

namespace furrow::txn {
namespace {

using storage::CopyResult;
using storage::ObjectHeader;
using storage::ObjectWord;

}  // namespace

RemoteRead::RemoteRead(Transaction& tx, Address address, uint32_t bytes, bool hint, bool whole_lines)
    : tx_(tx), address_(address), bytes_(bytes), hint_(hint), whole_lines_(whole_lines) {}

bool RemoteRead::Aim(const cluster::RegionMapping& mapping, const cluster::ClusterView& view,
                     ReadResult* result) {
  if (image_bytes() > storage::kMaxSlotBytes || address_.offset() + image_bytes() > mapping.bytes) {
    *result = Transaction::NoSuchObject(address_, hint_);
    return false;
  }
  floor_ = mapping.floor;
  if (doubt_ != Doubt::kNone) {
    const uint64_t block = address_.offset() / storage::kBlockBytes;
    at_ = mapping.primary().memory.Plus(storage::kRegionHeaderBytes + block * sizeof(storage::BlockHeader) +
                                        offsetof(storage::BlockHeader, slot_bytes));
    return true;
  }
  if (ovp_.value() == 0) {
    at_ = mapping.primary().memory.Plus(address_.offset());
    return true;
  }
  const cluster::Member* member = view.Find(mapping.primary().node);
  if (member == nullptr) {
    *result = tx_.Fail({.reason = AbortReason::kMemberLost, .address = address_});
    return false;
  }
  if (ovp_.value() > member->old_version_bytes || image_bytes() > member->old_version_bytes - ovp_.value()) {
    // A READ beyond the arena would fail the connection.
    DoubtIt(Doubt::kTooOld, result);
    return Aim(mapping, view, result);
  }
  at_ = member->old_versions.Plus(ovp_.value());
  return true;
}

size_t RemoteRead::Plan(std::span<std::byte> buffer, rdma::Connection::NowRead (&reads)[kMaxReads]) const {
  const std::span<std::byte> image = buffer.subspan(0, image_bytes());
  if (doubt_ != Doubt::kNone) {
    reads[0] = {at_, buffer.first(8)};
    return 1;
  }
  if (whole_lines_) {
    reads[0] = {at_, image};
    return 1;
  }
  reads[0] = {at_, buffer.subspan(image_bytes(), 8)};
  reads[1] = {at_, image};
  reads[2] = {at_, buffer.subspan(image_bytes() + 8, 8)};
  return 3;
}

RemoteRead::Verdict RemoteRead::Judge(std::span<std::byte> buffer, ReadResult* result) {
  if (doubt_ != Doubt::kNone) {
    if (!IsSlot(storage::LoadWord(buffer.data()).bits())) {
      *result = Transaction::NoSuchObject(address_, hint_);
    } else if (doubt_ == Doubt::kTooOld) {
      tx_.TooOld(address_, hint_, result);
    } else {
      *result = tx_.Fail({.reason = AbortReason::kReadLocked, .address = address_});
    }
    return Verdict::kDone;
  }
  const std::span<std::byte> image = buffer.subspan(0, image_bytes());
  const ObjectWord before = storage::LoadWord(whole_lines_ ? image.data() : buffer.data() + image_bytes());
  const ObjectWord after = storage::LoadWord(whole_lines_ ? image.data() : buffer.data() + image_bytes() + 8);
  if (data_ == nullptr) data_ = tx_.accesses_.arena().Allocate(bytes_);
  ObjectHeader header;
  CopyResult copied = storage::StripImage(image, before, after, {data_, bytes_}, &header);
  if (copied != CopyResult::kTorn && header.word.timestamp() > tx_.read_ts_) {
    // Along a stale route this may be anything: its pointer is not followed, the walk without the cache finds
    // the way. A chain leads to ever older versions; where it does not, a block was reused.
    const bool older = header.word.timestamp() < newer_;
    newer_ = header.word.timestamp();
    ovp_ = header.version.ovp();
    if (!hint_ && older && ovp_.value() != 0 && ovp_.value() % storage::kLineBytes == 0 &&
        (tx_.read_ts_ >= floor_ || Mutated(Mutation::kIgnoreFloor))) {
      return Verdict::kAgain;
    }
    return DoubtIt(Doubt::kTooOld, result);
  }
  if (copied == CopyResult::kHeader && header.word.locked() && Mutated(Mutation::kReadLockedHead)) {
    const ObjectWord unlocked = header.word.WithLock(false);
    std::memcpy(image.data(), &unlocked, sizeof unlocked);
    copied = storage::StripImage(image, unlocked, unlocked, {data_, bytes_}, &header);
  }
  if (copied != CopyResult::kObject) return Verdict::kBusy;
  if (hint_ && !header.word.allocated()) {
    *result = absl::Status(absl::StatusCode::kNotFound, "");
  } else {
    tx_.Accept(address_, header.word, data_, bytes_, 0, ovp_.value() != 0, result);
  }
  return Verdict::kDone;
}

RemoteRead::Verdict RemoteRead::GiveUp(ReadResult* result) {
  // Along the chain: the block of old versions is somebody else's by now.
  return DoubtIt(ovp_.value() == 0 ? Doubt::kReadLocked : Doubt::kTooOld, result);
}

RemoteRead::Verdict RemoteRead::DoubtIt(Doubt end, ReadResult* result) {
  if (hint_) {
    *result = absl::Status(absl::StatusCode::kNotFound, "");
    return Verdict::kDone;
  }
  doubt_ = end;
  return Verdict::kAgain;
}

bool RemoteRead::IsSlot(uint64_t shape) const {
  const uint32_t slot_bytes = static_cast<uint32_t>(shape);
  const uint32_t slots = static_cast<uint32_t>(shape >> 32);
  const uint32_t in_block = address_.offset() % storage::kBlockBytes;
  return slot_bytes != 0 && in_block % slot_bytes == 0 && in_block / slot_bytes < slots &&
         bytes_ <= storage::PayloadCapacity(slot_bytes);
}

}  // namespace furrow::txn
