// Making tables.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/catalog.h"
#include "index/catalog_root.h"
#include "index/storage_record.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

absl::Status Taken(const std::string& name) {
  return absl::AlreadyExistsError(absl::StrCat("there is a table \"", name, "\" already"));
}

// Takes ids for the table and its indexes, unless the name is taken, and begins the record of its storage.
Task<absl::Status> TakeIds(txn::Transaction& tx, const Table& catalog, RegionId first_region,
                           StorageRecord* record) {
  TableDescriptor& table = record->table;
  const std::string key = TableKey(table.spec.name);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.ok()) co_return Taken(table.spec.name);
  if (row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
  const Address address = CatalogRootAddress(first_region);
  const txn::ReadResult read = co_await tx.Read(address, sizeof(CatalogRoot));
  if (!read.ok()) co_return read.status();
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(address, sizeof(CatalogRoot)));
  auto* root = reinterpret_cast<CatalogRoot*>(bytes.data());
  table.table_id = root->next_id++;
  for (IndexDescriptor& index : table.indexes) index.id = root->next_id++;
  co_return co_await WriteRecord(tx, catalog, *record);
}

std::string EncodeRegions(const std::vector<RegionId>& regions) {
  std::string bytes;
  for (const RegionId region : regions) {
    const uint32_t value = region.value();
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// The regions of a placement group; with `mine`, enters those if there are none.
Task<absl::Status> GroupRegions(txn::Transaction& tx, const Table& catalog, const std::string& group,
                                const std::vector<RegionId>* mine, std::vector<RegionId>* out) {
  out->clear();
  const std::string key = GroupKey(group);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.ok()) {
    out->resize(row->value.size() / sizeof(uint32_t));
    for (size_t i = 0; i < out->size(); ++i) {
      uint32_t value;
      std::memcpy(&value, row->value.data() + sizeof(value) * i, sizeof(value));
      (*out)[i] = RegionId(value);
    }
    co_return absl::OkStatus();
  }
  if (row.status().code() != absl::StatusCode::kNotFound || mine == nullptr) {
    co_return row.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus() : row.status();
  }
  *out = *mine;
  const std::string value = EncodeRegions(*mine);
  co_return (co_await catalog.Insert(tx, key, value)).status();
}

// The table is there, and its storage left over no more.
Task<absl::Status> Publish(txn::Transaction& tx, const Table& catalog, const TableDescriptor& table) {
  FURROW_CO_RETURN_IF_ERROR(
      (co_await ReadRecord(tx, catalog, table.table_id, StorageRecord::State::kMaking)).status());
  const std::string key = TableKey(table.spec.name);
  const std::string value = Encode(table);
  const RowResult row = co_await catalog.Insert(tx, key, value);
  if (row.status().code() == absl::StatusCode::kAlreadyExists) co_return Taken(table.spec.name);
  if (!row.ok()) co_return row.status();
  co_return co_await EraseRecord(tx, catalog, table.table_id);
}

// --- places ---

// Enters a region into the record of the table, as that of partition `p`; one that is free is free no more.
Task<absl::Status> EnterRegion(txn::Transaction& tx, const Table& catalog, uint32_t table_id, uint32_t p,
                               RegionId region, bool was_free) {
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kMaking));
  if (was_free) {
    const std::string key = FreeRegionKey(region);
    const RowResult row = co_await catalog.Get(tx, key);
    if (!row.ok()) co_return row.status();  // NotFound: somebody else has taken it
    FURROW_CO_RETURN_IF_ERROR(co_await catalog.Delete(tx, *row));
  }
  record.table.partition_regions[p] = region;
  co_return co_await WriteRecord(tx, catalog, record);
}

Task<absl::Status> ListFreeRegions(txn::Transaction& tx, const Table& catalog, std::vector<RegionId>* out) {
  out->clear();
  const auto keep = [&](const Row& row) {
    uint32_t region = 0;
    for (const char c : row.key.substr(kFreeRegionPrefix.size()))
      region = region << 8 | static_cast<uint8_t>(c);
    out->push_back(RegionId(region));
    return true;
  };
  co_return co_await catalog.Scan(tx, {.range = KeyRange::Prefix(kFreeRegionPrefix)}, keep);
}

// Takes a free group of regions for partition `p`: one whose primary is `wanted` (0: any). Region 0: there is
// none.
Task<absl::StatusOr<RegionId>> TakeFreeRegion(txn::Worker& worker, const Table& catalog, uint32_t table_id,
                                              uint32_t p, NodeId wanted) {
  std::vector<RegionId> free;
  const txn::CommitResult listed =
      co_await worker.Run([&](txn::Transaction& tx) { return ListFreeRegions(tx, catalog, &free); },
                          {.transaction = {.read_only = true}});
  FURROW_CO_RETURN_IF_ERROR(listed.status);
  for (const RegionId region : free) {
    FURROW_CO_ASSIGN_OR_RETURN(const cluster::RegionMapping* mapping,
                               co_await worker.node().control->LookupRegion(region));
    if (wanted != NodeId() && mapping->primary().node != wanted) continue;
    const txn::CommitResult taken = co_await worker.Run([&](txn::Transaction& tx) {
      return EnterRegion(tx, catalog, table_id, p, region, /*was_free=*/true);
    });
    if (taken.status.ok()) co_return region;
    if (!absl::IsNotFound(taken.status)) co_return taken.status;
  }
  co_return RegionId();
}

