#include "index/btree_node.h"

#include <algorithm>

#include "base/check.h"

namespace furrow::index {
namespace {

constexpr uint8_t kHasLow = 1;
constexpr uint8_t kHasHigh = 2;
constexpr uint32_t kLeafBytes = 482;   // a slot of 512
constexpr uint32_t kInnerBytes = 978;  // a slot of 1,024
constexpr uint32_t kLeafEntries = 6;   // of the longest keys, at least
constexpr uint32_t kInnerEntries = 8;
// From this many ascending inserts in a row on, a node is split at the insert.
constexpr int kRunToSplit = 3;

uint32_t CapacityFor(uint32_t entries, uint32_t max_key_bytes, uint32_t at_least) {
  const uint32_t needed =
      sizeof(NodeHeader) + 2 * max_key_bytes + entries * (2 + kRecordOverhead + max_key_bytes);
  if (needed <= at_least) return at_least;
  return static_cast<uint32_t>(
      storage::PayloadCapacity(storage::SlotBytes(storage::ClassForPayload(needed))));
}

std::string_view View(const std::byte* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

size_t EntryBytes(const NodeEntry& entry) { return 2 + kRecordOverhead + entry.key.size(); }

}  // namespace

NodeBytes NodeBytes::For(uint32_t max_key_bytes) {
  static_assert(storage::SpanBytes(kLeafBytes) == 512 && storage::SpanBytes(kLeafBytes + 1) > 512);
  static_assert(storage::SpanBytes(kInnerBytes) == 1024 && storage::SpanBytes(kInnerBytes + 1) > 1024);
  return {CapacityFor(kLeafEntries, max_key_bytes, kLeafBytes),
          CapacityFor(kInnerEntries, max_key_bytes, kInnerBytes)};
}

bool StartsAtOrBelow(std::string_view fence, const Target& target) {
  switch (target.kind) {
    case Target::Kind::kKey:
      return fence <= target.key;
    case Target::Kind::kBefore:
      return fence < target.key;
    case Target::Kind::kPrefix:
      return fence.substr(0, target.key.size()) <= target.key;
    case Target::Kind::kLast:
      return true;
  }
  return false;
}

NodeView::NodeView(std::span<const std::byte> bytes, NodeBytes sizes) : bytes_(bytes) {
  FURROW_CHECK(bytes.size() >= sizeof(NodeHeader));
  bytes_ = bytes_.first(std::min<size_t>(bytes_.size(), sizes.of(header().level)));
}

bool NodeView::IsNodeOf(uint32_t index, uint32_t partition) const {
  const NodeHeader& h = header();
  const size_t slots_end = sizeof(NodeHeader) + 2 * size_t{h.count};
  return h.index == index && h.partition == partition && h.level < kMaxBtreeLevels && slots_end <= h.heap &&
         size_t{h.heap} + h.low_bytes + h.high_bytes <= bytes_.size();
}

Fence NodeView::high() const {
  const NodeHeader& h = header();
  return {(h.flags & kHasHigh) != 0, View(bytes_.data() + bytes_.size() - h.high_bytes, h.high_bytes)};
}

Fence NodeView::low() const {
  const NodeHeader& h = header();
  return {(h.flags & kHasLow) != 0,
          View(bytes_.data() + bytes_.size() - h.high_bytes - h.low_bytes, h.low_bytes)};
}

bool NodeView::Covers(const Target& target) const {
  const Fence from = low();
  if (from.bounded && !StartsAtOrBelow(from.key, target)) return false;
  const Fence to = high();
  return !to.bounded || !StartsAtOrBelow(to.key, target);
}

std::string_view NodeView::key(int i) const {
  const size_t at = offset(i);
  if (at + kRecordOverhead > bytes_.size()) return {};
  uint16_t length;
  std::memcpy(&length, bytes_.data() + at + 8, 2);
  return View(bytes_.data() + at + kRecordOverhead,
              std::min<size_t>(length, bytes_.size() - at - kRecordOverhead));
}

uint64_t NodeView::value(int i) const {
  const size_t at = offset(i);
  uint64_t value = 0;
  if (at + kRecordOverhead <= bytes_.size()) std::memcpy(&value, bytes_.data() + at, 8);
  return value;
}

int NodeView::LowerBound(std::string_view wanted) const {
  int low = 0;
  int high = count();
  while (low < high) {
    const int middle = (low + high) / 2;
    if (key(middle) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int NodeView::UpperBound(const Target& target) const {
  int low = 0;
  int high = count();
  while (low < high) {
    const int middle = (low + high) / 2;
    if (StartsAtOrBelow(key(middle), target)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool NodeView::FitsWith(Fence low, Fence high, std::string_view first_key) const {
  const NodeHeader& h = header();
  const size_t records = bytes_.size() - h.low_bytes - h.high_bytes - h.heap - h.garbage;
  size_t needed = sizeof(NodeHeader) + 2 * size_t{h.count} + records;
  needed += (low.bounded ? low.key.size() : 0) + (high.bounded ? high.key.size() : 0);
  if (h.count > 0) needed += first_key.size() - key(0).size();
  return needed <= bytes_.size();
}

int NodeView::ChildFor(const Target& target) const { return std::max(UpperBound(target) - 1, 0); }

size_t NodeBytesNeeded(Fence low, Fence high, std::span<const NodeEntry> entries) {
  size_t bytes = sizeof(NodeHeader) + low.key.size() + high.key.size();
  for (const NodeEntry& entry : entries) bytes += EntryBytes(entry);
  return bytes;
}

bool NodeEditor::Build(uint32_t index, uint32_t partition, int level, Fence low, Fence high,
                       std::span<const NodeEntry> entries) {
  if (!low.bounded) low.key = {};
  if (!high.bounded) high.key = {};
  if (NodeBytesNeeded(low, high, entries) > bytes_.size()) return false;
  NodeHeader h{};
  h.index = index;
  h.partition = static_cast<uint16_t>(partition);
  h.level = static_cast<uint8_t>(level);
  h.flags = (low.bounded ? kHasLow : 0) | (high.bounded ? kHasHigh : 0);
  h.count = static_cast<uint16_t>(entries.size());
  h.low_bytes = static_cast<uint16_t>(low.key.size());
  h.high_bytes = static_cast<uint16_t>(high.key.size());
  std::byte* end = bytes_.data() + bytes_.size();
  end -= high.key.size();
  if (!high.key.empty()) std::memcpy(end, high.key.data(), high.key.size());
  end -= low.key.size();
  if (!low.key.empty()) std::memcpy(end, low.key.data(), low.key.size());
  // Records from the end on, so that those of the front are in the lines before them.
  for (size_t i = entries.size(); i-- > 0;) {
    const NodeEntry& entry = entries[i];
    const auto length = static_cast<uint16_t>(entry.key.size());
    end -= kRecordOverhead + length;
    std::memcpy(end, &entry.value, 8);
    std::memcpy(end + 8, &length, 2);
    std::memcpy(end + kRecordOverhead, entry.key.data(), length);
    const auto at = static_cast<uint16_t>(end - bytes_.data());
    std::memcpy(bytes_.data() + sizeof(NodeHeader) + 2 * i, &at, 2);
  }
  h.heap = static_cast<uint16_t>(end - bytes_.data());
  std::memcpy(bytes_.data(), &h, sizeof(h));
  std::byte* const slots_end = bytes_.data() + sizeof(NodeHeader) + 2 * entries.size();
  std::memset(slots_end, 0, static_cast<size_t>(end - slots_end));
  return true;
}

Unpacked::Unpacked(std::span<const std::byte> bytes)
    : copy_(bytes.begin(), bytes.end()),
      view_(copy_, NodeBytes{static_cast<uint32_t>(copy_.size()), static_cast<uint32_t>(copy_.size())}) {
  entries_.reserve(static_cast<size_t>(view_.count()) + 1);
  for (int i = 0; i < view_.count(); ++i) entries_.push_back({view_.key(i), view_.value(i)});
}

bool NodeEditor::Rebuild(Fence low, Fence high, const std::vector<NodeEntry>& entries) {
  const NodeHeader before = header();
  if (!Build(before.index, before.partition, before.level, low, high, entries)) return false;
  header().last_insert = before.last_insert;
  header().run = before.run;
  return true;
}

bool NodeEditor::Insert(int i, std::string_view key, uint64_t value) {
  const size_t record = kRecordOverhead + key.size();
  const size_t slots_end = sizeof(NodeHeader) + 2 * size_t{header().count};
  if (slots_end + 2 + record > header().heap) {
    if (slots_end + 2 + record > size_t{header().heap} + header().garbage) return false;
    Unpacked node(bytes_);
    FURROW_CHECK(Rebuild(node.view().low(), node.view().high(), node.entries()));
  }
  NodeHeader& h = header();
  h.heap = static_cast<uint16_t>(h.heap - record);
  std::byte* at = bytes_.data() + h.heap;
  const auto length = static_cast<uint16_t>(key.size());
  std::memcpy(at, &value, 8);
  std::memcpy(at + 8, &length, 2);
  std::memcpy(at + kRecordOverhead, key.data(), key.size());
  std::byte* slot = bytes_.data() + sizeof(NodeHeader) + 2 * i;
  std::memmove(slot + 2, slot, 2 * static_cast<size_t>(h.count - i));
  std::memcpy(slot, &h.heap, 2);
  ++h.count;
  h.run = i == h.last_insert + 1 ? static_cast<uint8_t>(std::min(h.run + 1, 255)) : 0;
  h.last_insert = static_cast<uint16_t>(i);
  return true;
}

void NodeEditor::Remove(int i) {
  NodeHeader& h = header();
  FURROW_CHECK(i >= 0 && i < h.count);
  std::byte* slot = bytes_.data() + sizeof(NodeHeader) + 2 * i;
  uint16_t at;
  std::memcpy(&at, slot, 2);
  uint16_t length;
  std::memcpy(&length, bytes_.data() + at + 8, 2);
  h.garbage = static_cast<uint16_t>(h.garbage + kRecordOverhead + length);
  std::memmove(slot, slot + 2, 2 * static_cast<size_t>(h.count - i - 1));
  --h.count;
  if (h.last_insert >= i && h.last_insert > 0) --h.last_insert;
}

void NodeEditor::SetValue(int i, uint64_t value) {
  FURROW_CHECK(i >= 0 && i < header().count);
  uint16_t at;
  std::memcpy(&at, bytes_.data() + sizeof(NodeHeader) + 2 * i, 2);
  std::memcpy(bytes_.data() + at, &value, 8);
}

void NodeEditor::ContinueRun(int run, int at) {
  header().run = static_cast<uint8_t>(std::min(run, 255));
  header().last_insert = static_cast<uint16_t>(at);
}

int SplitPoint(std::span<const NodeEntry> entries, int inserted, int run, bool leftmost, bool rightmost) {
  const int count = static_cast<int>(entries.size());
  FURROW_CHECK(count >= 2);
  const bool at_end = inserted == count - 1;
  if (inserted > 0 && at_end && (rightmost || run >= kRunToSplit)) return inserted;
  // What lies behind the run goes, so that the run's next keys find an end.
  if (inserted > 0 && run >= kRunToSplit) return inserted + 1;
  if (leftmost && inserted == 0) return 1;
  size_t total = 0;
  for (const NodeEntry& entry : entries) total += EntryBytes(entry);
  size_t left = 0;
  int point = 0;
  while (point < count && left + EntryBytes(entries[static_cast<size_t>(point)]) / 2 < total / 2) {
    left += EntryBytes(entries[static_cast<size_t>(point++)]);
  }
  return std::clamp(point, 1, count - 1);
}

std::string_view Separator(std::string_view left, std::string_view right) {
  size_t common = 0;
  while (common < left.size() && common < right.size() && left[common] == right[common]) ++common;
  return right.substr(0, std::min(common + 1, right.size()));
}

}  // namespace furrow::index
