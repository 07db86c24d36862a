// Reads a whole tree and compares all that its nodes say of each other.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "index/btree.h"

namespace furrow::index {
namespace {

// What a parent says of a child.
struct Expected {
  Address address;
  int level = -1;
  Fence low;
  Fence high;
};

bool Same(const Fence& a, const Fence& b) { return a.bounded == b.bounded && a.key == b.key; }

// The first thing that is wrong with a node's entries; empty: nothing.
std::string_view CheckEntries(const NodeView& node) {
  for (int i = 0; i < node.count(); ++i) {
    const std::string_view key = node.key(i);
    if (i > 0 && node.key(i - 1) >= key) return "has keys out of order";
    if (node.low().bounded && key < node.low().key) return "has a key below its low fence";
    if (node.high().bounded && key >= node.high().key) return "has a key that is not below its high fence";
    if (node.value(i) == 0) return "has an entry without a value";
  }
  if (node.level() > 0 && node.count() == 0) return "is an inner node without children";
  if (node.level() > 0 && node.key(0) != node.low().key) return "does not begin at its low fence";
  return {};
}

}  // namespace

Task<absl::StatusOr<Btree::Shape>> Btree::Verify(txn::Transaction& tx) const {
  Shape shape;
  std::vector<Expected> stack = {{root_, -1, {}, {}}};
  while (!stack.empty()) {
    const Expected expected = stack.back();
    stack.pop_back();
    const txn::ReadResult read =
        co_await tx.Read(expected.address, ReadBytes(Route{expected.address, expected.level}));
    if (!read.ok()) {
      if (read.status().code() == absl::StatusCode::kNotFound) co_return Broken(expected.address, "is gone");
      co_return read.status();
    }
    const NodeView node(*read, sizes_);
    if (!node.IsNodeOf(id_, partition_)) co_return Broken(expected.address, "is another object");
    if (expected.level >= 0 && node.level() != expected.level)
      co_return Broken(expected.address, "has another level");
    if (!Same(node.low(), expected.low) || !Same(node.high(), expected.high)) {
      co_return Broken(expected.address, "has other fences than its parent says");
    }
    const std::string_view wrong = CheckEntries(node);
    if (!wrong.empty()) co_return Broken(expected.address, wrong);
    if (expected.level < 0) shape.levels = node.level() + 1;
    if (node.level() == 0) {
      ++shape.leaves;
      shape.entries += static_cast<uint64_t>(node.count());
      continue;
    }
    ++shape.inner_nodes;
    for (int i = node.count(); i-- > 0;) {
      const Fence low = i == 0 ? node.low() : Fence{true, node.key(i)};
      const Fence high = i + 1 == node.count() ? node.high() : Fence{true, node.key(i + 1)};
      stack.push_back({Address::FromBits(node.value(i)), node.level() - 1, low, high});
    }
  }
  co_return shape;
}

}  // namespace furrow::index
