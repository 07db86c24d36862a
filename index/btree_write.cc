// Changes: inserts with splits, removals with the freeing of empty leaves.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/btree.h"
#include "index/row_access.h"

namespace furrow::index {

Task<absl::Status> Btree::Insert(txn::Transaction& tx, std::string_view key, RowPointer value) const {
  FURROW_CO_ASSIGN_OR_RETURN(const Leaf leaf, co_await FindLeaf(tx, {Target::Kind::kKey, key}));
  const int i = leaf.node.LowerBound(key);
  if (i < leaf.node.count() && leaf.node.key(i) == key) co_return AlreadyExists();
  FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, leaf.address, leaf.read_bytes, 0));
  if (editor.Insert(i, key, value.bits())) co_return absl::OkStatus();
  co_return co_await InsertSplitting(tx, key, value);
}

Task<absl::Status> Btree::Replace(txn::Transaction& tx, std::string_view key, RowPointer by) const {
  FURROW_CO_ASSIGN_OR_RETURN(const Leaf leaf, co_await FindLeaf(tx, {Target::Kind::kKey, key}));
  const int i = leaf.node.LowerBound(key);
  if (i == leaf.node.count() || leaf.node.key(i) != key) co_return NotFound();
  FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, leaf.address, leaf.read_bytes, 0));
  editor.SetValue(i, by.bits());
  co_return absl::OkStatus();
}

namespace {

// Where to split, so that both halves fit. The half-way point always does, since a node has room for several
// of the longest keys.
int FittingSplitPoint(std::span<const NodeEntry> entries, int inserted, int run, Fence low, Fence high,
                      size_t capacity) {
  // A full node may have no room for the fence that it gets: then its last entries go too.
  for (int point = SplitPoint(entries, inserted, run, !low.bounded, !high.bounded); point > 0; --point) {
    const auto left = entries.first(static_cast<size_t>(point));
    const auto right = entries.subspan(static_cast<size_t>(point));
    const Fence middle{true, right.front().key};
    if (NodeBytesNeeded(middle, high, right) > capacity) break;
    if (NodeBytesNeeded(low, middle, left) <= capacity) return point;
  }
  return SplitPoint(entries, -1, 0, false, false);
}

}  // namespace

Task<absl::Status> Btree::InsertSplitting(txn::Transaction& tx, std::string_view key,
                                          RowPointer value) const {
  Path path;
  FURROW_CO_RETURN_IF_ERROR(co_await Walk(tx, {Target::Kind::kKey, key}, &path));
  std::string carried(key);  // the entry to put into the level at hand
  uint64_t carried_value = value.bits();
  for (int at = path.size - 1; at >= 0; --at) {
    const PathNode& node = path.nodes[at];
    const int level = node.node.level();
    FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, node.address, node.read_bytes, level));
    Unpacked old(editor.bytes());
    const int i = old.view().LowerBound(carried);
    if (editor.Insert(i, carried, carried_value)) co_return absl::OkStatus();

    std::vector<NodeEntry>& entries = old.entries();
    entries.insert(entries.begin() + i, NodeEntry{carried, carried_value});
    const Fence low = old.view().low();
    const Fence high = old.view().high();
    const NodeHeader& header = old.view().header();
    const int run = i == header.last_insert + 1 ? header.run + 1 : 0;
    const int point = FittingSplitPoint(entries, i, run, low, high, sizes_.of(level));
    if (at == 0) {
      std::vector<NodeEntry> all = entries;
      co_return co_await SplitRoot(tx, node, std::move(all), point, i, run);
    }
    const auto left = std::span<const NodeEntry>(entries).first(static_cast<size_t>(point));
    const auto right = std::span<const NodeEntry>(entries).subspan(static_cast<size_t>(point));
    std::string separator(level == 0 ? Separator(left.back().key, right.front().key) : right.front().key);
    FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation sibling,
                               co_await tx.Alloc(locality_, sizes_.of(level)));
    NodeEditor right_editor(sibling.payload);
    FURROW_CHECK(right_editor.Build(id_, partition_, level, {true, separator}, high, right));
    FURROW_CHECK(editor.Build(id_, partition_, level, low, {true, separator}, left));
    i < point ? editor.ContinueRun(run, i) : right_editor.ContinueRun(run, i - point);
    carried = std::move(separator);
    carried_value = sibling.address.bits();
  }
  co_return absl::InternalError("unreachable: the root takes what is carried to it");
}