// The members that partitions are spread over.
absl::StatusOr<std::vector<NodeId>> StorageMembers(txn::Worker& worker) {
  std::vector<NodeId> members;
  const std::shared_ptr<const cluster::ClusterView> view = worker.node().view();
  if (view == nullptr || worker.node().control == nullptr) {
    return absl::UnavailableError("this process is not a member of a cluster yet");
  }
  for (const cluster::Member& member : view->members()) {
    if (member.role == cluster::Role::kStorage) members.push_back(member.id);
  }
  if (members.empty()) return absl::UnavailableError("the cluster has no storage member");
  return members;
}

// A locality group for partition `p`: a free one, or a new one. New ones are named by table and partition: a
// request whose answer was lost, and that is made again, makes no second one.
Task<absl::StatusOr<RegionId>> RegionFor(txn::Worker& worker, const Table& catalog, uint32_t table_id,
                                         uint32_t p, NodeId preferred) {
  FURROW_CO_ASSIGN_OR_RETURN(const RegionId near_by,
                             co_await TakeFreeRegion(worker, catalog, table_id, p, preferred));
  if (near_by != RegionId()) co_return near_by;
  cluster::AllocateRegionRequest request{};
  request.preferred_primary = preferred;
  request.name = uint64_t{table_id} << 32 | (p + 1);
  const absl::StatusOr<const cluster::RegionMapping*> made =
      co_await worker.node().control->AllocateRegion(request);
  if (!made.ok()) {
    if (!absl::IsResourceExhausted(made.status())) co_return made.status();
    FURROW_CO_ASSIGN_OR_RETURN(const RegionId any,
                               co_await TakeFreeRegion(worker, catalog, table_id, p, NodeId()));
    if (any == RegionId()) co_return made.status();
    co_return any;
  }
  const RegionId region = (*made)->locality;
  const txn::CommitResult entered = co_await worker.Run([&](txn::Transaction& tx) {
    return EnterRegion(tx, catalog, table_id, p, region, /*was_free=*/false);
  });
  FURROW_CO_RETURN_IF_ERROR(entered.status);
  co_return region;
}

// The group's regions become the table's, in its record too. The group is made with this table's if it is
// new.
Task<absl::Status> JoinGroup(txn::Transaction& tx, const Table& catalog, uint32_t table_id,
                             const std::string& group, const std::vector<RegionId>* mine,
                             std::vector<RegionId>* out) {
  FURROW_CO_RETURN_IF_ERROR(co_await GroupRegions(tx, catalog, group, mine, out));
  if (out->empty()) co_return absl::OkStatus();
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kMaking));
  if (mine != nullptr && *out != *mine) {
    // Another table was quicker to make the group: what was taken for it is free.
    for (const RegionId region : *mine) {
      const std::string key = FreeRegionKey(region);
      FURROW_CO_RETURN_IF_ERROR((co_await catalog.Insert(tx, key, "")).status());
    }
  }
  record.owns_regions = false;
  record.table.partition_regions.assign(record.table.spec.partitions, RegionId());
  co_return co_await WriteRecord(tx, catalog, record);
}

Task<absl::Status> PlaceTable(txn::Worker& worker, const Table& catalog, TableDescriptor* table) {
  std::vector<RegionId> regions;
  const std::string& group = table->spec.placement_group;
  if (!group.empty()) {
    const txn::CommitResult read = co_await worker.Run([&](txn::Transaction& tx) {
      return JoinGroup(tx, catalog, table->table_id, group, nullptr, &regions);
    });
    FURROW_CO_RETURN_IF_ERROR(read.status);
  }
  if (regions.empty()) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::vector<NodeId> members, StorageMembers(worker));
    for (uint32_t p = 0; p < table->spec.partitions; ++p) {
      FURROW_CO_ASSIGN_OR_RETURN(const RegionId region, co_await RegionFor(worker, catalog, table->table_id,
                                                                           p, members[p % members.size()]));
      regions.push_back(region);
    }
    if (!group.empty()) {
      const std::vector<RegionId> mine = regions;
      const txn::CommitResult entered = co_await worker.Run([&](txn::Transaction& tx) {
        return JoinGroup(tx, catalog, table->table_id, group, &mine, &regions);
      });
      FURROW_CO_RETURN_IF_ERROR(entered.status);
    }
  }
  if (regions.size() != table->spec.partitions) {
    co_return absl::FailedPreconditionError(absl::StrCat(
        "table \"", table->spec.name, "\" has ", table->spec.partitions,
        " partitions, but its placement group \"", group, "\" has ", regions.size(), ": make them equal"));
  }
  table->partition_regions = std::move(regions);
  co_return absl::OkStatus();
}

