// HashIndex: one partition of a hash index: FaRM's chained associative hash table (NSDI'14 section 5.3) on
// versioned objects. Each bucket is one 128-byte object with 11 entries; what does not fit goes to overflow
// buckets, chained from the home bucket. A lookup reads the home bucket and the row: two reads that the
// directory and the entry size exactly.
//
// Hopscotch displacement into the neighbour is left out: it pays where home and neighbour come with one READ.
// Here they are two objects, so that a miss would read two buckets, and validate both, in place of one; with
// 11 entries per bucket and 6 keys on average 3 of 100 buckets overflow.
//
// Payload of a bucket (little-endian):
//   off  size  field
//   0    4     index id
//   4    4     bucket number (overflow buckets: that of their home)
//   8    8     address of the next bucket of the chain; 0: this is the last
//   16   88    11 entries: RowPointer with 9 bits of the key's hash as tag; 0: free
//
// Phantoms: whoever finds nothing has read the whole chain, and whoever inserts writes a bucket of it.
// The buckets of the array are made with the table, in a directory of chunks, and never move or go away, so
// that the directory is read once, when the table is opened.
//
// Payload of a directory chunk:
//   off  size  field
//   0    4     index id
//   4    4     number of the first bucket
//   8    8     address of the chunk before; 0: this is the first
//   16   8*n   addresses of buckets
#ifndef FURROW_INDEX_HASH_INDEX_H_
#define FURROW_INDEX_HASH_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checksum.h"
#include "base/ids.h"
#include "base/task.h"
#include "index/descriptor.h"
#include "index/row.h"
#include "index/table_life.h"
#include "txn/transaction.h"

namespace furrow::index {

inline constexpr uint32_t kBucketEntries = 11;
inline constexpr uint32_t kMeanBucketEntries = 6;
inline constexpr uint32_t kChunkBuckets = 1000;
inline constexpr uint32_t kChunkHeaderBytes = 16;

struct Bucket {
  uint32_t index;
  uint32_t number;
  uint64_t next;
  uint64_t entries[kBucketEntries];
};
static_assert(sizeof(Bucket) == 104 && offsetof(Bucket, next) == 8 && offsetof(Bucket, entries) == 16);
static_assert(storage::SpanBytes(sizeof(Bucket)) == 128);
static_assert(offsetof(Bucket, index) == 0 && offsetof(Bucket, number) == 4);

// As WhyMissing(), for what is not at a bucket's address.
Task<absl::Status> WhyNoBucket(const TableLife* life, txn::Transaction& tx, uint32_t index, uint32_t number,
                               Address address);

// The addresses of a partition's buckets, 4 bytes each. Immutable once filled.
class HashDirectory {
 public:
  // In the order of bucket numbers. ResourceExhausted: buckets in more than 64 regions.
  absl::Status Add(Address bucket);
  uint32_t size() const { return static_cast<uint32_t>(buckets_.size()); }
  // The home bucket of a hash.
  uint32_t NumberOf(uint64_t hash) const { return static_cast<uint32_t>((hash >> 32) * size() >> 32); }
  Address at(uint32_t number) const {
    const uint32_t place = buckets_[number];
    return Address(regions_[place >> 26], (place & ((1u << 26) - 1)) * storage::kLineBytes);
  }

 private:
  std::vector<uint32_t> buckets_;  // bits 26..31: which of regions_, 0..25: offset / 64
  std::vector<RegionId> regions_;
};

// One chunk of a directory, as a transaction reads it.
struct HashChunk {
  uint32_t first = 0;  // bucket
  uint32_t count = 0;  // 0: it has gone
  Address before{};
  std::vector<Address> buckets{};  // null: not made yet
};

class HashIndex {
 public:
  // Puts what exists of a partition into its record, in the transaction that makes it.
  using Recorder = std::function<Task<absl::Status>(txn::Transaction&, IndexPartition)>;

  // `life` outlives the index.
  HashIndex(uint32_t id, RegionId locality, HashDirectory directory, const TableLife* life)
      : id_(id), locality_(locality), directory_(std::move(directory)), life_(life) {}

  static uint64_t Hash(std::string_view key) { return Hash64(key, 0x6675'7272'6f77'6831); }
  static uint32_t Tag(uint64_t hash) {
    return static_cast<uint32_t>(hash) & ((1u << RowPointer::kTagBits) - 1);
  }
  static uint32_t BucketsFor(uint64_t rows);
  uint32_t BucketNumber(uint64_t hash) const { return directory_.NumberOf(hash); }
  Address Home(uint64_t hash) const { return directory_.at(BucketNumber(hash)); }

  // False: not everything is at hand; ask FindSlow(). NotFound in `result` has no text.
  bool TryFind(txn::Transaction& tx, uint64_t hash, const RowMatcher& match,
               absl::StatusOr<Row>* result) const;
  Task<absl::StatusOr<Row>> FindSlow(txn::Transaction& tx, uint64_t hash, RowMatcher match) const;
  // The entries of the home bucket with the hash's tag, for prefetching. How many; -1: the bucket is not at
  // hand.
  int TryCandidates(txn::Transaction& tx, uint64_t hash, RowPointer* out, int max) const;

  uint32_t buckets() const { return directory_.size(); }
  Address BucketAt(uint32_t number) const { return directory_.at(number); }
  // Adds the entries of a bucket and its chain.
  Task<absl::Status> ReadChain(txn::Transaction& tx, uint32_t number, std::vector<RowPointer>* rows) const;

  // AlreadyExists, without text: a row matches.
  Task<absl::Status> Insert(txn::Transaction& tx, uint64_t hash, RowMatcher match, RowPointer row) const;
  // Of an entry that this transaction has seen. An overflow bucket that becomes empty is freed.
  Task<absl::Status> Remove(txn::Transaction& tx, uint64_t hash, Address row) const;
  Task<absl::Status> Replace(txn::Transaction& tx, uint64_t hash, Address row, RowPointer by) const;

  // --- life of the storage; on a worker, in transactions of their own ---
  // Makes `buckets` empty buckets of `bucket_bytes` payload, which begin with index id and number and are
  // zero otherwise, and their directory, near `locality`: each chunk first, and its buckets into it, so that
  // whatever exists can be reached from what `record` was told. For buckets of rows (inline_hash.h) too.
  static Task<absl::StatusOr<IndexPartition>> Create(txn::Worker& worker, uint32_t id, RegionId locality,
                                                     uint32_t buckets, uint32_t bucket_bytes,
                                                     const Recorder& record);
  // The last chunk of a partition with so many buckets.
  static Task<absl::Status> ReadChunk(txn::Transaction& tx, uint32_t id, IndexPartition partition,
                                      HashChunk* out);
  static Task<absl::StatusOr<HashDirectory>> ReadDirectory(txn::Worker& worker, uint32_t id,
                                                           IndexPartition partition);

 private:
  // Null: it is not there, and NoBucket() says why.
  absl::StatusOr<const Bucket*> Check(const txn::ReadResult& read, uint64_t hash) const {
    return CheckNumber(read, BucketNumber(hash));
  }
  absl::StatusOr<const Bucket*> CheckNumber(const txn::ReadResult& read, uint32_t number) const;
  Task<absl::Status> NoBucket(txn::Transaction& tx, uint64_t hash, Address address) const {
    return WhyNoBucket(life_, tx, id_, BucketNumber(hash), address);
  }

  uint32_t id_;
  RegionId locality_;
  HashDirectory directory_;
  const TableLife* life_;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_HASH_INDEX_H_