// The root's entries go to two new nodes; the root stays where it is, one level higher. Nothing in `entries`
// lies in the root's own bytes.
Task<absl::Status> Btree::SplitRoot(txn::Transaction& tx, PathNode root, std::vector<NodeEntry> entries,
                                    int left_count, int inserted, int run) const {
  const int level = root.node.level();
  if (level + 1 >= static_cast<int>(kMaxBtreeLevels)) {
    co_return absl::ResourceExhaustedError(
        absl::StrCat("B-tree ", id_, " has ", level + 1, " levels, the most it can"));
  }
  const auto left = std::span<const NodeEntry>(entries).first(static_cast<size_t>(left_count));
  const auto right = std::span<const NodeEntry>(entries).subspan(static_cast<size_t>(left_count));
  const std::string_view separator =
      level == 0 ? Separator(left.back().key, right.front().key) : right.front().key;
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation a,
                             co_await tx.Alloc(locality_, sizes_.of(level)));
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation b,
                             co_await tx.Alloc(locality_, sizes_.of(level)));
  NodeEditor left_editor(a.payload);
  NodeEditor right_editor(b.payload);
  FURROW_CHECK(left_editor.Build(id_, partition_, level, {}, {true, separator}, left));
  FURROW_CHECK(right_editor.Build(id_, partition_, level, {true, separator}, {}, right));
  inserted < left_count ? left_editor.ContinueRun(run, inserted)
                        : right_editor.ContinueRun(run, inserted - left_count);
  FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, root.address, root.read_bytes, level + 1));
  const NodeEntry children[] = {{{}, a.address.bits()}, {separator, b.address.bits()}};
  FURROW_CHECK(editor.Build(id_, partition_, level + 1, {}, {}, children));
  co_return absl::OkStatus();
}

Task<absl::Status> Btree::Remove(txn::Transaction& tx, std::string_view key) const {
  FURROW_CO_ASSIGN_OR_RETURN(const Leaf leaf, co_await FindLeaf(tx, {Target::Kind::kKey, key}));
  const int i = leaf.node.LowerBound(key);
  if (i == leaf.node.count() || leaf.node.key(i) != key) co_return NotFound();
  FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, leaf.address, leaf.read_bytes, 0));
  editor.Remove(i);
  if (editor.count() > 0 || leaf.address == root_) co_return absl::OkStatus();
  co_return co_await FreeEmptyLeaf(tx, key);
}

Task<absl::Status> Btree::FreeEmptyLeaf(txn::Transaction& tx, std::string_view key) const {
  Path path;
  FURROW_CO_RETURN_IF_ERROR(co_await Walk(tx, {Target::Kind::kKey, key}, &path));
  int at = path.size - 2;
  while (at >= 0 && path.nodes[at].node.count() == 1) --at;
  if (at < 0) {
    FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, root_, path.nodes[0].read_bytes, 0));
    FURROW_CHECK(editor.Build(id_, partition_, 0, {}, {}, {}));
  } else {
    bool removed = false;
    FURROW_CO_RETURN_IF_ERROR(co_await GiveRangeAway(tx, path.nodes[at], path.nodes[at + 1].node, &removed));
    if (!removed) co_return absl::OkStatus();  // the leaf stays, empty
  }
  for (int i = std::max(at, 0) + 1; i < path.size; ++i)
    FURROW_CO_RETURN_IF_ERROR(tx.Free(path.nodes[i].address));
  if (at == 0) co_return co_await CollapseRoot(tx);
  co_return absl::OkStatus();
}

