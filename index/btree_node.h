// The B-tree node: layout, search and change. No transaction, no memory of its own.
//
// Payload of a node (little-endian). Its size is NodeBytes::of(level); the root object is as large as an
// inner node, and uses only a leaf's part of it while it is a leaf.
//   off      size  field
//   0        4     index id
//   4        2     partition
//   6        1     level; 0: leaf
//   7        1     bit 0: has a low fence, bit 1: has a high fence (otherwise the node reaches to that end)
//   8        2     number of entries
//   10       2     length of the low fence
//   12       2     length of the high fence
//   14       2     start of the heap
//   16       2     position of the last insert
//   18       1     inserts in a row that each came right behind the one before (at most 255)
//   19       1     zero
//   20       2     bytes of removed records in the heap
//   22       2     zero
//   24       2*n   offsets of the records, in key order
//   heap     ...   records, then the low fence, then the high fence, up to the end
// Record:
//   0        8     value: a RowPointer in a leaf, the child's address in an inner node
//   8        2     key length
//   10       k     key
// Keys of the node lie in [low fence, high fence). The key of an inner entry is the low fence of its child;
// that of the first one is empty when the node has no low fence.
#ifndef FURROW_INDEX_BTREE_NODE_H_
#define FURROW_INDEX_BTREE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "index/row.h"

namespace furrow::index {

inline constexpr uint32_t kMaxBtreeLevels = 16;
inline constexpr uint32_t kRecordOverhead = 10;

struct NodeHeader {
  uint32_t index;
  uint16_t partition;
  uint8_t level;
  uint8_t flags;
  uint16_t count;
  uint16_t low_bytes;
  uint16_t high_bytes;
  uint16_t heap;
  uint16_t last_insert;
  uint8_t run;
  uint8_t zero0;
  uint16_t garbage;
  uint16_t zero1;
};
static_assert(sizeof(NodeHeader) == 24 && offsetof(NodeHeader, heap) == 14 &&
              offsetof(NodeHeader, garbage) == 20);

// Payload sizes of a tree's nodes, from its longest key: 482 and 978 bytes (slots of 512 and 1,024) for keys
// up to 32 bytes; for longer ones so that a leaf holds 6 and an inner node 8 of the longest.
struct NodeBytes {
  uint32_t leaf = 0;
  uint32_t inner = 0;
  static NodeBytes For(uint32_t max_key_bytes);
  uint32_t of(int level) const { return level == 0 ? leaf : inner; }
};

// One end of a node's range.
struct Fence {
  bool bounded = false;
  std::string_view key;
};

// Which leaf a walk looks for.
struct Target {
  enum class Kind : uint8_t {
    kKey,     // the one whose range contains `key`
    kBefore,  // the one with the largest keys below `key`
    kPrefix,  // the one with the largest keys that are below `key` or begin with it
    kLast,
  };
  Kind kind = Kind::kKey;
  std::string_view key;
};
// Whether a walk to `target` goes to a node whose range starts at `fence`, or further to the right.
bool StartsAtOrBelow(std::string_view fence, const Target& target);

// Reads a node. Valid only while the bytes are. Lengths are checked on access, so that bytes which are no
// node do no harm; they are found out by names and fences.
class NodeView {
 public:
  NodeView() = default;
  // `bytes` are cut to the size for the node's level.
  NodeView(std::span<const std::byte> bytes, NodeBytes sizes);

  const NodeHeader& header() const { return *reinterpret_cast<const NodeHeader*>(bytes_.data()); }
  // Names itself as this tree's, and its parts lie within it.
  bool IsNodeOf(uint32_t index, uint32_t partition) const;
  int level() const { return header().level; }
  int count() const { return header().count; }
  Fence low() const;
  Fence high() const;
  // The walk to `target` ends here, or goes through here.
  bool Covers(const Target& target) const;
  std::string_view key(int i) const;
  uint64_t value(int i) const;
  // First entry whose key is >= `key`; count() if there is none.
  int LowerBound(std::string_view key) const;
  // First entry whose key is not at or below `target` in the sense of StartsAtOrBelow(): with kBefore and
  // kPrefix, the first one past the end of a range.
  int UpperBound(const Target& target) const;
  // The entry of an inner node through which the walk goes.
  int ChildFor(const Target& target) const;
  std::span<const std::byte> bytes() const { return bytes_; }
  // Whether the node has room for other fences and, where it has entries, another first key.
  bool FitsWith(Fence low, Fence high, std::string_view first_key) const;

 private:
  uint16_t offset(int i) const {
    uint16_t o;
    std::memcpy(&o, bytes_.data() + sizeof(NodeHeader) + 2 * i, 2);
    return o;
  }
  std::span<const std::byte> bytes_;
};

struct NodeEntry {
  std::string_view key;
  uint64_t value = 0;
};

// A node's entries, in a copy of its bytes.
class Unpacked {
 public:
  // `bytes` are exactly the node's size for its level.
  explicit Unpacked(std::span<const std::byte> bytes);
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  const NodeView& view() const { return view_; }
  std::vector<NodeEntry>& entries() { return entries_; }

 private:
  std::vector<std::byte> copy_;
  NodeView view_;
  std::vector<NodeEntry> entries_;
};

// Changes a node in place. `bytes` are exactly the node's size for its level.
class NodeEditor {
 public:
  explicit NodeEditor(std::span<std::byte> bytes) : bytes_(bytes) {}

  // Lays a node out anew. The strings must not lie in `bytes`. False: it does not fit (nothing is changed
  // then).
  bool Build(uint32_t index, uint32_t partition, int level, Fence low, Fence high,
             std::span<const NodeEntry> entries);
  // Puts an entry at its place `i`; false: no room, nothing is changed.
  bool Insert(int i, std::string_view key, uint64_t value);
  void Remove(int i);
  void SetValue(int i, uint64_t value);
  // Carries a run of ascending inserts on, whose last one is entry `at`, in a node that was built anew.
  void ContinueRun(int run, int at);
  int count() const { return reinterpret_cast<const NodeHeader*>(bytes_.data())->count; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(bytes_.data()); }
  bool Rebuild(Fence low, Fence high, const std::vector<NodeEntry>& entries);
  std::span<std::byte> bytes_;
};

// Bytes that a node with these contents needs.
size_t NodeBytesNeeded(Fence low, Fence high, std::span<const NodeEntry> entries);
// Where to split `entries`, of which `inserted` is new: the number that stays in the left node, 1 to size
// - 1. In the middle by bytes; at the insert if the inserts come in ascending (`run`) or descending order at
// an end, so that they fill their nodes.
int SplitPoint(std::span<const NodeEntry> entries, int inserted, int run, bool leftmost, bool rightmost);
// The shortest key that is above `left` and not above `right`.
std::string_view Separator(std::string_view left, std::string_view right);

}  // namespace furrow::index

#endif  // FURROW_INDEX_BTREE_NODE_H_
