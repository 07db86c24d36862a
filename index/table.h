// Table: rows under a primary key, with secondary indexes, built from transactions: every read and write goes
// through the Transaction that is passed in, so isolation, opacity and retries are the transaction's, and
// what is not found is not found at commit time either (no phantoms).
//
// Opened from the Catalog; immutable after that and shared by all workers of the process. Each call runs on
// the thread of its transaction; one call at a time per transaction. Keys and values passed in must live
// until the call has ended (for a Task: until it was awaited). Keys are byte strings in memcmp order.
//
// Errors of every call: Aborted and the like from the transaction, which dooms it: return them from the body,
// and Worker::Run() decides on a retry. InvalidArgument: key or value of a wrong size. FailedPrecondition:
// the table was dropped. DataLoss: an index of a table that is in the catalog names what is not there.
// NotFound and AlreadyExists doom nothing and carry no text, so that they cost no allocation.
#ifndef FURROW_INDEX_TABLE_H_
#define FURROW_INDEX_TABLE_H_

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/task.h"
#include "index/btree.h"
#include "index/descriptor.h"
#include "index/hash_index.h"
#include "index/inline_hash.h"
#include "index/row.h"
#include "index/spec.h"
#include "index/table_life.h"
#include "txn/transaction.h"

namespace furrow::index {

using RowResult = absl::StatusOr<Row>;

enum class Direction : uint8_t { kForward, kBackward };

// A range of keys: from `low` (included; empty: from the first) to `high`.
struct KeyRange {
  enum class End : uint8_t {
    kUnbounded,  // to the last key
    kExclusive,  // up to, not with, `high`
    kPrefix,     // up to and with every key that begins with `high`
  };
  std::string_view low{};
  std::string_view high{};
  End end = End::kUnbounded;

  static KeyRange All() { return {}; }
  static KeyRange Between(std::string_view low, std::string_view high) {
    return {low, high, End::kExclusive};
  }
  static KeyRange From(std::string_view low) { return {low, {}, End::kUnbounded}; }
  static KeyRange Prefix(std::string_view prefix) { return {prefix, prefix, End::kPrefix}; }
};

struct ScanSpec {
  static constexpr int kPrimary = -1;
  int index = kPrimary;  // or the number of a secondary index
  KeyRange range{};
  Direction direction = Direction::kForward;
  uint64_t limit = UINT64_MAX;
  // Only this partition (negative: all that the range touches, merged in key order).
  int partition = -1;
};

// Where an unordered scan has come to; {}: its beginning. Good for one table, as long as that is there.
struct ScanPosition {
  uint32_t partition = 0;
  uint32_t bucket = 0;
  bool done = false;  // there are no more rows
};

class Table {
 public:
  // Called with each row in order; false ends the scan.
  using RowCallback = absl::FunctionRef<bool(const Row&)>;

  // By the Catalog and tests. `directories[i]`: those of index i's partitions, none for a B-tree. `cache`
  // outlives the table. `catalog` is asked whether the table was dropped; null: this is the catalog's own.
  Table(TableDescriptor descriptor, std::vector<std::vector<HashDirectory>> directories, InnerCache& cache,
        std::shared_ptr<const Table> catalog = nullptr);

  const TableSpec& spec() const { return descriptor_.spec; }
  const TableDescriptor& descriptor() const { return descriptor_; }
  uint32_t id() const { return descriptor_.table_id; }
  // Number of a secondary index; -1: there is none of that name.
  int FindSecondary(std::string_view name) const;

  // --- placement ---
  uint32_t PartitionOf(std::string_view key) const { return PartitionOf(indexes_[0], key); }
  // A region of the locality group in which the partition lies: its mapping says which node is primary.
  RegionId PartitionRegion(uint32_t partition) const { return descriptor_.partition_regions[partition]; }

