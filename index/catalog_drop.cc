// Dropping tables, and freeing what was left over.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/catalog.h"
#include "index/catalog_root.h"
#include "index/storage_record.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

// Takes the table out of the catalog and its storage into a record.
Task<absl::Status> Unpublish(txn::Transaction& tx, const Table& catalog, const std::string& name,
                             uint32_t* table_id) {
  const std::string key = TableKey(name);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.status().code() == absl::StatusCode::kNotFound) {
    co_return absl::NotFoundError(absl::StrCat("there is no table \"", name, "\""));
  }
  if (!row.ok()) co_return row.status();
  StorageRecord record;
  FURROW_CO_ASSIGN_OR_RETURN(record.table, Decode(row->value));
  record.state = StorageRecord::State::kFreeing;
  record.owns_regions = record.table.spec.placement_group.empty();
  *table_id = record.table.table_id;
  FURROW_CO_RETURN_IF_ERROR(co_await catalog.Delete(tx, *row));
  co_return co_await WriteRecord(tx, catalog, record);
}

struct LeftOver {
  uint32_t table_id = 0;
  StorageRecord::State state = StorageRecord::State::kMaking;
  NodeId maker{};
  Incarnation incarnation{};
};

Task<absl::Status> ListLeftOvers(txn::Transaction& tx, const Table& catalog, std::vector<LeftOver>* out) {
  out->clear();
  absl::Status status;
  const auto keep = [&](const Row& row) {
    absl::StatusOr<StorageRecord> record = DecodeRecord(row.value);
    if (!record.ok()) {
      status = record.status();
      return false;
    }
    out->push_back({record->table.table_id, record->state, record->maker, record->incarnation});
    return true;
  };
  FURROW_CO_RETURN_IF_ERROR(co_await catalog.Scan(tx, {.range = KeyRange::Prefix(kRecordPrefix)}, keep));
  co_return status;
}

// From here on its maker, should it live, cannot add to it or publish it.
Task<absl::Status> GiveUp(txn::Transaction& tx, const Table& catalog, uint32_t table_id) {
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kMaking));
  record.state = StorageRecord::State::kFreeing;
  co_return co_await WriteRecord(tx, catalog, record);
}

}  // namespace

Task<absl::Status> Catalog::DropTable(txn::Worker& worker, std::string name) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  uint32_t table_id = 0;
  const txn::CommitResult gone =
      co_await worker.Run([&](txn::Transaction& tx) { return Unpublish(tx, *catalog, name, &table_id); });
  FURROW_CO_RETURN_IF_ERROR(gone.status);
  {
    MutexLock lock(&mutex_);
    open_.erase(name);
  }
  const absl::Status freed = co_await FreeStorage(worker, *catalog, table_id);
  // Another process, which cleared up, was quicker.
  if (!freed.ok() && !absl::IsFailedPrecondition(freed)) co_return freed;
  co_await FreeLeftOvers(worker, *catalog);
  co_return absl::OkStatus();
}

Task<void> Catalog::FreeLeftOvers(txn::Worker& worker, const Table& catalog) {
  std::vector<LeftOver> left;
  const txn::CommitResult listed =
      co_await worker.Run([&](txn::Transaction& tx) { return ListLeftOvers(tx, catalog, &left); },
                          {.transaction = {.read_only = true}});
  if (!listed.status.ok()) co_return;
  const std::shared_ptr<const cluster::ClusterView> view = worker.node().view();
  for (const LeftOver& l : left) {
    absl::Status status;
    if (l.state == StorageRecord::State::kMaking) {
      bool mine;
      {
        MutexLock lock(&mutex_);
        if (making_.contains(l.table_id)) continue;
        mine = l.maker == worker.node().options.id && l.incarnation == worker.node().options.incarnation;
      }
      const cluster::Member* maker = view == nullptr ? nullptr : view->Find(l.maker);
      if (!mine && maker != nullptr && maker->incarnation == l.incarnation) continue;  // it lives
      status =
          (co_await worker.Run([&](txn::Transaction& tx) { return GiveUp(tx, catalog, l.table_id); })).status;
    }
    if (status.ok()) status = co_await FreeStorage(worker, catalog, l.table_id);
    if (!status.ok() && !absl::IsFailedPrecondition(status)) {
      FURROW_LOG_EVERY(WARNING, kSecond)
          << "what is left of table " << l.table_id << " is freed later: " << status;
    }
  }
}

}  // namespace furrow::index
