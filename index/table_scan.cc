// Scans over B-trees: one partition at a time, or several merged in key order.
#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/row_access.h"
#include "index/table.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

// The target that lies at a range's end: the walk to it goes to the last leaf of the range.
Target EndOf(const KeyRange& range) {
  switch (range.end) {
    case KeyRange::End::kUnbounded:
      return {Target::Kind::kLast, {}};
    case KeyRange::End::kExclusive:
      return {Target::Kind::kBefore, range.high};
    case KeyRange::End::kPrefix:
      return {Target::Kind::kPrefix, range.high};
  }
  return {};
}

// Leaves ahead that are brought into the cache while one is being read.
constexpr int kLeavesAhead = 2;
// Leaves after which a scan that never had to wait lets others run: some hundred microseconds' worth. Whoever
// shares its worker may hold locks meanwhile.
constexpr int kLeavesPerTurn = 32;

}  // namespace

// A position in the leaves of one tree. Holds one leaf at a time: its entries in range, in scan order.
class Table::Cursor {
 public:
  Cursor(txn::Transaction& tx, const Btree& tree, const ScanSpec& scan) : tx_(tx), tree_(tree), scan_(scan) {
    target_ = forward() ? Target{Target::Kind::kKey, scan_.range.low} : EndOf(scan_.range);
  }

  // The next leaf that has entries in range; afterwards done() or remaining() > 0. `wanted`: rows that the
  // caller can still use, for prefetching.
  Task<absl::Status> Load(uint64_t wanted);
  bool done() const { return remaining() == 0 && last_leaf_; }
  int remaining() const { return last_ - first_; }
  std::string_view key() const { return leaf_.key(at()); }
  RowPointer row() const { return RowPointer::FromBits(leaf_.value(at())); }
  void Next() { forward() ? ++first_ : --last_; }
  // The entries of this leaf that are still to come, up to `max`.
  int Coming(RowPointer* out, int max) const;

 private:
  bool forward() const { return scan_.direction == Direction::kForward; }
  int at() const { return forward() ? first_ : last_ - 1; }
  void Take(const NodeView& leaf);

  txn::Transaction& tx_;
  const Btree& tree_;
  const ScanSpec scan_;
  Target target_;
  KeyBuffer fence_;  // what target_.key refers to, after the first leaf
  std::vector<std::byte>
      copy_;  // of a leaf that this transaction writes: the caller may change it while it scans
  NodeView leaf_;
  int first_ = 0;  // entries [first_, last_) are still to come
  int last_ = 0;
  bool last_leaf_ = false;
  int leaves_ = 0;  // loaded so far
};

void Table::Cursor::Take(const NodeView& leaf) {
  const Target end = EndOf(scan_.range);
  first_ = leaf.LowerBound(scan_.range.low);
  last_ = std::max(first_, leaf.UpperBound(end));
  leaf_ = leaf;
  const Fence fence = forward() ? leaf.high() : leaf.low();
  if (forward()) {
    last_leaf_ = !fence.bounded || !StartsAtOrBelow(fence.key, end);
  } else {
    last_leaf_ = !fence.bounded || fence.key <= scan_.range.low;
  }
  KeyBuffer next(fence.key.begin(), fence.key.end());
  fence_ = std::move(next);
  target_ = {forward() ? Target::Kind::kKey : Target::Kind::kBefore, View(fence_)};
}

Task<absl::Status> Table::Cursor::Load(uint64_t wanted) {
  while (remaining() == 0 && !last_leaf_) {
    if (++leaves_ % kLeavesPerTurn == 0) FURROW_CO_RETURN_IF_ERROR(co_await NextTurn(tx_));
    FURROW_CO_ASSIGN_OR_RETURN(const Leaf leaf, co_await tree_.FindLeaf(tx_, target_));
    NodeView node = leaf.node;
    const txn::Access* access = tx_.FindAccess(leaf.address);
    if (access != nullptr && access->write != nullptr) {
      copy_.assign(node.bytes().begin(), node.bytes().end());
      const auto size = static_cast<uint32_t>(copy_.size());
      node = NodeView(copy_, NodeBytes{size, size});
    }
    Address ahead[kLeavesAhead];
    const int found = wanted > static_cast<uint64_t>(node.count())
                          ? tree_.CachedSiblings(target_, forward(), ahead, kLeavesAhead)
                          : 0;
    for (int i = 0; i < found; ++i) tx_.Prefetch(ahead[i], tree_.leaf_bytes());
    Take(node);
  }
  co_return absl::OkStatus();
}

