// Walks: cached and uncached.
#include "index/btree.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/row_access.h"

namespace furrow::index {

absl::Status Btree::Broken(Address address, std::string_view what) const {
  return absl::DataLossError(absl::StrCat("B-tree ", id_, ", partition ", partition_, ": the node at ",
                                          ToString(address), " ", Sv(what), ": run furrow doctor"));
}

void Btree::MaybeCache(txn::Transaction& tx, Address address, std::span<const std::byte> bytes) const {
  const txn::Access* access = tx.FindAccess(address);
  if (access == nullptr || access->written() || access->old_version) return;
  cache_->Put(address, bytes);
}

Btree::Route Btree::FollowCache(Route route, const Target& target) const {
  const InnerCache::Guard guard(*cache_);
  while (route.level != 0) {
    const std::span<const std::byte> bytes = cache_->Find(route.address, guard);
    if (bytes.empty()) break;
    const NodeView node(bytes, sizes_);
    if (!node.IsNodeOf(id_, partition_) || node.level() == 0 || node.count() == 0 ||
        (route.level > 0 && node.level() != route.level) || !node.Covers(target)) {
      break;  // out of date: the transaction's own read replaces it
    }
    route = {Address::FromBits(node.value(node.ChildFor(target))), node.level() - 1};
  }
  return route;
}

Btree::Route Btree::CachedRoute(const Target& target) const { return FollowCache({root_, -1}, target); }

int Btree::CachedSiblings(const Target& target, bool forward, Address* out, int max) const {
  const InnerCache::Guard guard(*cache_);
  Route route{root_, -1};
  while (route.level != 0) {
    const std::span<const std::byte> bytes = cache_->Find(route.address, guard);
    if (bytes.empty()) return 0;
    const NodeView node(bytes, sizes_);
    if (!node.IsNodeOf(id_, partition_) || node.level() == 0 || node.count() == 0 || !node.Covers(target))
      return 0;
    const int child = node.ChildFor(target);
    if (node.level() == 1) {
      int found = 0;
      for (int i = forward ? child + 1 : child - 1; i >= 0 && i < node.count() && found < max;
           i += forward ? 1 : -1) {
        out[found++] = Address::FromBits(node.value(i));
      }
      return found;
    }
    route = {Address::FromBits(node.value(child)), node.level() - 1};
  }
  return 0;
}

bool Btree::TryFindLeaf(txn::Transaction& tx, const Target& target, absl::StatusOr<Leaf>* result) const {
  Route route = CachedRoute(target);
  while (true) {
    const uint32_t bytes = ReadBytes(route);
    auto awaiter = tx.ReadHint(route.address, bytes);
    if (!awaiter.await_ready()) return false;
    const txn::ReadResult read = awaiter.await_resume();
    if (!read.ok()) {
      if (read.status().code() == absl::StatusCode::kNotFound) return false;
      *result = read.status();
      return true;
    }
    const NodeView node(*read, sizes_);
    if (!node.IsNodeOf(id_, partition_) || (route.level >= 0 && node.level() != route.level) ||
        !node.Covers(target)) {
      return false;
    }
    if (node.level() == 0) {
      *result = Leaf{route.address, bytes, node};
      return true;
    }
    MaybeCache(tx, route.address, *read);
    route = FollowCache({Address::FromBits(node.value(node.ChildFor(target))), node.level() - 1}, target);
  }
}

Task<absl::StatusOr<Leaf>> Btree::FindLeafSlow(txn::Transaction& tx, Target target) const {
  Route route = CachedRoute(target);
  while (true) {
    const uint32_t bytes = ReadBytes(route);
    const txn::ReadResult read = co_await tx.ReadHint(route.address, bytes);
    if (!read.ok()) {
      if (read.status().code() == absl::StatusCode::kNotFound) break;
      co_return read.status();
    }
    const NodeView node(*read, sizes_);
    if (!node.IsNodeOf(id_, partition_) || (route.level >= 0 && node.level() != route.level) ||
        !node.Covers(target)) {
      break;
    }
    if (node.level() == 0) co_return Leaf{route.address, bytes, node};
    MaybeCache(tx, route.address, *read);
    route = FollowCache({Address::FromBits(node.value(node.ChildFor(target))), node.level() - 1}, target);
  }
  Path path;
  FURROW_CO_RETURN_IF_ERROR(co_await Walk(tx, target, &path));
  co_return Leaf{path.leaf().address, path.leaf().read_bytes, path.leaf().node};
}

Task<absl::Status> Btree::Walk(txn::Transaction& tx, Target target, Path* path) const {
  path->size = 0;
  Route route{root_, -1};
  while (true) {
    const uint32_t bytes = ReadBytes(route);
    const txn::ReadResult read = co_await tx.Read(route.address, bytes);
    if (!read.ok()) {
      // The transaction's own reads lead from the root, which goes with the table alone, to nodes of one
      // snapshot.
      if (!IsMissing(read.status())) co_return read.status();
      co_return co_await WhyMissing(life_, tx, id_,
                                    absl::StrCat("the node at ", ToString(route.address), " is gone"));
    }
    const NodeView node(*read, sizes_);
    if (!node.IsNodeOf(id_, partition_)) {
      co_return co_await WhyMissing(life_, tx, id_,
                                    absl::StrCat("another object is at ", ToString(route.address)));
    }
    if (route.level >= 0 && node.level() != route.level) co_return Broken(route.address, "has another level");
    if (!node.Covers(target)) co_return Broken(route.address, "has another range than its parent says");
    path->nodes[path->size++] = {route.address, bytes, node, -1};
    if (node.level() == 0) co_return absl::OkStatus();
    if (node.count() == 0) co_return Broken(route.address, "is an inner node without children");
    MaybeCache(tx, route.address, *read);
    const int child = node.ChildFor(target);
    path->leaf().child = child;
    route = {Address::FromBits(node.value(child)), node.level() - 1};
  }
}

absl::StatusOr<NodeEditor> Btree::Edit(txn::Transaction& tx, Address address, uint32_t read_bytes,
                                       int level) const {
  FURROW_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(address, read_bytes));
  FURROW_CHECK(bytes.size() >= sizes_.of(level));
  return NodeEditor(bytes.first(sizes_.of(level)));
}

Task<absl::StatusOr<Address>> Btree::CreateIn(txn::Transaction& tx, uint32_t id, uint32_t partition,
                                              RegionId locality, uint32_t max_key_bytes) {
  const NodeBytes sizes = NodeBytes::For(max_key_bytes);
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation root,
                             co_await tx.Alloc(locality, sizes.inner));
  FURROW_CHECK(NodeEditor(root.payload.first(sizes.leaf)).Build(id, partition, 0, {}, {}, {}));
  co_return root.address;
}

}  // namespace furrow::index
