// Freeing the storage of a table: rows with the leaves or buckets that name them, nodes after their children,
// chunks of a directory after their buckets. What was freed before, by an earlier run or another process, is
// passed over: every object names itself, and its slot may be somebody else's by now.
//
// Who still uses the table changes what is to be freed, and may do so for as long as nothing of it is gone: a
// transaction that frees much would lose to theirs for ever. One that has lost a few times therefore closes
// its nodes and buckets first, one by one, in transactions as short as theirs; users then find no part of
// their index there, and ask the catalog.
#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "index/btree_node.h"
#include "index/hash_index.h"
#include "index/inline_bucket.h"
#include "index/row_access.h"
#include "index/storage_record.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

constexpr uint32_t kBucketsPerTransaction = 16;  // with their rows
constexpr uint32_t kRowsPerTransaction = 128;    // and those of one more bucket and its chain
constexpr int kOverflowPerTransaction = 8;       // of one chain
// How often a transaction loses before it closes what it frees.
constexpr int kOpenTries = 3;
// In the index id of a node or home bucket: it is closed. No index has so large an id.
constexpr uint32_t kClosed = 1u << 31;

// The object at `address`, `bytes` of it; empty if it is gone.
Task<absl::StatusOr<std::span<const std::byte>>> ReadIfThere(txn::Transaction& tx, Address address,
                                                             uint32_t bytes) {
  const txn::ReadResult read = co_await tx.Read(address, bytes);
  if (read.ok()) co_return *read;
  if (IsMissing(read.status())) co_return std::span<const std::byte>();
  co_return read.status();
}

// Reads of the row no more than names its table: it may have 1 MB.
Task<absl::Status> FreeRow(txn::Transaction& tx, uint32_t table_id, RowPointer pointer) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             co_await ReadIfThere(tx, pointer.address(), kRowHeaderBytes));
  if (bytes.empty()) co_return absl::OkStatus();
  RowHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.table != table_id) co_return absl::OkStatus();
  co_return tx.Free(pointer.address());
}

// What one index is freed by.
struct Part {
  txn::Worker& worker;
  const Table& catalog;
  const TableDescriptor& table;
  size_t index;
  uint32_t partition;

  uint32_t id() const { return table.indexes[index].id; }
  // Entries name rows, and rows go with their primary index, unless they lie in its buckets.
  bool frees_rows() const { return index == 0 && !table.inline_rows(); }
  // Payload of a bucket. Index, number and next stand at the same place in all kinds.
  uint32_t bucket_bytes() const {
    return index == 0 && table.inline_rows() ? table.geometry().payload_bytes()
                                             : static_cast<uint32_t>(sizeof(Bucket));
  }
};

// Makes the node or bucket at `address` none of its index, for all but who frees it.
Task<absl::Status> Close(txn::Transaction& tx, const Part& part, Address address, uint32_t bytes) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> read, co_await ReadIfThere(tx, address, bytes));
  uint32_t index = 0;
  if (!read.empty()) std::memcpy(&index, read.data(), sizeof(index));
  if (index != part.id()) co_return absl::OkStatus();  // gone, or closed before
  index |= kClosed;
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> write, tx.OpenForWrite(address, bytes));
  std::memcpy(write.data(), &index, sizeof(index));
  co_return absl::OkStatus();
}

// Runs `free`, which frees `objects`, of `bytes` each, against those who still use them.
Task<absl::Status> RunAndCloseIfLost(const Part& part, std::span<const Address> objects, uint32_t bytes,
                                     txn::Worker::Body free) {
  int tries = 0;
  const txn::CommitResult open = co_await part.worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
    if (++tries > kOpenTries) co_return absl::CancelledError();
    co_return co_await free(tx);
  });
  if (tries <= kOpenTries) co_return open.status;
  for (const Address object : objects) {
    if (object.is_null()) continue;
    const txn::CommitResult closed =
        co_await part.worker.Run([&](txn::Transaction& tx) { return Close(tx, part, object, bytes); });
    FURROW_CO_RETURN_IF_ERROR(closed.status);
  }
  co_return (co_await part.worker.Run(free)).status;
}

// The record without what `change` takes out of it.
template <class Change>
Task<absl::Status> ChangePartition(txn::Transaction& tx, const Part& part, Change change) {
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record, co_await ReadRecord(tx, part.catalog, part.table.table_id,
                                                                       StorageRecord::State::kFreeing));
  change(record.table.indexes[part.index].partitions[part.partition]);
  co_return co_await WriteRecord(tx, part.catalog, record);
}

// --- B-trees ---

struct Node {
  bool gone = false;
  int level = -1;
  std::vector<Address> children;  // of an inner node
};

NodeBytes SizesOf(const Part& part) { return NodeBytes::For(part.table.max_key_bytes(part.index)); }

uint32_t ReadBytesOf(const Part& part, Address at, int level) {
  const bool is_root = at == part.table.indexes[part.index].partitions[part.partition].root;
  return is_root ? SizesOf(part).inner : SizesOf(part).of(level);
}