// --- storage ---

Task<absl::Status> EnterPartition(txn::Transaction& tx, const Table& catalog, uint32_t table_id, size_t index,
                                  uint32_t p, IndexPartition partition) {
  FURROW_CO_ASSIGN_OR_RETURN(StorageRecord record,
                             co_await ReadRecord(tx, catalog, table_id, StorageRecord::State::kMaking));
  record.table.indexes[index].partitions[p] = partition;
  co_return co_await WriteRecord(tx, catalog, record);
}

Task<absl::Status> MakeTree(txn::Transaction& tx, const Table& catalog, const TableDescriptor& table,
                            size_t index, uint32_t p, Address* root) {
  FURROW_CO_ASSIGN_OR_RETURN(
      *root, co_await Btree::CreateIn(tx, table.indexes[index].id, p, table.partition_regions[p],
                                      table.max_key_bytes(index)));
  co_return co_await EnterPartition(tx, catalog, table.table_id, index, p, {.root = *root});
}

Task<absl::Status> FillStorage(txn::Worker& worker, const Table& catalog, TableDescriptor* table) {
  for (size_t i = 0; i < table->indexes.size(); ++i) {
    IndexDescriptor& index = table->indexes[i];
    for (uint32_t p = 0; p < index.partitions.size(); ++p) {
      if (table->kind(i) == IndexKind::kHash) {
        const auto record = [&catalog, table, i, p](txn::Transaction& tx, IndexPartition made) {
          return EnterPartition(tx, catalog, table->table_id, i, p, made);
        };
        const uint64_t rows = table->spec.expected_rows_per_partition;
        const bool holds_rows = i == 0 && table->inline_rows();
        const uint32_t buckets =
            holds_rows ? table->geometry().BucketsFor(rows) : HashIndex::BucketsFor(rows);
        const uint32_t bytes = holds_rows ? table->geometry().payload_bytes() : sizeof(Bucket);
        FURROW_CO_ASSIGN_OR_RETURN(index.partitions[p],
                                   co_await HashIndex::Create(worker, index.id, table->partition_regions[p],
                                                              buckets, bytes, record));
      } else {
        const txn::CommitResult made = co_await worker.Run([&](txn::Transaction& tx) {
          return MakeTree(tx, catalog, *table, i, p, &index.partitions[p].root);
        });
        FURROW_CO_RETURN_IF_ERROR(made.status);
      }
    }
  }
  co_return absl::OkStatus();
}

Task<absl::Status> MakeTable(txn::Worker& worker, const Table& catalog, TableDescriptor* table) {
  FURROW_CO_RETURN_IF_ERROR(co_await PlaceTable(worker, catalog, table));
  FURROW_CO_RETURN_IF_ERROR(co_await FillStorage(worker, catalog, table));
  const txn::CommitResult published =
      co_await worker.Run([&](txn::Transaction& tx) { return Publish(tx, catalog, *table); });
  co_return published.status;
}

}  // namespace

Task<absl::StatusOr<std::shared_ptr<const Table>>> Catalog::CreateTable(txn::Worker& worker, TableSpec spec) {
  FURROW_CO_RETURN_IF_ERROR(Validate(spec));
  if (spec.name.starts_with(kReservedPrefix)) {
    co_return absl::InvalidArgumentError(absl::StrCat("table \"", spec.name, "\": names that begin with \"",
                                                      Sv(kReservedPrefix),
                                                      "\" are Furrow's own: take another one"));
  }
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  co_await FreeLeftOvers(worker, *catalog);
  StorageRecord record;
  record.maker = worker.node().options.id;
  record.incarnation = worker.node().options.incarnation;
  record.owns_regions = true;
  TableDescriptor& table = record.table;
  spec.row_layout = ResolvedLayout(spec);
  table.spec = spec;
  if (spec.row_layout == RowLayout::kInline) {
    table.inline_slots = InlineGeometry::For(spec.max_key_bytes, spec.max_value_bytes).slots;
  }
  table.partition_regions.resize(spec.partitions);
  table.indexes.resize(spec.secondaries.size() + 1);
  for (size_t i = 0; i < table.indexes.size(); ++i)
    table.indexes[i].partitions.resize(PartitionCount(spec, i));
  // From before the record is there, so that nobody here takes it for left over.
  Working working(*this);
  const txn::CommitResult ids = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
    FURROW_CO_RETURN_IF_ERROR(co_await TakeIds(tx, *catalog, options_.first_region, &record));
    working.Begin(table.table_id);
    co_return absl::OkStatus();
  });
  FURROW_CO_RETURN_IF_ERROR(ids.status);
  const absl::Status made = co_await MakeTable(worker, *catalog, &table);
  working.End();
  if (!made.ok()) {
    co_await FreeLeftOvers(worker, *catalog);
    co_return made;
  }
  co_return co_await Open(worker, spec.name);
}

}  // namespace furrow::index
