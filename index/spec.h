// TableSpec: what a table is, as its creator says it; kept in the catalog.
#ifndef FURROW_INDEX_SPEC_H_
#define FURROW_INDEX_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace furrow::index {

enum class IndexKind : uint8_t {
  kHash,   // point lookups; one bucket read in the common case
  kBtree,  // point lookups and ordered scans in both directions
};

// Names of tables that begin so are Furrow's own: Catalog::CreateTable() refuses them.
inline constexpr std::string_view kReservedPrefix = "furrow.";

// Bytes of a secondary key: `length` bytes from `offset` of the primary key or of the value. What lies beyond
// the end of a shorter key or value counts as zero bytes.
struct KeyPart {
  enum class Source : uint8_t { kKey, kValue };
  Source source = Source::kKey;
  uint16_t offset = 0;
  uint16_t length = 0;
};

// An index whose keys are derived from rows: its parts, copied one after another; they sort in memcmp order.
// Its partitions: those of the table when the parts begin with the table's partition prefix (a row and its
// entry then share a partition); otherwise by the key's hash for a hash index, and a single one, in partition
// 0's place, for a B-tree.
struct SecondarySpec {
  std::string name{};
  IndexKind kind = IndexKind::kBtree;
  // Not unique: the primary key is appended to each entry's key. A hash index is always unique.
  bool unique = false;
  std::vector<KeyPart> parts{};
};

// Where rows lie.
enum class RowLayout : uint8_t {
  kAuto,      // kInline where it is possible, otherwise kSeparate
  kSeparate,  // each row is an object of its own, to which index entries point: a lookup is two READs
  // Rows lie in the buckets of the hash index: a lookup is one READ. Writers of rows that share a bucket
  // conflict, so hot rows want kSeparate. Needs primary = kHash, no secondary indexes, and rows that are
  // small: max_key_bytes and max_value_bytes, each rounded up to 8, of at most 64 together.
  kInline,
};

struct TableSpec {
  static constexpr uint32_t kAnyValueBytes = UINT32_MAX;  // as many as a row holds: 1 MB with its key

  std::string name{};  // 1 to 255 bytes; not beginning with kReservedPrefix
  IndexKind primary = IndexKind::kBtree;
  uint16_t max_key_bytes = 32;  // 1 to 1,024
  uint32_t max_value_bytes = kAnyValueBytes;
  RowLayout row_layout = RowLayout::kAuto;
  // Sizes the buckets of hash indexes; a table may hold more rows, with longer chains.
  uint64_t expected_rows_per_partition = 10'000;

  // The partition of a row: the first `prefix_bytes` of its key, as a big-endian integer (the last 8 of them
  // when there are more), modulo `partitions`; with prefix_bytes 0 by the hash of the whole key.
  uint32_t partitions = 1;  // 1 to 4,096
  uint16_t prefix_bytes = 0;
  // Tables of one group have the same number of partitions, and partition i of each of them lies in the same
  // locality group of regions: same primary, same backups. Empty: a group of the table's own.
  std::string placement_group{};

  std::vector<SecondarySpec> secondaries{};  // at most 16
};

// InvalidArgument, naming the field, when a table cannot be made like this.
absl::Status Validate(const TableSpec& spec);
// How a table that is there, `have`, is not what `wanted` says, as in "max_key_bytes is 8, not 16"; empty:
// it is. kAuto is content with either layout; expected_rows_per_partition, which only sizes, may differ.
std::string Difference(const TableSpec& have, const TableSpec& wanted);
// What row_layout comes to: kSeparate or kInline. Of a spec that is valid.
RowLayout ResolvedLayout(const TableSpec& spec);

}  // namespace furrow::index

#endif  // FURROW_INDEX_SPEC_H_
