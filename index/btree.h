// Btree: one partition of a B-tree index, built from transactions.
//
// - Inner nodes are taken from the process's InnerCache; leaves are always read through the transaction, so
// that a leaf in
//   the read set forbids phantoms in its range. Every node names index, partition, level and its range
//   (fences).
// - A cached route that ends in something else (the leaf was split, freed, its slot given to another object,
// its version is
//   gone) is walked again from the root through the transaction's own reads, which see its own splits; that
//   refreshes the cache. A lookup never fails because a cache is old.
// - The root never moves: when it splits, its contents go to two new nodes and it is rewritten one level
// higher; when it
//   has one child left, it takes that child's contents.
// - There are no sibling pointers: a scan goes on at the fence of the leaf that it leaves, through the cache.
// - A leaf that becomes empty is freed, with inner nodes that only led to it; the neighbour's fences take its
// range over.
#ifndef FURROW_INDEX_BTREE_H_
#define FURROW_INDEX_BTREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/task.h"
#include "index/btree_node.h"
#include "index/descriptor.h"
#include "index/inner_cache.h"
#include "index/table_life.h"
#include "txn/transaction.h"

namespace furrow::index {

// A leaf that a walk has found; the bytes stay for the transaction's life.
struct Leaf {
  Address address;
  uint32_t read_bytes = 0;  // of the object: the root's are more than the node's
  NodeView node;
};

class Btree {
 public:
  // `cache` and `life` outlive the tree. `life` null: of no table that could be dropped.
  Btree(uint32_t id, uint32_t partition, Address root, RegionId locality, uint32_t max_key_bytes,
        InnerCache& cache, const TableLife* life = nullptr)
      : id_(id),
        partition_(partition),
        root_(root),
        locality_(locality),
        sizes_(NodeBytes::For(max_key_bytes)),
        cache_(&cache),
        life_(life) {}

  // False: not everything is at hand, or the route is old; ask FindLeafSlow().
  bool TryFindLeaf(txn::Transaction& tx, const Target& target, absl::StatusOr<Leaf>* result) const;
  Task<absl::StatusOr<Leaf>> FindLeafSlow(txn::Transaction& tx, Target target) const;
  struct [[nodiscard]] LeafAwaiter {
    const Btree& tree;
    txn::Transaction& tx;
    Target target;
    absl::StatusOr<Leaf> result{Leaf{}};
    Task<absl::StatusOr<Leaf>> slow{};
    bool await_ready() { return tree.TryFindLeaf(tx, target, &result); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
      slow = tree.FindLeafSlow(tx, target);
      return slow.operator co_await().await_suspend(h);
    }
    absl::StatusOr<Leaf> await_resume() {
      if (slow) return slow.operator co_await().await_resume();
      return std::move(result);
    }
  };
  LeafAwaiter FindLeaf(txn::Transaction& tx, Target target) const { return LeafAwaiter{*this, tx, target}; }

  // Where the cached route to `target` ends: a leaf (level 0) or the first node that is not cached; a hint.
  struct Route {
    Address address;
    int level = -1;  // -1: the root, whose level is not known
  };
  Route CachedRoute(const Target& target) const;
  uint32_t ReadBytes(const Route& route) const {
    return route.address == root_ ? sizes_.inner : sizes_.of(route.level);
  }
  uint32_t leaf_bytes() const { return sizes_.leaf; }
  // Addresses of leaves that follow the cached route to `target` under the same parent, in scan order, for
  // prefetching.
  int CachedSiblings(const Target& target, bool forward, Address* out, int max) const;

  // AlreadyExists, without text: the key is there.
  Task<absl::Status> Insert(txn::Transaction& tx, std::string_view key, RowPointer value) const;
  // NotFound, without text.
  Task<absl::Status> Remove(txn::Transaction& tx, std::string_view key) const;
  Task<absl::Status> Replace(txn::Transaction& tx, std::string_view key, RowPointer by) const;

  // Makes an empty tree near `locality`; the address of its root.
  static Task<absl::StatusOr<Address>> CreateIn(txn::Transaction& tx, uint32_t id, uint32_t partition,
                                                RegionId locality, uint32_t max_key_bytes);

  // Reads the whole tree and compares every name, fence, order and level; DataLoss says what is wrong. For
  // tests and consistency checks.
  struct Shape {
    uint64_t entries = 0;
    uint64_t leaves = 0;
    uint64_t inner_nodes = 0;
    int levels = 0;
  };
  Task<absl::StatusOr<Shape>> Verify(txn::Transaction& tx) const;

 private:
  // The nodes from the root to a leaf, as the transaction itself reads them.
  struct PathNode {
    Address address;
    uint32_t read_bytes = 0;
    NodeView node;
    int child = -1;  // entry through which the walk went on
  };
  struct Path {
    PathNode nodes[kMaxBtreeLevels];
    int size = 0;
    PathNode& leaf() { return nodes[size - 1]; }
  };

  absl::Status Broken(Address address, std::string_view what) const;
  void MaybeCache(txn::Transaction& tx, Address address, std::span<const std::byte> bytes) const;
  // Follows cached inner nodes from `route` as far as they lead and their names and fences agree.
  Route FollowCache(Route route, const Target& target) const;
  Task<absl::Status> Walk(txn::Transaction& tx, Target target, Path* path) const;
  absl::StatusOr<NodeEditor> Edit(txn::Transaction& tx, Address address, uint32_t read_bytes,
                                  int level) const;
  Task<absl::Status> InsertSplitting(txn::Transaction& tx, std::string_view key, RowPointer value) const;
  Task<absl::Status> SplitRoot(txn::Transaction& tx, PathNode root, std::vector<NodeEntry> entries,
                               int left_count, int inserted, int run) const;
  Task<absl::Status> FreeEmptyLeaf(txn::Transaction& tx, std::string_view key) const;
  Task<absl::Status> GiveRangeAway(txn::Transaction& tx, PathNode parent, NodeView removed, bool* done) const;
  Task<absl::Status> CollapseRoot(txn::Transaction& tx) const;

  uint32_t id_;
  uint32_t partition_;
  Address root_;
  RegionId locality_;
  NodeBytes sizes_;
  InnerCache* cache_;
  const TableLife* life_;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_BTREE_H_
