// Changes of rows and the upkeep of their index entries.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/row_access.h"
#include "index/table.h"
#include "storage/size_class.h"

namespace furrow::index {
namespace {

Row RowIn(Address address, std::span<const std::byte> payload, uint32_t table) {
  Row row;
  FURROW_CHECK(ParseRow(payload, table, address, &row));
  return row;
}

}  // namespace

Task<absl::Status> Table::CheckUnique(txn::Transaction& tx, const Index& index, std::string_view key) const {
  RowResult found{Row{}};
  if (!TryLookUp(tx, index, key, &found)) found = co_await LookUpSlow(tx, index, key);
  if (found.ok()) co_return AlreadyExists();
  co_return found.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus() : found.status();
}

Task<absl::Status> Table::AddEntry(txn::Transaction& tx, const Index& index, std::string_view key,
                                   RowPointer row) const {
  const uint32_t partition = PartitionOf(index, key);
  if (index.kind == IndexKind::kBtree) return index.trees[partition].Insert(tx, key, row);
  const uint64_t hash = HashIndex::Hash(key);
  return index.hash[partition].Insert(tx, hash, RowMatcher{&descriptor_, index.number, key},
                                      RowPointer(row.address(), row.size_class(), HashIndex::Tag(hash)));
}

Task<absl::Status> Table::ReplaceEntry(txn::Transaction& tx, const Index& index, std::string_view key,
                                       Address row, RowPointer by) const {
  const uint32_t partition = PartitionOf(index, key);
  if (index.kind == IndexKind::kHash) {
    const uint64_t hash = HashIndex::Hash(key);
    if (by.is_null()) return index.hash[partition].Remove(tx, hash, row);
    return index.hash[partition].Replace(tx, hash, row,
                                         RowPointer(by.address(), by.size_class(), HashIndex::Tag(hash)));
  }
  return ReplaceTreeEntry(tx, index.trees[partition], key, row, by);
}

Task<absl::Status> Table::ReplaceTreeEntry(txn::Transaction& tx, const Btree& tree, std::string_view key,
                                           Address row, RowPointer by) const {
  const absl::Status status =
      by.is_null() ? co_await tree.Remove(tx, key) : co_await tree.Replace(tx, key, by);
  if (status.code() != absl::StatusCode::kNotFound) co_return status;
  co_return absl::DataLossError(absl::StrCat("table \"", spec().name,
                                             "\": an index has no entry for the row at ", ToString(row),
                                             ": run furrow doctor"));
}

Task<RowResult> Table::Insert(txn::Transaction& tx, std::string_view key, std::string_view value) const {
  FURROW_CO_RETURN_IF_ERROR(CheckSizes(key, value));
  if (const InlineHash* rows = InlineRowsOf(key)) {
    co_return co_await rows->Insert(tx, HashIndex::Hash(key), key, value);
  }
  for (size_t i = 1; i < indexes_.size(); ++i) {
    if (!indexes_[i].unique) continue;
    KeyBuffer derived;
    DeriveKey(spec().secondaries[i - 1], key, value, &derived);
    FURROW_CO_RETURN_IF_ERROR(co_await CheckUnique(tx, indexes_[i], View(derived)));
  }
  const auto bytes = static_cast<uint32_t>(RowBytes(key.size(), value.size()));
  const RegionId locality = PartitionRegion(PartitionOf(indexes_[0], key));
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation made, co_await tx.Alloc(locality, bytes));
  BuildRow(made.payload, id(), key, value);
  const RowPointer pointer(made.address, storage::ClassForPayload(bytes), 0);
  const absl::Status added = co_await AddEntry(tx, indexes_[0], key, pointer);
  if (!added.ok()) {
    if (added.code() == absl::StatusCode::kAlreadyExists) FURROW_CO_RETURN_IF_ERROR(tx.Free(made.address));
    co_return added;
  }
  for (size_t i = 1; i < indexes_.size(); ++i) {
    KeyBuffer derived;
    DeriveKey(spec().secondaries[i - 1], key, value, &derived);
    FURROW_CO_RETURN_IF_ERROR(co_await AddEntry(tx, indexes_[i], View(derived), pointer));
  }
  co_return RowIn(made.address, made.payload, id());
}

absl::StatusOr<std::span<std::byte>> Table::OpenForWrite(txn::Transaction& tx, const Row& row) const {
  if (const InlineHash* rows = InlineRowsOf(row.key)) return rows->OpenForWrite(tx, row);
  FURROW_ASSIGN_OR_RETURN(const std::span<std::byte> payload,
                          tx.OpenForWrite(row.address, row.object_bytes()));
  return payload.subspan(RowValueOffset(row.key.size()), row.value.size());
}