int Table::Cursor::Coming(RowPointer* out, int max) const {
  int count = 0;
  for (int i = 0; i < remaining() && count < max; ++i) {
    out[count++] = RowPointer::FromBits(leaf_.value(forward() ? first_ + i : last_ - 1 - i));
  }
  return count;
}

int Table::PartitionOf(const Index& index, const ScanSpec& scan) const {
  if (index.spread == Spread::kSingle) return 0;
  if (scan.partition >= 0) return scan.partition;
  const KeyRange& range = scan.range;
  const size_t prefix = spec().prefix_bytes;
  const bool one = index.spread == Spread::kPrefix && range.end != KeyRange::End::kUnbounded &&
                   range.low.size() >= prefix && range.high.size() >= prefix &&
                   range.low.substr(0, prefix) == range.high.substr(0, prefix);
  return one ? static_cast<int>(PartitionOf(index, range.low)) : -1;
}

Task<absl::Status> Table::Scan(txn::Transaction& tx, ScanSpec scan, RowCallback each) const {
  const Index& index = IndexAt(scan.index);
  if (scan.partition >= static_cast<int>(spec().partitions)) {
    co_return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec().name, "\" has no partition ", scan.partition));
  }
  if (scan.limit == 0) co_return absl::OkStatus();
  if (index.kind == IndexKind::kHash) co_return co_await ScanHash(tx, index, scan, each);
  const int partition = PartitionOf(index, scan);
  if (partition >= 0) co_return co_await ScanOne(tx, index.trees[static_cast<size_t>(partition)], scan, each);
  co_return co_await ScanMerged(tx, index, scan, each);
}

Task<absl::Status> Table::ScanOne(txn::Transaction& tx, const Btree& tree, ScanSpec scan,
                                  RowCallback each) const {
  Cursor cursor(tx, tree, scan);
  uint64_t left = scan.limit;
  while (true) {
    FURROW_CO_RETURN_IF_ERROR(co_await cursor.Load(left));
    if (cursor.done()) co_return absl::OkStatus();
    while (cursor.remaining() > 0) {
      RowPointer rows[kRowBatch];
      const int count = cursor.Coming(rows, static_cast<int>(std::min<uint64_t>(left, kRowBatch)));
      for (int i = 0; i < count; ++i) tx.Prefetch(rows[i].address(), rows[i].read_bytes());
      for (int i = 0; i < count; ++i) {
        RowResult row{Row{}};
        if (!TryReadRow(tx, id(), rows[i], &row)) {
          FURROW_CO_RETURN_IF_ERROR(co_await Bring(tx, rows + i, count - i));
          row = RowFrom(co_await tx.Read(rows[i].address(), RowReadBytes(tx, rows[i])), id(), rows[i]);
        }
        if (!row.ok()) co_return row.status();
        cursor.Next();
        if (!each(*row) || --left == 0) co_return absl::OkStatus();
      }
    }
  }
}

Task<absl::Status> Table::ScanMerged(txn::Transaction& tx, const Index& index, ScanSpec scan,
                                     RowCallback each) const {
  std::deque<Cursor> cursors;
  for (const Btree& tree : index.trees) cursors.emplace_back(tx, tree, scan);
  uint64_t left = scan.limit;
  while (true) {
    Cursor* next = nullptr;
    for (Cursor& cursor : cursors) {
      if (cursor.remaining() == 0) FURROW_CO_RETURN_IF_ERROR(co_await cursor.Load(left));
      if (cursor.done()) continue;
      const bool earlier =
          next == nullptr ||
          (scan.direction == Direction::kForward ? cursor.key() < next->key() : cursor.key() > next->key());
      if (earlier) next = &cursor;
    }
    if (next == nullptr) co_return absl::OkStatus();
    const RowPointer pointer = next->row();
    next->Next();
    FURROW_CO_ASSIGN_OR_RETURN(
        const Row row,
        RowFrom(co_await tx.Read(pointer.address(), RowReadBytes(tx, pointer)), id(), pointer));
    if (!each(row) || --left == 0) co_return absl::OkStatus();
  }
}

Task<absl::StatusOr<size_t>> Table::ScanInto(txn::Transaction& tx, ScanSpec scan, std::span<Row> rows) const {
  size_t count = 0;
  scan.limit = std::min<uint64_t>(scan.limit, rows.size());
  const auto keep = [&](const Row& row) {
    rows[count++] = row;
    return true;
  };
  FURROW_CO_RETURN_IF_ERROR(co_await Scan(tx, scan, keep));
  co_return count;
}

}  // namespace furrow::index