  // --- reads ---
  struct [[nodiscard]] GetAwaiter {
    const Table& table;
    txn::Transaction& tx;
    std::string_view key;
    int secondary = ScanSpec::kPrimary;
    RowResult result{Row{}};
    Task<RowResult> slow{};
    bool await_ready() { return table.TryGet(tx, secondary, key, &result); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
      slow = table.GetSlow(tx, secondary, key);
      return slow.operator co_await().await_suspend(h);
    }
    RowResult await_resume() {
      if (slow) return slow.operator co_await().await_resume();
      return std::move(result);
    }
  };
  // co_await table.Get(tx, key) -> RowResult. NotFound. No coroutine frame and no allocation when all is
  // local.
  GetAwaiter Get(txn::Transaction& tx, std::string_view key) const { return GetAwaiter{*this, tx, key}; }
  // The row with this key in a unique secondary index. NotFound.
  GetAwaiter GetBySecondary(txn::Transaction& tx, int secondary, std::string_view key) const {
    return GetAwaiter{*this, tx, key, secondary};
  }

  struct [[nodiscard]] GetManyAwaiter {
    const Table& table;
    txn::Transaction& tx;
    std::span<const std::string_view> keys;
    std::span<RowResult> rows;
    absl::Status result{};
    Task<absl::Status> slow{};
    bool await_ready() { return table.TryGetMany(tx, keys, rows, &result); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
      slow = table.GetManySlow(tx, keys, rows);
      return slow.operator co_await().await_suspend(h);
    }
    absl::Status await_resume() {
      if (slow) return slow.operator co_await().await_resume();
      return std::move(result);
    }
  };
  // rows[i] belongs to keys[i]: the row, or NotFound. Hashes all keys, then brings all buckets or leaves,
  // then all rows, so that misses and round trips overlap. The status is about the transaction.
  GetManyAwaiter GetMany(txn::Transaction& tx, std::span<const std::string_view> keys,
                         std::span<RowResult> rows) const {
    return GetManyAwaiter{*this, tx, keys, rows};
  }
  // Starts bringing what a later Get(key) touches first into the cache; a hint.
  void PrefetchIndex(txn::Transaction& tx, std::string_view key) const;

  // Rows of the range in key order, of the primary B-tree or of a secondary one, until the limit or until
  // `each` returns false. Of a hash table all rows, in no order; FailedPrecondition: a part of them was asked
  // for. `each` may write rows that it was shown; whether the scan sees rows inserted or deleted meanwhile is
  // not specified. Like all that is read, the rows take memory until the transaction ends: see
  // ScanUnordered(), and ScanSpec::limit, for tables that are large.
  Task<absl::Status> Scan(txn::Transaction& tx, ScanSpec spec, RowCallback each) const;
  // The same into `rows`, at most rows.size(); how many there were.
  // Some rows of a hash table, in no order: bucket after bucket from `from` on, until there were `rows` or
  // `each` returns false. The position behind the last bucket, for the next call: of this transaction, whose
  // snapshot all see then, or of another one, so that memory stays bounded. A row that stays in the table is
  // shown once. FailedPrecondition: it is no hash table.
  Task<absl::StatusOr<ScanPosition>> ScanUnordered(txn::Transaction& tx, ScanPosition from, uint64_t rows,
                                                   RowCallback each) const;
  Task<absl::StatusOr<size_t>> ScanInto(txn::Transaction& tx, ScanSpec spec, std::span<Row> rows) const;

  // --- writes: buffered in the transaction ---
  // AlreadyExists: the primary key, or the key of a unique secondary index, is taken.
  Task<RowResult> Insert(txn::Transaction& tx, std::string_view key, std::string_view value) const;
  // The value of a row, to be changed in place until commit; its length stays. The caller changes no byte
  // that is part of a secondary key. The cheapest write: it touches no index.
  absl::StatusOr<std::span<std::byte>> OpenForWrite(txn::Transaction& tx, const Row& row) const;
  // Replaces the value, of any length, and maintains the secondary indexes. The row that is returned replaces
  // `row`. AlreadyExists: a unique secondary key is taken; nothing has changed then.
  Task<RowResult> Update(txn::Transaction& tx, Row row, std::string_view value) const;
  // `row` was read in this transaction.
  Task<absl::Status> Delete(txn::Transaction& tx, Row row) const;

