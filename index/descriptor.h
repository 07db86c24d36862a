// TableDescriptor: a table's spec and where its storage lies; the value of its row in the catalog.
#ifndef FURROW_INDEX_DESCRIPTOR_H_
#define FURROW_INDEX_DESCRIPTOR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "index/inline_bucket.h"
#include "index/row.h"
#include "index/spec.h"

namespace furrow::index {

// One partition of one index.
struct IndexPartition {
  Address root;  // B-tree: the root node, which never moves. Hash: the last chunk of the bucket directory
  uint32_t buckets = 0;  // hash only
  friend bool operator==(const IndexPartition&, const IndexPartition&) = default;
};

struct IndexDescriptor {
  uint32_t id = 0;  // unique in the cluster; what its nodes and buckets name
  std::vector<IndexPartition> partitions;
};

struct TableDescriptor {
  TableSpec spec;
  uint32_t table_id = 0;                    // what rows name
  std::vector<RegionId> partition_regions;  // first region of the locality group of each partition
  std::vector<IndexDescriptor> indexes;     // [0] the primary one, then spec.secondaries in their order
  // Slots of a bucket of the primary index that holds the rows itself; 0: rows are objects of their own.
  uint32_t inline_slots = 0;

  bool inline_rows() const { return inline_slots > 0; }
  InlineGeometry geometry() const {
    return {.slots = inline_slots,
            .key_room = InlineGeometry::Room(spec.max_key_bytes),
            .value_room = InlineGeometry::Room(spec.max_value_bytes)};
  }
  IndexKind kind(size_t index) const { return index == 0 ? spec.primary : spec.secondaries[index - 1].kind; }
  // Longest key of an index, with the primary key that a non-unique one appends.
  uint32_t max_key_bytes(size_t index) const;
};

// Keys of up to 64 bytes cost no allocation.
using KeyBuffer = absl::InlinedVector<char, 64>;
inline std::string_view View(const KeyBuffer& key) { return {key.data(), key.size()}; }

// The key of a row in a secondary index.
void DeriveKey(const SecondarySpec& secondary, std::string_view key, std::string_view value, KeyBuffer* out);
// Whether an index's entries lie in the partition of their rows.
bool IsColocated(const TableSpec& spec, const SecondarySpec& secondary);
// How many partitions an index has.
uint32_t PartitionCount(const TableSpec& spec, size_t index);
// The partition of a key of an index.
uint32_t PartitionOf(const TableSpec& spec, size_t index, std::string_view key);

// Format 2: little-endian, strings with a 16-bit length in front; see descriptor.cc. Format 1, without inline
// rows, is read too. Decode: DataLoss for bytes that are no descriptor, FailedPrecondition for a newer
// format.
std::string Encode(const TableDescriptor& table);
absl::StatusOr<TableDescriptor> Decode(std::string_view bytes);

// Tells whether a row is the one with `key` in an index of the table (0: the primary one).
struct RowMatcher {
  const TableDescriptor* table;
  size_t index;
  std::string_view key;
  bool operator()(const Row& row) const;
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_DESCRIPTOR_H_