// Takes the child `removed`, through which the walk went, out of `parent`: the nodes at the neighbour's edge,
// down to its leaf, take its range over. Nothing is changed if a longer fence has no room in one of them.
Task<absl::Status> Btree::GiveRangeAway(txn::Transaction& tx, PathNode parent, NodeView removed,
                                        bool* done) const {
  const bool to_left = parent.child > 0;
  const int neighbour = to_left ? parent.child - 1 : parent.child + 1;
  Path edge;
  Route route{Address::FromBits(parent.node.value(neighbour)), parent.node.level() - 1};
  const std::string low_key(removed.low().key);
  const std::string high_key(removed.high().key);
  const Fence low{removed.low().bounded, low_key};
  const Fence high{removed.high().bounded, high_key};
  while (true) {
    const uint32_t bytes = ReadBytes(route);
    const txn::ReadResult read = co_await tx.Read(route.address, bytes);
    // A drop takes nodes one by one: this one may be there without its neighbour.
    if (!read.ok() && !IsMissing(read.status())) co_return read.status();
    if (!read.ok() || !NodeView(*read, sizes_).IsNodeOf(id_, partition_)) {
      co_return co_await WhyMissing(life_, tx, id_,
                                    absl::StrCat("no sibling is at ", ToString(route.address)));
    }
    const NodeView node(*read, sizes_);
    if (node.level() != route.level) co_return Broken(route.address, "is no sibling");
    const bool inner = node.level() > 0;
    const std::string_view first = inner && !to_left  ? low.key
                                   : node.count() > 0 ? node.key(0)
                                                      : std::string_view();
    if (!node.FitsWith(to_left ? node.low() : low, to_left ? high : node.high(), first))
      co_return absl::OkStatus();
    edge.nodes[edge.size++] = {route.address, bytes, node, -1};
    if (!inner) break;
    route = {Address::FromBits(node.value(to_left ? node.count() - 1 : 0)), node.level() - 1};
  }
  for (int i = 0; i < edge.size; ++i) {
    const PathNode& node = edge.nodes[i];
    const int level = node.node.level();
    FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, node.address, node.read_bytes, level));
    Unpacked old(editor.bytes());
    if (!to_left && level > 0) old.entries()[0].key = low.key;
    FURROW_CHECK(editor.Build(id_, partition_, level, to_left ? old.view().low() : low,
                              to_left ? high : old.view().high(), old.entries()));
  }
  FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor,
                             Edit(tx, parent.address, parent.read_bytes, parent.node.level()));
  Unpacked old(editor.bytes());
  old.entries().erase(old.entries().begin() + parent.child);
  if (!to_left) old.entries()[0].key = low.key;
  FURROW_CHECK(
      editor.Build(id_, partition_, old.view().level(), old.view().low(), old.view().high(), old.entries()));
  *done = true;
  co_return absl::OkStatus();
}

// A root with one child takes that child's contents, as often as that is so.
Task<absl::Status> Btree::CollapseRoot(txn::Transaction& tx) const {
  while (true) {
    const txn::ReadResult read = co_await tx.Read(root_, sizes_.inner);
    if (!read.ok()) co_return read.status();
    const NodeView root(*read, sizes_);
    if (root.level() == 0 || root.count() != 1) co_return absl::OkStatus();
    const int level = root.level() - 1;
    const Address child = Address::FromBits(root.value(0));
    const txn::ReadResult child_read = co_await tx.Read(child, sizes_.of(level));
    if (!child_read.ok() && !IsMissing(child_read.status())) co_return child_read.status();
    if (!child_read.ok() || !NodeView(*child_read, sizes_).IsNodeOf(id_, partition_)) {
      co_return co_await WhyMissing(life_, tx, id_,
                                    absl::StrCat("the root's child is not at ", ToString(child)));
    }
    const NodeView node(*child_read, sizes_);
    if (node.level() != level) co_return Broken(child, "is not the root's child");
    Unpacked contents(node.bytes());
    FURROW_CO_ASSIGN_OR_RETURN(NodeEditor editor, Edit(tx, root_, sizes_.inner, level));
    FURROW_CHECK(editor.Build(id_, partition_, level, {}, {}, contents.entries()));
    FURROW_CO_RETURN_IF_ERROR(tx.Free(child));
  }
}

}  // namespace furrow::index