// Brings the secondary entries of `row` from its value to `value`, and from its place to `to` (the same: it
// stays).
Task<absl::Status> Table::MoveSecondaries(txn::Transaction& tx, Row row, std::string_view value,
                                          RowPointer to) const {
  for (size_t i = 1; i < indexes_.size(); ++i) {
    KeyBuffer before;
    KeyBuffer after;
    DeriveKey(spec().secondaries[i - 1], row.key, row.value, &before);
    DeriveKey(spec().secondaries[i - 1], row.key, value, &after);
    if (before != after) {
      FURROW_CO_RETURN_IF_ERROR(
          co_await ReplaceEntry(tx, indexes_[i], View(before), row.address, RowPointer()));
      FURROW_CO_RETURN_IF_ERROR(co_await AddEntry(tx, indexes_[i], View(after), to));
    } else if (to.address() != row.address) {
      FURROW_CO_RETURN_IF_ERROR(co_await ReplaceEntry(tx, indexes_[i], View(before), row.address, to));
    }
  }
  co_return absl::OkStatus();
}

Task<RowResult> Table::Update(txn::Transaction& tx, Row row, std::string_view value) const {
  FURROW_CO_RETURN_IF_ERROR(CheckSizes(row.key, value));
  if (const InlineHash* rows = InlineRowsOf(row.key)) co_return rows->Update(tx, row, value);
  const txn::Access* access = tx.FindAccess(row.address);
  if (access == nullptr || !access->found) {
    co_return absl::FailedPreconditionError("a row must be read by the transaction that updates it");
  }
  for (size_t i = 1; i < indexes_.size(); ++i) {
    if (!indexes_[i].unique) continue;
    KeyBuffer before;
    KeyBuffer after;
    DeriveKey(spec().secondaries[i - 1], row.key, row.value, &before);
    DeriveKey(spec().secondaries[i - 1], row.key, value, &after);
    if (before != after) FURROW_CO_RETURN_IF_ERROR(co_await CheckUnique(tx, indexes_[i], View(after)));
  }
  const auto bytes = static_cast<uint32_t>(RowBytes(row.key.size(), value.size()));
  // The room that the row has: its slot's, or what this transaction has put there before.
  const uint32_t room = access->write != nullptr ? access->write_bytes : access->read_bytes;
  if (bytes <= room) {
    // Rows are read with the whole capacity of their slot, and allocated by their size: either gives the
    // slot's class.
    const uint32_t sized = access->read_bytes > 0 ? access->read_bytes : access->write_bytes;
    const RowPointer same(row.address, storage::ClassForPayload(sized), 0);
    FURROW_CO_RETURN_IF_ERROR(co_await MoveSecondaries(tx, row, value, same));
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(row.address, bytes));
    RewriteRow(payload, value);
    co_return RowIn(row.address, payload, id());
  }
  const RegionId locality = PartitionRegion(PartitionOf(indexes_[0], row.key));
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation made, co_await tx.Alloc(locality, bytes));
  BuildRow(made.payload, id(), row.key, value);
  const RowPointer moved(made.address, storage::ClassForPayload(bytes), 0);
  FURROW_CO_RETURN_IF_ERROR(co_await MoveSecondaries(tx, row, value, moved));
  FURROW_CO_RETURN_IF_ERROR(co_await ReplaceEntry(tx, indexes_[0], row.key, row.address, moved));
  FURROW_CO_RETURN_IF_ERROR(tx.Free(row.address));
  co_return RowIn(made.address, made.payload, id());
}

Task<absl::Status> Table::Delete(txn::Transaction& tx, Row row) const {
  if (const InlineHash* rows = InlineRowsOf(row.key)) {
    co_return co_await rows->Remove(tx, HashIndex::Hash(row.key), row);
  }
  FURROW_CO_RETURN_IF_ERROR(tx.Free(row.address));
  for (size_t i = 1; i < indexes_.size(); ++i) {
    KeyBuffer derived;
    DeriveKey(spec().secondaries[i - 1], row.key, row.value, &derived);
    FURROW_CO_RETURN_IF_ERROR(
        co_await ReplaceEntry(tx, indexes_[i], View(derived), row.address, RowPointer()));
  }
  co_return co_await ReplaceEntry(tx, indexes_[0], row.key, row.address, RowPointer());
}

}  // namespace furrow::index
