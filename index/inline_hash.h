// InlineHash: one partition of a hash index that holds the rows themselves: a lookup is one READ of one
// object, the key's home bucket. What does not fit there goes to overflow buckets, chained from it.
//
// For small rows under a primary key alone: a row has no address of its own that a secondary index could
// name. Row::address is that of its bucket; the key tells which row of it is meant.
//
// Conflicts: a bucket is one object, so that transactions which write rows of one bucket conflict, and a
// writer of one conflicts with readers of the others. Phantoms: whoever finds nothing has read the whole
// chain, and whoever inserts writes a bucket of it.
//
// A row stays where it was found: Row shows a copy that never changes, of the bucket as it was read, or of
// what the transaction had made of it at the time of the call.
#ifndef FURROW_INDEX_INLINE_HASH_H_
#define FURROW_INDEX_INLINE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/task.h"
#include "index/hash_index.h"
#include "index/inline_bucket.h"
#include "index/row.h"
#include "txn/transaction.h"

namespace furrow::index {

// Immutable. Hashes are HashIndex::Hash() of the key; keys and values of writes are within the table's
// maxima. Statuses as in Table.
class InlineHash {
 public:
  // `life` outlives the index.
  InlineHash(uint32_t id, RegionId locality, InlineGeometry geometry, HashDirectory directory,
             const TableLife* life)
      : id_(id), locality_(locality), geometry_(geometry), directory_(std::move(directory)), life_(life) {}

  // What a lookup reads of a bucket: all of it.
  uint32_t read_bytes() const { return geometry_.payload_bytes(); }
  Address Home(uint64_t hash) const { return directory_.at(directory_.NumberOf(hash)); }

  // False: not everything is at hand; ask FindSlow().
  bool TryFind(txn::Transaction& tx, uint64_t hash, std::string_view key, absl::StatusOr<Row>* result) const;
  Task<absl::StatusOr<Row>> FindSlow(txn::Transaction& tx, uint64_t hash, std::string_view key) const;

  uint32_t buckets() const { return directory_.size(); }
  Address BucketAt(uint32_t number) const { return directory_.at(number); }
  // Adds the rows of a bucket and its chain.
  Task<absl::Status> ReadChain(txn::Transaction& tx, uint32_t number, std::vector<Row>* rows) const;

  // AlreadyExists, without text: the key is taken.
  Task<absl::StatusOr<Row>> Insert(txn::Transaction& tx, uint64_t hash, std::string_view key,
                                   std::string_view value) const;
  // Of a row that this transaction has read or inserted, and not deleted (FailedPrecondition).
  absl::StatusOr<std::span<std::byte>> OpenForWrite(txn::Transaction& tx, const Row& row) const;
  absl::StatusOr<Row> Update(txn::Transaction& tx, const Row& row, std::string_view value) const;
  // An overflow bucket that becomes empty is freed.
  Task<absl::Status> Remove(txn::Transaction& tx, uint64_t hash, Row row) const;

 private:
  // A slot of a bucket that is open for writing.
  struct Place {
    std::span<std::byte> payload;
    uint32_t slot = 0;
  };
  // The bucket's payload; null: it is not there, and NoBucket() says why.
  absl::StatusOr<const std::byte*> Check(const txn::ReadResult& read, uint64_t hash) const {
    return CheckNumber(read, directory_.NumberOf(hash));
  }
  absl::StatusOr<const std::byte*> CheckNumber(const txn::ReadResult& read, uint32_t number) const;
  Task<absl::Status> NoBucket(txn::Transaction& tx, uint64_t hash, Address at) const {
    return WhyNoBucket(life_, tx, id_, directory_.NumberOf(hash), at);
  }
  absl::StatusOr<Row> RowAt(txn::Transaction& tx, const InlineBucket& bucket, uint32_t slot,
                            Address at) const;
  absl::StatusOr<Place> Open(txn::Transaction& tx, const Row& row) const;
  absl::StatusOr<Row> Put(txn::Transaction& tx, Address at, std::span<std::byte> payload, uint32_t slot,
                          std::string_view key, std::string_view value) const;

  uint32_t id_;
  RegionId locality_;
  InlineGeometry geometry_;
  HashDirectory directory_;
  const TableLife* life_;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_INLINE_HASH_H_
