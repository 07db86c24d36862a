#include "txn/records.h"

namespace furrow::txn {
namespace {

bool KnownType(LogType type) { return type >= LogType::kLock && type <= LogType::kTruncate; }

}  // namespace

std::optional<LogView> LogView::Parse(std::span<const std::byte> body) {
  LogView view;
  if (!ReadAt(body, 0, &view.header_)) return std::nullopt;
  const LogHeader& h = view.header_;
  if (!KnownType(h.type) || h.format != kRecordFormat || h.reserved[0] != 0 || h.reserved[1] != 0) {
    return std::nullopt;
  }
  if (h.timestamp > Timestamp::kMaxValue) return std::nullopt;
  if (h.local == 0 && h.type != LogType::kTruncate) return std::nullopt;
  size_t at = sizeof(LogHeader);
  view.truncates_ = body.data() + at;
  at += size_t{8} * h.truncate_count + Pad8(size_t{4} * h.region_count);
  if (at > body.size()) return std::nullopt;
  for (uint32_t i = 0; i < h.truncate_count; ++i) {
    if (view.truncate_id(i) == 0) return std::nullopt;
  }
  view.objects_ = body.data() + at;
  for (uint32_t i = 0; i < h.object_count; ++i) {
    ObjectEntry entry;
    if (!ReadAt(body, at, &entry)) return std::nullopt;
    if (entry.payload > storage::PayloadCapacity(storage::kMaxSlotBytes)) return std::nullopt;
    at += EntryBytes(entry.payload);
    if (at > body.size()) return std::nullopt;
  }
  return view;
}

}  // namespace furrow::txn
