#include "index/storage_record.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow::index {
namespace {

constexpr uint8_t kFormat = 1;

struct Header {
  uint8_t format;
  uint8_t state;
  uint8_t owns_regions;
  uint8_t zero;
  uint32_t maker;
  uint64_t incarnation;
};
static_assert(sizeof(Header) == 16 && offsetof(Header, incarnation) == 8);

// So that keys sort by number.
std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

}  // namespace

std::string RecordKey(uint32_t table_id) { return std::string(kRecordPrefix) + BigEndian(table_id); }
std::string FreeRegionKey(RegionId region) {
  return std::string(kFreeRegionPrefix) + BigEndian(region.value());
}

std::string Encode(const StorageRecord& record) {
  const Header header{kFormat,
                      static_cast<uint8_t>(record.state),
                      record.owns_regions,
                      0,
                      record.maker.value(),
                      record.incarnation.value()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + Encode(record.table);
}

absl::StatusOr<StorageRecord> DecodeRecord(std::string_view bytes) {
  Header header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("catalog: a record of storage has format ",
                                                      int{header.format}, "; this binary reads up to ",
                                                      int{kFormat}, ": upgrade it"));
  }
  if (header.format == 0 || header.state < 1 || header.state > 2) {
    return absl::DataLossError("catalog: a record of storage is none");
  }
  StorageRecord record;
  record.state = static_cast<StorageRecord::State>(header.state);
  record.owns_regions = header.owns_regions != 0;
  record.maker = NodeId(header.maker);
  record.incarnation = Incarnation(header.incarnation);
  FURROW_ASSIGN_OR_RETURN(record.table, Decode(bytes.substr(sizeof(header))));
  return record;
}

Task<absl::StatusOr<StorageRecord>> ReadRecord(txn::Transaction& tx, const Table& catalog, uint32_t table_id,
                                               StorageRecord::State state) {
  const std::string key = RecordKey(table_id);
  const RowResult row = co_await catalog.Get(tx, key);
  if (!row.ok() && row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
  if (row.ok()) {
    FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record, DecodeRecord(row->value));
    if (record.state == state) co_return record;
  }
  co_return absl::FailedPreconditionError(absl::StrCat(
      "the storage of table ", table_id,
      state == StorageRecord::State::kMaking ? " was given up by others while it was made" : " is freed"));
}

Task<absl::Status> WriteRecord(txn::Transaction& tx, const Table& catalog, const StorageRecord& record) {
  const std::string key = RecordKey(record.table.table_id);
  const std::string value = Encode(record);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.ok()) co_return (co_await catalog.Update(tx, *row, value)).status();
  if (row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
  co_return (co_await catalog.Insert(tx, key, value)).status();
}

Task<absl::Status> EraseRecord(txn::Transaction& tx, const Table& catalog, uint32_t table_id) {
  const std::string key = RecordKey(table_id);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.ok()) co_return co_await catalog.Delete(tx, *row);
  co_return row.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus() : row.status();
}

}  // namespace furrow::index
