#include "txn/recovery/records.h"

#include <cstring>
#include <type_traits>

#include "txn/records.h"

namespace furrow::txn {
namespace {

struct WireMessage {
  uint8_t type;
  uint8_t format;
  uint16_t to_worker;
  uint16_t from_worker;
  uint16_t zero;
  uint64_t config;
  uint32_t count;
  uint32_t zero_too;
};
static_assert(sizeof(WireMessage) == 24 && std::is_trivially_copyable_v<WireMessage>);
static_assert(offsetof(WireMessage, config) == 8 && offsetof(WireMessage, count) == 16);

struct WireItem {
  uint64_t config;
  uint64_t local;
  uint64_t timestamp;
  uint32_t node;
  uint16_t worker;
  uint8_t seen;
  uint8_t vote;
  uint32_t region;
  uint16_t region_count;
  uint16_t node_count;
  uint32_t record_bytes;
  uint32_t zero;
};
static_assert(sizeof(WireItem) == 48 && std::is_trivially_copyable_v<WireItem>);
static_assert(offsetof(WireItem, node) == 24 && offsetof(WireItem, record_bytes) == 40);

size_t ListBytes(size_t regions, size_t nodes) { return Pad8(4 * (regions + nodes)); }

void Put(std::vector<std::byte>& out, const void* bytes, size_t count) {
  const auto* p = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), p, p + count);
}

void PutItem(std::vector<std::byte>& out, const RecoveryItem& item) {
  const WireItem wire{.config = item.id.config.value(),
                      .local = item.id.local,
                      .timestamp = item.timestamp.value(),
                      .node = item.id.node.value(),
                      .worker = item.id.worker.value(),
                      .seen = item.seen,
                      .vote = static_cast<uint8_t>(item.vote),
                      .region = item.region.value(),
                      .region_count = static_cast<uint16_t>(item.regions.size()),
                      .node_count = static_cast<uint16_t>(item.nodes.size()),
                      .record_bytes = static_cast<uint32_t>(item.record.size()),
                      .zero = 0};
  Put(out, &wire, sizeof wire);
  for (RegionId region : item.regions) {
    const uint32_t id = region.value();
    Put(out, &id, sizeof id);
  }
  for (NodeId node : item.nodes) {
    const uint32_t id = node.value();
    Put(out, &id, sizeof id);
  }
  out.resize(Pad8(out.size()));
  Put(out, item.record.data(), item.record.size());
  out.resize(Pad8(out.size()));
}

bool TakeItem(std::span<const std::byte> bytes, size_t* at, RecoveryItem* item) {
  WireItem wire;
  if (!ReadAt(bytes, *at, &wire) || wire.zero != 0 || wire.timestamp > Timestamp::kMaxValue ||
      wire.vote > static_cast<uint8_t>(Vote::kUnknown)) {
    return false;
  }
  *at += sizeof wire;
  const size_t lists = ListBytes(wire.region_count, wire.node_count);
  const size_t rest = bytes.size() - *at;
  if (lists > rest || Pad8(wire.record_bytes) > rest - lists) return false;
  item->id = TxId{ConfigId(wire.config), NodeId(wire.node), WorkerId(wire.worker), wire.local};
  item->region = RegionId(wire.region);
  item->seen = wire.seen;
  item->vote = static_cast<Vote>(wire.vote);
  item->timestamp = Timestamp(wire.timestamp);
  for (uint32_t i = 0; i < uint32_t{wire.region_count} + wire.node_count; ++i) {
    uint32_t id;
    std::memcpy(&id, bytes.data() + *at + size_t{4} * i, 4);
    if (i < wire.region_count) {
      item->regions.push_back(RegionId(id));
    } else {
      item->nodes.push_back(NodeId(id));
    }
  }
  *at += lists;
  item->record.assign(bytes.begin() + static_cast<std::ptrdiff_t>(*at),
                      bytes.begin() + static_cast<std::ptrdiff_t>(*at + wire.record_bytes));
  *at += Pad8(wire.record_bytes);
  return true;
}

}  // namespace

Vote VoteOf(uint8_t seen) {
  if ((seen & kSeenCommit) != 0) return Vote::kCommitPrimary;
  if ((seen & kSeenAbort) != 0) return Vote::kAbort;
  if ((seen & kSeenBackup) != 0) return Vote::kCommitBackup;
  if ((seen & kSeenLock) != 0) return Vote::kLock;
  return Vote::kUnknown;
}

std::vector<std::byte> Encode(const RecoveryMessage& message) {
  std::vector<std::byte> out;
  const WireMessage wire{.type = static_cast<uint8_t>(message.type),
                         .format = kRecoveryFormat,
                         .to_worker = message.to_worker.value(),
                         .from_worker = message.from_worker.value(),
                         .zero = 0,
                         .config = message.config.value(),
                         .count = static_cast<uint32_t>(message.items.size()),
                         .zero_too = 0};
  Put(out, &wire, sizeof wire);
  for (const RecoveryItem& item : message.items) PutItem(out, item);
  return out;
}

std::optional<RecoveryMessage> ParseRecovery(std::span<const std::byte> bytes) {
  WireMessage wire;
  if (!ReadAt(bytes, 0, &wire) || wire.format != kRecoveryFormat || wire.zero != 0 || wire.zero_too != 0 ||
      wire.type < static_cast<uint8_t>(RecoveryType::kNeedRecovery) ||
      wire.type > static_cast<uint8_t>(RecoveryType::kRegionActive)) {
    return std::nullopt;
  }
  RecoveryMessage message{.type = static_cast<RecoveryType>(wire.type),
                          .config = ConfigId(wire.config),
                          .from_worker = WorkerId(wire.from_worker),
                          .to_worker = WorkerId(wire.to_worker)};
  size_t at = sizeof wire;
  for (uint32_t i = 0; i < wire.count; ++i) {
    if (!TakeItem(bytes, &at, &message.items.emplace_back())) return std::nullopt;
  }
  if (at != bytes.size()) return std::nullopt;
  return message;
}

}  // namespace furrow::txn
