// The participant's answers to requests: validation by message, slot leases, block cuts.
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/log.h"
#include "storage/region.h"
#include "txn/coordinator.h"
#include "txn/participant.h"
#include "txn/recovery/worker_recovery.h"

namespace furrow::txn {
namespace {

AnswerCode RefusalOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return AnswerCode::kNoMemory;
    case absl::StatusCode::kFailedPrecondition:
      return AnswerCode::kNotPrimary;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return AnswerCode::kUnavailable;
    default:
      return AnswerCode::kFailed;
  }
}

}  // namespace

void Participant::OnRequest(rdma::InboundRing& ring, const rdma::RingRecord& record) {
  MessageHeader header;
  if (!ReadAt(record.body, 0, &header) || header.reserved != 0) {
    ring.reader->Release(record.end);
    return Malformed(ring, "message");
  }
  std::span<const std::byte> body = record.body.subspan(sizeof header);
  switch (header.type) {
    case MessageType::kValidate:
      OnValidate(ring, header, body);
      break;
    case MessageType::kLease:
      OnLease(ring, header, body);
      break;
    case MessageType::kUnlease:
      OnUnlease(ring, header, body);
      break;
    case MessageType::kCutBlock:
      OnCutBlock(ring, header, body);
      break;
    case MessageType::kRecovery:
      worker_.recovery().post().OnPart(ring, header, body);
      break;
    default:
      Malformed(ring, "message");
  }
  ring.reader->Release(record.end);
  if (ring.heads != nullptr) ring.heads->Return(record.end, false);
}

void Participant::AnswerWith(rdma::InboundRing& ring, uint64_t request, AnswerCode code, uint32_t count,
                             std::span<const std::byte> elements) {
  std::vector<std::byte> bytes(sizeof(MessageHeader) + elements.size());
  WriteAt(std::span(bytes), 0, MessageHeader{MessageType::kAnswer, code, 0, count, request});
  if (!elements.empty()) std::memcpy(bytes.data() + sizeof(MessageHeader), elements.data(), elements.size());
  worker_.coordinator().Answer(ring, bytes);
}

void Participant::OnValidate(rdma::InboundRing& ring, const MessageHeader& header,
                             std::span<const std::byte> body) {
  for (uint32_t i = 0; i < header.count; ++i) {
    ValidateEntry entry;
    if (!ReadAt(body, i * sizeof entry, &entry)) {
      return AnswerWith(ring, header.request, AnswerCode::kBadRequest, 0, {});
    }
    Address address = Address::FromBits(entry.address);
    storage::Region* region = node_.regions.Find(address.region());
    std::byte* slot = region == nullptr ? nullptr : region->SlotAt(address.offset());
    if (slot == nullptr || !region->serving() || storage::LoadWord(slot).bits() != entry.expected) {
      return AnswerWith(ring, header.request, AnswerCode::kConflict, 1, std::as_bytes(std::span(&entry, 1)));
    }
  }
  AnswerWith(ring, header.request, AnswerCode::kOk, 0, {});
}

void Participant::OnUnlease(rdma::InboundRing& ring, const MessageHeader& header,
                            std::span<const std::byte> body) {
  for (uint32_t i = 0; i < header.count; ++i) {
    LeasedSlot slot;
    if (!ReadAt(body, i * sizeof slot, &slot)) return;
    node_.allocator.Unlease(
        {Address::FromBits(slot.address), storage::ObjectWord::FromBits(slot.expected), slot.slot_bytes},
        ring.from.node);
  }
}

void Participant::OnLease(rdma::InboundRing& ring, const MessageHeader& header,
                          std::span<const std::byte> body) {
  LeaseRequest lease;
  if (!ReadAt(body, 0, &lease) || lease.size_class >= storage::kSizeClasses || lease.count == 0 ||
      lease.count > kMaxLeaseBatch) {
    return AnswerWith(ring, header.request, AnswerCode::kBadRequest, 0, {});
  }
  worker_.loop().Spawn(ServeLease(&ring, header.request, lease));
}

Task<void> Participant::ServeLease(Pinned<rdma::InboundRing> ring, uint64_t request, LeaseRequest lease) {
  std::vector<storage::SlotLease> slots;
  absl::Status status = co_await worker_.coordinator().LeaseHere(
      RegionId(lease.locality), storage::SizeClass(static_cast<uint8_t>(lease.size_class)), lease.count,
      ring->from.node, worker_.loop().Now() + Coordinator::kLeaseNs, &slots);
  if (!status.ok()) {
    FURROW_LOG_EVERY(WARNING, kSecond)
        << "no slots for node " << ring->from.node.value() << ": " << status.ToString();
    const absl::string_view text = status.message().substr(0, kMaxRefusalText);
    AnswerWith(*ring, request, RefusalOf(status.code()), static_cast<uint32_t>(text.size()),
               std::as_bytes(std::span(text.data(), text.size())));
    co_return;
  }
  std::vector<LeasedSlot> out;
  for (const storage::SlotLease& slot : slots) {
    out.push_back({slot.address.bits(), slot.expected.bits(), slot.slot_bytes, 0});
  }
  AnswerWith(*ring, request, AnswerCode::kOk, static_cast<uint32_t>(out.size()),
             std::as_bytes(std::span(out)));
}

void Participant::OnCutBlock(rdma::InboundRing& ring, const MessageHeader& header,
                             std::span<const std::byte> body) {
  CutRequest cut;
  if (!ReadAt(body, 0, &cut)) return AnswerWith(ring, header.request, AnswerCode::kBadRequest, 0, {});
  worker_.loop().Spawn(ServeCut(&ring, header.request, cut));
}

Task<void> Participant::ServeCut(Pinned<rdma::InboundRing> ring, uint64_t request, CutRequest cut) {
  storage::Region* region = node_.regions.Find(RegionId(cut.region));
  if (region == nullptr || cut.block >= region->blocks()) {
    AnswerWith(*ring, request, AnswerCode::kBadRequest, 0, {});
    co_return;
  }
  while (true) {
    storage::BlockHeader now = region->ReadBlock(cut.block);
    absl::Status status = now.version == cut.version && now.slot_bytes == cut.slot_bytes
                              ? absl::OkStatus()  // asked again
                              : region->CutBlock(cut.block, cut.slot_bytes, cut.version);
    // Another worker is applying an older write in it at this moment.
    if (status.code() == absl::StatusCode::kUnavailable) {
      co_await worker_.loop().Yield();
      continue;
    }
    AnswerWith(*ring, request, status.ok() ? AnswerCode::kOk : AnswerCode::kBadRequest, 0, {});
    co_return;
  }
}

}  // namespace furrow::txn
