// Reading rows by pointer.
#ifndef FURROW_INDEX_ROW_ACCESS_H_
#define FURROW_INDEX_ROW_ACCESS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/task.h"
#include "index/row.h"
#include "txn/transaction.h"

namespace furrow::index {

// A status of a code alone: costs no allocation.
inline absl::Status NotFound() { return absl::Status(absl::StatusCode::kNotFound, ""); }
inline absl::Status AlreadyExists() { return absl::Status(absl::StatusCode::kAlreadyExists, ""); }

// Whether a read has found no object of the size that was asked for: InvalidArgument says that the block was
// cut anew, into slots of another size.
inline bool IsMissing(const absl::Status& read) {
  return read.code() == absl::StatusCode::kNotFound || read.code() == absl::StatusCode::kInvalidArgument;
}

// What to ask for: the whole slot, or as much as this transaction itself has put there.
inline uint32_t RowReadBytes(txn::Transaction& tx, RowPointer pointer) {
  const uint32_t bytes = pointer.read_bytes();
  if (!tx.has_writes()) return bytes;
  const txn::Access* access = tx.FindAccess(pointer.address());
  return access != nullptr && access->write != nullptr ? std::min(bytes, access->write_bytes) : bytes;
}

// The row that a read has brought; an index entry of the same snapshot led to it, so that something else is
// DataLoss.
absl::StatusOr<Row> RowFrom(const txn::ReadResult& read, uint32_t table, RowPointer pointer);

// False: it is not at hand.
inline bool TryReadRow(txn::Transaction& tx, uint32_t table, RowPointer pointer,
                       absl::StatusOr<Row>* result) {
  auto read = tx.Read(pointer.address(), RowReadBytes(tx, pointer));
  if (!read.await_ready()) return false;
  *result = RowFrom(read.await_resume(), table, pointer);
  return true;
}

// Rows that are read together.
inline constexpr int kRowBatch = 16;
// Reads at most kRowBatch rows side by side; their results are in the transaction then.
Task<absl::Status> Bring(txn::Transaction& tx, const RowPointer* rows, int count);

// Lets the others of the worker run, in the middle of a long scan that never has to wait. DeadlineExceeded,
// and `tx` is doomed: its time is over.
Task<absl::Status> NextTurn(txn::Transaction& tx);

}  // namespace furrow::index

#endif  // FURROW_INDEX_ROW_ACCESS_H_