 private:
  // How a key's partition follows from it.
  enum class Spread : uint8_t { kSingle, kPrefix, kHash };
  struct Index {
    IndexKind kind;
    Spread spread;
    bool unique;
    uint32_t number;              // 0: primary
    std::vector<HashIndex> hash;  // by partition; one of the three is not empty
    std::vector<Btree> trees;
    std::vector<InlineHash> rows;  // a primary hash index that holds the rows
  };
  struct Probe;
  class Cursor;

  uint32_t PartitionOf(const Index& index, std::string_view key) const;
  const Index& IndexAt(int secondary) const;
  absl::Status CheckSizes(std::string_view key, std::string_view value) const;
  // The partition of a key where rows lie in the buckets; null: they are objects of their own.
  const InlineHash* InlineRowsOf(std::string_view key) const {
    const std::vector<InlineHash>& rows = indexes_[0].rows;
    return rows.empty() ? nullptr : &rows[PartitionOf(indexes_[0], key)];
  }
  Probe MakeProbe(const Index& index, std::string_view key) const;

  bool TryGet(txn::Transaction& tx, int secondary, std::string_view key, RowResult* result) const {
    return TryLookUp(tx, IndexAt(secondary), key, result);
  }
  Task<RowResult> GetSlow(txn::Transaction& tx, int secondary, std::string_view key) const {
    return LookUpSlow(tx, IndexAt(secondary), key);
  }
  bool TryLookUp(txn::Transaction& tx, const Index& index, std::string_view key, RowResult* result) const;
  Task<RowResult> LookUpSlow(txn::Transaction& tx, const Index& index, std::string_view key) const;
  bool TryRows(txn::Transaction& tx, const Index& index, std::string_view key, Probe* probe) const;
  bool TryGetMany(txn::Transaction& tx, std::span<const std::string_view> keys, std::span<RowResult> rows,
                  absl::Status* result) const;
  Task<absl::Status> GetManySlow(txn::Transaction& tx, std::span<const std::string_view> keys,
                                 std::span<RowResult> rows) const;

  Task<absl::Status> CheckUnique(txn::Transaction& tx, const Index& index, std::string_view key) const;
  Task<absl::Status> AddEntry(txn::Transaction& tx, const Index& index, std::string_view key,
                              RowPointer row) const;
  // `by` null: removes the entry.
  Task<absl::Status> ReplaceEntry(txn::Transaction& tx, const Index& index, std::string_view key, Address row,
                                  RowPointer by) const;
  Task<absl::Status> ReplaceTreeEntry(txn::Transaction& tx, const Btree& tree, std::string_view key,
                                      Address row, RowPointer by) const;
  Task<absl::Status> MoveSecondaries(txn::Transaction& tx, Row row, std::string_view value,
                                     RowPointer to) const;

  // ScanUnordered() up to partition `end`.
  Task<absl::StatusOr<ScanPosition>> ScanBuckets(txn::Transaction& tx, ScanPosition from, uint32_t end,
                                                 uint64_t wanted, RowCallback each) const;
  Task<absl::Status> ReadBucket(txn::Transaction& tx, ScanPosition at, std::vector<Row>* rows) const;
  Task<absl::Status> ScanHash(txn::Transaction& tx, const Index& index, ScanSpec scan,
                              RowCallback each) const;
  // The only partition that the range touches; -1: it may touch several.
  int PartitionOf(const Index& index, const ScanSpec& scan) const;
  Task<absl::Status> ScanOne(txn::Transaction& tx, const Btree& tree, ScanSpec scan, RowCallback each) const;
  Task<absl::Status> ScanMerged(txn::Transaction& tx, const Index& index, ScanSpec scan,
                                RowCallback each) const;

  const TableDescriptor descriptor_;
  const std::unique_ptr<const TableLife> life_;  // at one place, for the indexes
  std::vector<Index> indexes_;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_TABLE_H_
