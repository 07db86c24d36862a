// TableLife: tells a table that was dropped from one that is broken, by the catalog, when an index leads to
// what is not there.
#ifndef FURROW_INDEX_TABLE_LIFE_H_
#define FURROW_INDEX_TABLE_LIFE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/task.h"
#include "txn/transaction.h"

namespace furrow::index {

class Table;

// Immutable; shared by all workers.
class TableLife {
 public:
  TableLife(uint32_t table_id, std::string name, std::shared_ptr<const Table> catalog)
      : table_id_(table_id), name_(std::move(name)), catalog_(std::move(catalog)) {}

 private:
  friend Task<absl::Status> WhyMissing(const TableLife* life, txn::Transaction& tx, uint32_t index,
                                       std::string what);
  uint32_t table_id_;
  std::string name_;
  std::shared_ptr<const Table> catalog_;  // null: the table is the catalog's own, which nobody drops
};

// The status for `what`, said of an object that `tx` does not find where index `index` must have it.
// FailedPrecondition: the table was dropped. Aborted, and `tx` is doomed: the table was made after its
// snapshot. DataLoss: the table is in the catalog, or `life` is null. Otherwise: the catalog could not be
// asked, and why. On the worker of `tx`, in its snapshot and in a transaction of its own.
Task<absl::Status> WhyMissing(const TableLife* life, txn::Transaction& tx, uint32_t index, std::string what);

}  // namespace furrow::index

#endif  // FURROW_INDEX_TABLE_LIFE_H_
