#include "index/table_life.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "index/catalog_root.h"
#include "index/table.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

Task<absl::Status> IsPublished(txn::Transaction& tx, const Table& catalog, const std::string& name,
                               uint32_t table_id, bool* published) {
  *published = false;
  const std::string key = TableKey(name);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.status().code() == absl::StatusCode::kNotFound) co_return absl::OkStatus();
  if (!row.ok()) co_return row.status();
  FURROW_CO_ASSIGN_OR_RETURN(const TableDescriptor table, Decode(row->value));
  *published = table.table_id == table_id;
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> WhyMissing(const TableLife* life, txn::Transaction& tx, uint32_t index, std::string what) {
  if (life != nullptr && life->catalog_ != nullptr) {
    // The newest state first: in a snapshot from before a drop the table is there.
    bool now = true;
    const txn::CommitResult read = co_await tx.worker().Run(
        [&](txn::Transaction& newest) {
          return IsPublished(newest, *life->catalog_, life->name_, life->table_id_, &now);
        },
        {.transaction = {.read_only = true}});
    FURROW_CO_RETURN_IF_ERROR(read.status);
    if (!now) {
      co_return absl::FailedPreconditionError(absl::StrCat(
          "table \"", life->name_, "\" was dropped: open it again, if there is a new one of its name"));
    }
    bool then = true;
    FURROW_CO_RETURN_IF_ERROR(co_await IsPublished(tx, *life->catalog_, life->name_, life->table_id_, &then));
    if (!then) {
      tx.Doom({.reason = txn::AbortReason::kSnapshotTooOld, .object = life->name_});
      co_return txn::ToStatus(tx.conflict());
    }
  }
  co_return absl::DataLossError(absl::StrCat("index ", index, ": ", what, ": run furrow doctor"));
}

}  // namespace furrow::index
