// Making tables.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/catalog.h"
#include "index/catalog_root.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

absl::Status Taken(const std::string& name) {
  return absl::AlreadyExistsError(absl::StrCat("there is a table \"", name, "\" already"));
}

// Takes ids for the table and its indexes, unless the name is taken.
Task<absl::Status> TakeIds(txn::Transaction& tx, const Table& catalog, RegionId first_region,
                           TableDescriptor* table) {
  const std::string key = TableKey(table->spec.name);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.ok()) co_return Taken(table->spec.name);
  if (row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
  const Address address = CatalogRootAddress(first_region);
  const txn::ReadResult read = co_await tx.Read(address, sizeof(CatalogRoot));
  if (!read.ok()) co_return read.status();
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(address, sizeof(CatalogRoot)));
  auto* root = reinterpret_cast<CatalogRoot*>(bytes.data());
  table->table_id = root->next_id++;
  for (IndexDescriptor& index : table->indexes) index.id = root->next_id++;
  co_return absl::OkStatus();
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

Task<absl::Status> Publish(txn::Transaction& tx, const Table& catalog, const TableDescriptor& table) {
  const std::string key = TableKey(table.spec.name);
  const std::string value = Encode(table);
  const RowResult row = co_await catalog.Insert(tx, key, value);
  if (row.status().code() == absl::StatusCode::kAlreadyExists) co_return Taken(table.spec.name);
  co_return row.status();
}

// A new locality group for each partition, spread over the storage members. Named by table and partition: a
// request whose answer was lost, and that is made again, makes no second one.
Task<absl::StatusOr<std::vector<RegionId>>> AllocateRegions(txn::Worker& worker, uint32_t table_id,
                                                            uint32_t partitions) {
  std::vector<NodeId> members;
  const std::shared_ptr<const cluster::ClusterView> view = worker.node().view();
  if (view == nullptr || worker.node().control == nullptr) {
    co_return absl::UnavailableError("this process is not a member of a cluster yet");
  }
  for (const cluster::Member& member : view->members()) {
    if (member.role == cluster::Role::kStorage) members.push_back(member.id);
  }
  if (members.empty()) co_return absl::UnavailableError("the cluster has no storage member");
  std::vector<RegionId> regions;
  for (uint32_t p = 0; p < partitions; ++p) {
    cluster::AllocateRegionRequest request{};
    request.preferred_primary = members[p % members.size()];
    request.name = uint64_t{table_id} << 32 | (p + 1);
    FURROW_CO_ASSIGN_OR_RETURN(const cluster::RegionMapping* mapping,
                               co_await worker.node().control->AllocateRegion(request));
    regions.push_back(mapping->locality);
  }
  co_return regions;
}

Task<absl::StatusOr<std::vector<RegionId>>> PlaceTable(txn::Worker& worker, const Table& catalog,
                                                       uint32_t table_id, const TableSpec& spec) {
  std::vector<RegionId> regions;
  const std::string& group = spec.placement_group;
  if (!group.empty()) {
    const txn::CommitResult read = co_await worker.Run(
        [&](txn::Transaction& tx) { return GroupRegions(tx, catalog, group, nullptr, &regions); });
    FURROW_CO_RETURN_IF_ERROR(read.status);
  }
  if (regions.empty()) {
    FURROW_CO_ASSIGN_OR_RETURN(regions, co_await AllocateRegions(worker, table_id, spec.partitions));
    if (!group.empty()) {
      const std::vector<RegionId> mine = regions;
      const txn::CommitResult entered = co_await worker.Run(
          [&](txn::Transaction& tx) { return GroupRegions(tx, catalog, group, &mine, &regions); });
      FURROW_CO_RETURN_IF_ERROR(entered.status);
    }
  }
  if (regions.size() != spec.partitions) {
    co_return absl::FailedPreconditionError(absl::StrCat("table \"", spec.name, "\" has ", spec.partitions,
                                                         " partitions, but its placement group \"", group,
                                                         "\" has ", regions.size(), ": make them equal"));
  }
  co_return regions;
}

Task<absl::Status> FillStorage(txn::Worker& worker, TableDescriptor* table) {
  for (size_t i = 0; i < table->indexes.size(); ++i) {
    IndexDescriptor& index = table->indexes[i];
    for (uint32_t p = 0; p < index.partitions.size(); ++p) {
      const RegionId locality = table->partition_regions[p];
      if (table->kind(i) == IndexKind::kHash) {
        const uint64_t rows = table->spec.expected_rows_per_partition;
        const bool holds_rows = i == 0 && table->inline_rows();
        const uint32_t buckets =
            holds_rows ? table->geometry().BucketsFor(rows) : HashIndex::BucketsFor(rows);
        const uint32_t bytes = holds_rows ? table->geometry().payload_bytes() : sizeof(Bucket);
        FURROW_CO_ASSIGN_OR_RETURN(index.partitions[p],
                                   co_await HashIndex::Create(worker, index.id, locality, buckets, bytes));
      } else {
        FURROW_CO_ASSIGN_OR_RETURN(
            index.partitions[p].root,
            co_await Btree::Create(worker, index.id, p, locality, table->max_key_bytes(i)));
      }
    }
  }
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::StatusOr<std::shared_ptr<const Table>>> Catalog::CreateTable(txn::Worker& worker, TableSpec spec) {
  FURROW_CO_RETURN_IF_ERROR(Validate(spec));
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  TableDescriptor table;
  spec.row_layout = ResolvedLayout(spec);
  table.spec = spec;
  if (spec.row_layout == RowLayout::kInline) {
    table.inline_slots = InlineGeometry::For(spec.max_key_bytes, spec.max_value_bytes).slots;
  }
  table.indexes.resize(spec.secondaries.size() + 1);
  for (size_t i = 0; i < table.indexes.size(); ++i)
    table.indexes[i].partitions.resize(PartitionCount(spec, i));
  const txn::CommitResult ids = co_await worker.Run(
      [&](txn::Transaction& tx) { return TakeIds(tx, *catalog, options_.first_region, &table); });
  FURROW_CO_RETURN_IF_ERROR(ids.status);
  FURROW_CO_ASSIGN_OR_RETURN(table.partition_regions,
                             co_await PlaceTable(worker, *catalog, table.table_id, spec));
  FURROW_CO_RETURN_IF_ERROR(co_await FillStorage(worker, &table));
  const txn::CommitResult published =
      co_await worker.Run([&](txn::Transaction& tx) { return Publish(tx, *catalog, table); });
  FURROW_CO_RETURN_IF_ERROR(published.status);
  co_return co_await Open(worker, spec.name);
}

}  // namespace furrow::index