Task<absl::Status> FreeLeafOrRead(txn::Transaction& tx, const Part& part, Address at, int level,
                                  const Node* expected, Node* out) {
  *out = Node{};
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             co_await ReadIfThere(tx, at, ReadBytesOf(part, at, level)));
  if (bytes.empty()) {
    out->gone = true;
    co_return absl::OkStatus();
  }
  const NodeView node(bytes, SizesOf(part));
  const bool ours =
      node.IsNodeOf(part.id(), part.partition) || node.IsNodeOf(part.id() | kClosed, part.partition);
  if (!ours || (level >= 0 && node.level() != level)) {
    out->gone = true;
    co_return absl::OkStatus();
  }
  out->level = node.level();
  if (node.level() > 0) {
    for (int i = 0; i < node.count(); ++i) out->children.push_back(Address::FromBits(node.value(i)));
    // Who still used the table may have given it another child meanwhile.
    if (expected == nullptr || expected->children != out->children) co_return absl::OkStatus();
  } else if (part.frees_rows()) {
    for (int i = 0; i < node.count(); ++i) {
      FURROW_CO_RETURN_IF_ERROR(
          co_await FreeRow(tx, part.table.table_id, RowPointer::FromBits(node.value(i))));
    }
  }
  FURROW_CO_RETURN_IF_ERROR(tx.Free(at));
  out->gone = true;
  co_return absl::OkStatus();
}

// The node at `at` and all below it; level -1: it is the root.
Task<absl::Status> FreeNode(const Part& part, Address at, int level) {
  Node seen;
  bool again = false;
  while (true) {
    Node now;
    FURROW_CO_RETURN_IF_ERROR(co_await RunAndCloseIfLost(
        part, std::span(&at, 1), ReadBytesOf(part, at, level), [&](txn::Transaction& tx) {
          return FreeLeafOrRead(tx, part, at, level, again ? &seen : nullptr, &now);
        }));
    if (now.gone) co_return absl::OkStatus();
    seen = std::move(now);
    again = true;
    for (const Address child : seen.children) {
      FURROW_CO_RETURN_IF_ERROR(co_await FreeNode(part, child, seen.level - 1));
    }
  }
}

// --- hash indexes ---

Bucket BucketFrom(std::span<const std::byte> bytes) {
  Bucket bucket{};
  std::memcpy(&bucket, bytes.data(), std::min(bytes.size(), sizeof(bucket)));
  return bucket;
}

// Adds to `rows` how many there were.
Task<absl::Status> FreeRowsOf(txn::Transaction& tx, const Part& part, const Bucket& bucket, uint32_t* rows) {
  for (const uint64_t entry : bucket.entries) {
    const RowPointer pointer = RowPointer::FromBits(entry);
    if (pointer.is_null()) continue;
    ++*rows;
    FURROW_CO_RETURN_IF_ERROR(co_await FreeRow(tx, part.table.table_id, pointer));
  }
  co_return absl::OkStatus();
}

// Frees the bucket at `home`, or, of one with a long chain, some of what hangs on it: `more` then.
Task<absl::Status> FreeBucket(txn::Transaction& tx, const Part& part, Address home, uint32_t* rows,
                              bool* more) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                             co_await ReadIfThere(tx, home, part.bucket_bytes()));
  if (bytes.empty()) co_return absl::OkStatus();
  const Bucket bucket = BucketFrom(bytes);
  if ((bucket.index & ~kClosed) != part.id()) co_return absl::OkStatus();
  uint64_t next = bucket.next;
  for (int i = 0; next != 0; ++i) {
    if (i == kOverflowPerTransaction) {
      *more = true;
      FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> write,
                                 tx.OpenForWrite(home, part.bucket_bytes()));
      std::memcpy(write.data() + offsetof(Bucket, next), &next, sizeof(next));
      co_return absl::OkStatus();
    }
    const Address at = Address::FromBits(next);
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<const std::byte> overflow,
                               co_await ReadIfThere(tx, at, part.bucket_bytes()));
    if (overflow.empty()) break;
    const Bucket chained = BucketFrom(overflow);
    if (chained.index != part.id() || chained.number != bucket.number) break;
    if (part.frees_rows()) FURROW_CO_RETURN_IF_ERROR(co_await FreeRowsOf(tx, part, chained, rows));
    FURROW_CO_RETURN_IF_ERROR(tx.Free(at));
    next = chained.next;
  }
  if (part.frees_rows()) FURROW_CO_RETURN_IF_ERROR(co_await FreeRowsOf(tx, part, bucket, rows));
  co_return tx.Free(home);
}

// How many of them it frees, in `freed`: the rest comes with the next transactions.
Task<absl::Status> FreeBuckets(txn::Transaction& tx, const Part& part, std::span<const Address> buckets,
                               size_t* freed) {
  *freed = 0;
  bool more = false;
  for (uint32_t rows = 0; *freed < buckets.size() && rows < kRowsPerTransaction; ++*freed) {
    const Address bucket = buckets[*freed];
    if (!bucket.is_null()) FURROW_CO_RETURN_IF_ERROR(co_await FreeBucket(tx, part, bucket, &rows, &more));
    if (more) break;
  }
  co_return absl::OkStatus();
}

