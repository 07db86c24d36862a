// StorageRecord: what the catalog keeps of storage that belongs to no table that can be opened: a table that
// is being made, or one that was dropped and is being freed. It is written in the transactions that make and
// free the storage, so that no object that exists is missing from it, whoever ends in the middle. A region is
// not an object: one that the configuration manager has made, and whose number no transaction has entered
// since the maker failed or ended before, is named by the manager alone, and stays unused.
//
// Each of these transactions writes the whole record. A table's making and freeing costs the square of its
// partitions and of its chunks of buckets: 4,096 B-tree partitions write their record, of some 64 KB, 8,192
// times; a table of 2^20 buckets in one partition writes a record of 100 bytes 1,049 times.
//
//            CreateTable                     published
//   (none) ---------------> kMaking ----------------------> (none), the table is there
//                              | its maker failed or has gone
//            DropTable         v                      all freed
//   table -----------------> kFreeing -------------------------> (none)
#ifndef FURROW_INDEX_STORAGE_RECORD_H_
#define FURROW_INDEX_STORAGE_RECORD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/task.h"
#include "index/descriptor.h"
#include "index/table.h"
#include "txn/transaction.h"

namespace furrow::txn {
class Worker;
}

namespace furrow::index {

struct StorageRecord {
  enum class State : uint8_t { kMaking = 1, kFreeing = 2 };
  State state = State::kMaking;
  // Who makes it, or frees it. When that is no member any more, or 0, anybody may take it over and free it.
  NodeId maker{};
  Incarnation incarnation{};
  // Partitions whose root is null, and regions 0, do not exist (any more). While a hash partition is made or
  // freed, `buckets` counts those of the chunks that exist.
  TableDescriptor table{};
  // The regions are the table's own, not those of a placement group: they go to the free ones at last.
  bool owns_regions = false;
};

// Value of the catalog's row "d<table id>": u8 1 (format), u8 state, u8 owns_regions, u8 0, u32 maker, u64
// incarnation, little-endian, then the descriptor. DataLoss: it is none. FailedPrecondition: a newer format.
std::string Encode(const StorageRecord& record);
absl::StatusOr<StorageRecord> DecodeRecord(std::string_view bytes);
std::string RecordKey(uint32_t table_id);
inline constexpr std::string_view kRecordPrefix = "d";
// Rows "r<region>": groups of regions that dropped tables have left; a table without a placement group takes
// them before it asks for new ones.
std::string FreeRegionKey(RegionId region);
inline constexpr std::string_view kFreeRegionPrefix = "r";

// The record of a table in a transaction. FailedPrecondition: it is not in `state` (any more).
Task<absl::StatusOr<StorageRecord>> ReadRecord(txn::Transaction& tx, const Table& catalog, uint32_t table_id,
                                               StorageRecord::State state);
// Puts `record` in the place of what is there.
Task<absl::Status> WriteRecord(txn::Transaction& tx, const Table& catalog, const StorageRecord& record);
Task<absl::Status> EraseRecord(txn::Transaction& tx, const Table& catalog, uint32_t table_id);

// Frees what the record of a table in state kFreeing names, in many small transactions that each take what
// they free out of the record or out of reach, then the record. May be ended anywhere and begun again, also
// by several at once.
Task<absl::Status> FreeStorage(txn::Worker& worker, const Table& catalog, uint32_t table_id);

}  // namespace furrow::index

#endif  // FURROW_INDEX_STORAGE_RECORD_H_
