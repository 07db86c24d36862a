#include "index/row_access.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "txn/worker.h"

namespace furrow::index {

absl::StatusOr<Row> RowFrom(const txn::ReadResult& read, uint32_t table, RowPointer pointer) {
  if (read.ok()) [[likely]] {
    Row row;
    if (ParseRow(*read, table, pointer.address(), &row)) [[likely]] {
      return row;
    }
  } else if (read.status().code() != absl::StatusCode::kNotFound) {
    return read.status();
  }
  return absl::DataLossError(absl::StrCat("an index of table ", table, " names a row at ",
                                          ToString(pointer.address()),
                                          " where there is none of that table: run furrow doctor"));
}

Task<absl::Status> Bring(txn::Transaction& tx, const RowPointer* rows, int count) {
  txn::ReadSpec specs[kRowBatch];
  txn::ReadResult results[kRowBatch];
  for (int i = 0; i < count; ++i) specs[i] = {rows[i].address(), RowReadBytes(tx, rows[i])};
  const auto size = static_cast<size_t>(count);
  co_return co_await tx.ReadMany(std::span(specs, size), std::span(results, size));
}

Task<absl::Status> NextTurn(txn::Transaction& tx) {
  co_await tx.worker().loop().Yield();
  if (tx.worker().loop().Now() <= tx.deadline()) co_return absl::OkStatus();
  tx.Doom({.reason = txn::AbortReason::kDeadline});
  co_return txn::ToStatus(tx.conflict());
}

}  // namespace furrow::index