// Frees the chunk at `partition`'s root and takes it out of the record, if it still is as `expected`: it
// may have got buckets from a maker that was given up. `now`: what it holds, empty when it has gone.
Task<absl::Status> FreeChunkOrRead(txn::Transaction& tx, const Part& part, IndexPartition partition,
                                   const HashChunk* expected, HashChunk* now) {
  FURROW_CO_RETURN_IF_ERROR(co_await HashIndex::ReadChunk(tx, part.id(), partition, now));
  if (now->count != 0 && (expected == nullptr || expected->buckets != now->buckets))
    co_return absl::OkStatus();
  if (now->count != 0) FURROW_CO_RETURN_IF_ERROR(tx.Free(partition.root));
  FURROW_CO_RETURN_IF_ERROR(co_await ChangePartition(tx, part, [&](IndexPartition& p) {
    if (p != partition) return;  // another process has come further
    p.root = now->before;
    p.buckets = now->first;
  }));
  now->count = 0;
  co_return absl::OkStatus();
}

Task<absl::Status> FreeChunk(const Part& part, IndexPartition partition) {
  HashChunk seen;
  bool again = false;
  while (true) {
    HashChunk now;
    const txn::CommitResult result = co_await part.worker.Run([&](txn::Transaction& tx) {
      return FreeChunkOrRead(tx, part, partition, again ? &seen : nullptr, &now);
    });
    FURROW_CO_RETURN_IF_ERROR(result.status);
    if (now.count == 0) co_return absl::OkStatus();
    seen = std::move(now);
    again = true;
    const std::span<const Address> all(seen.buckets);
    for (size_t from = 0; from < all.size();) {
      const std::span<const Address> some =
          all.subspan(from, std::min<size_t>(kBucketsPerTransaction, all.size() - from));
      size_t done = 0;
      FURROW_CO_RETURN_IF_ERROR(co_await RunAndCloseIfLost(
          part, some, part.bucket_bytes(),
          [&](txn::Transaction& tx) { return FreeBuckets(tx, part, some, &done); }));
      from += done;
    }
  }
}

Task<absl::Status> Current(txn::Transaction& tx, const Table& catalog, uint32_t table_id,
                           StorageRecord* record) {
  FURROW_CO_ASSIGN_OR_RETURN(*record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kFreeing));
  co_return absl::OkStatus();
}

Task<absl::Status> FreePartition(const Part& part) {
  while (true) {
    StorageRecord record;
    const txn::CommitResult read = co_await part.worker.Run(
        [&](txn::Transaction& tx) { return Current(tx, part.catalog, part.table.table_id, &record); });
    FURROW_CO_RETURN_IF_ERROR(read.status);
    const IndexPartition partition = record.table.indexes[part.index].partitions[part.partition];
    if (partition.root.is_null()) co_return absl::OkStatus();
    if (part.table.kind(part.index) == IndexKind::kHash) {
      FURROW_CO_RETURN_IF_ERROR(co_await FreeChunk(part, partition));
      continue;
    }
    FURROW_CO_RETURN_IF_ERROR(co_await FreeNode(part, partition.root, -1));
    const txn::CommitResult done = co_await part.worker.Run([&](txn::Transaction& tx) {
      return ChangePartition(tx, part, [](IndexPartition& p) { p.root = Address(); });
    });
    FURROW_CO_RETURN_IF_ERROR(done.status);
  }
}

// The last step: the regions of the table's own are free, and nothing is left to be freed.
Task<absl::Status> Forget(txn::Transaction& tx, const Table& catalog, uint32_t table_id) {
  FURROW_CO_ASSIGN_OR_RETURN(const StorageRecord record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kFreeing));
  for (const RegionId region : record.table.partition_regions) {
    if (!record.owns_regions || region == RegionId()) continue;
    const std::string key = FreeRegionKey(region);
    FURROW_CO_RETURN_IF_ERROR((co_await catalog.Insert(tx, key, "")).status());
  }
  co_return co_await EraseRecord(tx, catalog, table_id);
}

}  // namespace

Task<absl::Status> FreeStorage(txn::Worker& worker, const Table& catalog, uint32_t table_id) {
  StorageRecord record;
  const txn::CommitResult read =
      co_await worker.Run([&](txn::Transaction& tx) { return Current(tx, catalog, table_id, &record); });
  FURROW_CO_RETURN_IF_ERROR(read.status);
  // The primary index last: while it is there, rows can be found and freed.
  for (size_t i = record.table.indexes.size(); i-- > 0;) {
    for (uint32_t p = 0; p < record.table.indexes[i].partitions.size(); ++p) {
      const Part part{worker, catalog, record.table, i, p};
      FURROW_CO_RETURN_IF_ERROR(co_await FreePartition(part));
    }
  }
  const txn::CommitResult done =
      co_await worker.Run([&](txn::Transaction& tx) { return Forget(tx, catalog, table_id); });
  co_return done.status;
}

}  // namespace furrow::index
