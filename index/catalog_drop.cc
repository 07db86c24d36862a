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

// Who works at a record.
struct Owner {
  NodeId node{};
  Incarnation incarnation{};
  friend bool operator==(const Owner&, const Owner&) = default;
};

Owner OwnerOf(const StorageRecord& record) { return {record.maker, record.incarnation}; }
void SetOwner(StorageRecord* record, Owner owner) {
  record->maker = owner.node;
  record->incarnation = owner.incarnation;
}
Owner ThisMember(txn::Worker& worker) {
  return {worker.node().options.id, worker.node().options.incarnation};
}

// Takes the table out of the catalog and its storage into a record, for `owner` to free.
Task<absl::Status> Unpublish(txn::Transaction& tx, const Table& catalog, const std::string& name, Owner owner,
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
  SetOwner(&record, owner);
  record.owns_regions = record.table.spec.placement_group.empty();
  *table_id = record.table.table_id;
  FURROW_CO_RETURN_IF_ERROR(co_await catalog.Delete(tx, *row));
  co_return co_await WriteRecord(tx, catalog, record);
}

struct LeftOver {
  uint32_t table_id = 0;
  StorageRecord::State state = StorageRecord::State::kMaking;
  Owner owner{};
};

Task<absl::Status> ListLeftOvers(txn::Transaction& tx, const Table& catalog, std::vector<LeftOver>* out) {
  out->clear();
  const auto keep = [&](const Row& row) {
    const absl::StatusOr<StorageRecord> record = DecodeRecord(row.value);
    if (record.ok()) {
      out->push_back({record->table.table_id, record->state, OwnerOf(*record)});
    } else {
      // It keeps its storage; the others are freed all the same.
      FURROW_LOG_EVERY(WARNING, kSecond)
          << "a record of storage to be freed is passed over: " << record.status();
    }
    return true;
  };
  co_return co_await catalog.Scan(tx, {.range = KeyRange::Prefix(kRecordPrefix)}, keep);
}

// Makes `owner` the one who frees what `seen` names: from here on its maker, should it live, cannot add to it
// or publish it. Not `taken`: the record has gone, or is another's by now.
Task<absl::Status> TakeOver(txn::Transaction& tx, const Table& catalog, LeftOver seen, Owner owner,
                            bool* taken) {
  *taken = false;
  const std::string key = RecordKey(seen.table_id);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.status().code() == absl::StatusCode::kNotFound) co_return absl::OkStatus();
  if (!row.ok()) co_return row.status();
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record, DecodeRecord(row->value));
  if (record.state != seen.state || OwnerOf(record) != seen.owner) co_return absl::OkStatus();
  record.state = StorageRecord::State::kFreeing;
  SetOwner(&record, owner);
  *taken = true;
  co_return co_await WriteRecord(tx, catalog, record);
}

Task<absl::Status> IsThere(txn::Transaction& tx, const Table& catalog, uint32_t table_id, bool* there) {
  const std::string key = RecordKey(table_id);
  const RowResult row = co_await catalog.Get(tx, key);
  *there = row.ok();
  co_return row.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus() : row.status();
}

// Frees what this member has taken. OK, too, when another has done the rest: it does so when it takes this
// member for lost. Otherwise the record is nobody's from here on, so that any member's next call goes on.
Task<absl::Status> FreeTaken(txn::Worker& worker, const Table& catalog, uint32_t table_id) {
  const absl::Status freed = co_await FreeStorage(worker, catalog, table_id);
  if (freed.ok()) co_return freed;
  bool there = true;
  const txn::CommitResult read =
      co_await worker.Run([&](txn::Transaction& tx) { return IsThere(tx, catalog, table_id, &there); },
                          {.transaction = {.read_only = true}});
  if (read.status.ok() && !there) co_return absl::OkStatus();
  const LeftOver mine{table_id, StorageRecord::State::kFreeing, ThisMember(worker)};
  bool taken = false;
  const txn::CommitResult left =
      co_await worker.Run([&](txn::Transaction& tx) { return TakeOver(tx, catalog, mine, Owner{}, &taken); });
  if (!left.status.ok()) {
    FURROW_LOG_EVERY(WARNING, kSecond) << "what is left of table " << table_id
                                       << " is freed by a later call of this process alone: " << left.status;
  }
  co_return freed;
}

}  // namespace

Catalog::Working::~Working() { End(); }

void Catalog::Working::Begin(uint32_t table_id) {
  End();
  MutexLock lock(&catalog_.mutex_);
  ++catalog_.working_[table_id];
  table_id_ = table_id;
}

bool Catalog::Working::BeginAlone(uint32_t table_id) {
  End();
  MutexLock lock(&catalog_.mutex_);
  if (!catalog_.working_.emplace(table_id, 1).second) return false;
  table_id_ = table_id;
  return true;
}

void Catalog::Working::End() {
  if (table_id_ == 0) return;
  MutexLock lock(&catalog_.mutex_);
  const auto it = catalog_.working_.find(table_id_);
  if (--it->second == 0) catalog_.working_.erase(it);
  table_id_ = 0;
}

Task<absl::Status> Catalog::DropTable(txn::Worker& worker, std::string name) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  uint32_t table_id = 0;
  Working working(*this);
  const txn::CommitResult gone = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
    FURROW_CO_RETURN_IF_ERROR(co_await Unpublish(tx, *catalog, name, ThisMember(worker), &table_id));
    working.Begin(table_id);
    co_return absl::OkStatus();
  });
  FURROW_CO_RETURN_IF_ERROR(gone.status);
  {
    MutexLock lock(&mutex_);
    open_.erase(name);
  }
  FURROW_CO_RETURN_IF_ERROR(co_await FreeTaken(worker, *catalog, table_id));
  working.End();
  co_await FreeLeftOvers(worker, *catalog);
  co_return absl::OkStatus();
}

Task<void> Catalog::FreeLeftOvers(txn::Worker& worker, const Table& catalog) {
  std::vector<LeftOver> left;
  const txn::CommitResult listed =
      co_await worker.Run([&](txn::Transaction& tx) { return ListLeftOvers(tx, catalog, &left); },
                          {.transaction = {.read_only = true}});
  if (!listed.status.ok()) {
    FURROW_LOG_EVERY(WARNING, kSecond) << "what failed calls have left is freed later: " << listed.status;
    co_return;
  }
  const std::shared_ptr<const cluster::ClusterView> view = worker.node().view();
  if (view == nullptr) co_return;  // who lives is not known yet
  const Owner me = ThisMember(worker);
  for (const LeftOver& l : left) {
    Working working(*this);
    if (!working.BeginAlone(l.table_id)) continue;
    const cluster::Member* owner = view->Find(l.owner.node);
    if (l.owner != me && owner != nullptr && owner->incarnation == l.owner.incarnation) continue;  // it lives
    bool taken = false;
    absl::Status status = (co_await worker.Run([&](txn::Transaction& tx) {
                            return TakeOver(tx, catalog, l, me, &taken);
                          })).status;
    if (status.ok() && taken) status = co_await FreeTaken(worker, catalog, l.table_id);
    if (!status.ok()) {
      FURROW_LOG_EVERY(WARNING, kSecond)
          << "what is left of table " << l.table_id << " is freed later: " << status;
    }
  }
}

}  // namespace furrow::index
