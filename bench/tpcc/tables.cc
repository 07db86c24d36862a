#include "bench/tpcc/tables.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace furrow::bench::tpcc {
namespace {

using index::IndexKind;
using index::KeyPart;
using index::SecondarySpec;
using Source = KeyPart::Source;

template <class T>
uint16_t SizeOf() {
  return static_cast<uint16_t>(sizeof(T));
}

SecondarySpec CustomerByName() {
  constexpr uint16_t kNames = sizeof(CustomerRow::last) + sizeof(CustomerRow::first);
  static_assert(offsetof(CustomerRow, first) == offsetof(CustomerRow, last) + sizeof(CustomerRow::last));
  return SecondarySpec{.name = "by_name",
                       .kind = IndexKind::kBtree,
                       .unique = false,
                       .parts = {{Source::kKey, 0, offsetof(CustomerKey, c)},
                                 {Source::kValue, offsetof(CustomerRow, last), kNames}}};
}

SecondarySpec OrdersByCustomer() {
  return SecondarySpec{.name = "by_customer",
                       .kind = IndexKind::kBtree,
                       .unique = true,
                       .parts = {{Source::kKey, 0, offsetof(OrderKey, o)},
                                 {Source::kValue, offsetof(OrderRow, c), sizeof(OrderRow::c)},
                                 {Source::kKey, offsetof(OrderKey, o), sizeof(OrderKey::o)}}};
}

}  // namespace

index::TableSpec SpecOf(TableKind kind, const Scale& scale) {
  index::TableSpec spec;
  spec.name = absl::StrCat("tpcc.", Sv(kTableNames[static_cast<size_t>(kind)]));
  spec.primary = IndexKind::kHash;
  spec.prefix_bytes = sizeof(Be32);
  spec.partitions = std::min(scale.warehouses, kMaxPartitions);
  spec.placement_group = "tpcc";
  const uint64_t warehouses = (scale.warehouses + spec.partitions - 1) / spec.partitions;
  const uint64_t customers = warehouses * scale.districts * scale.customers;
  switch (kind) {
    case TableKind::kWarehouse:
      spec.max_key_bytes = SizeOf<WarehouseKey>();
      spec.expected_rows_per_partition = warehouses;
      break;
    case TableKind::kDistrict:
      spec.max_key_bytes = SizeOf<DistrictKey>();
      spec.expected_rows_per_partition = warehouses * scale.districts;
      break;
    case TableKind::kCustomer:
      spec.max_key_bytes = SizeOf<CustomerKey>();
      spec.expected_rows_per_partition = customers;
      spec.secondaries = {CustomerByName()};
      break;
    case TableKind::kHistory:  // grows with payments, orders with new orders: buckets for some minutes of
                               // them
      spec.max_key_bytes = SizeOf<HistoryKey>();
      spec.expected_rows_per_partition = 3 * customers;
      break;
    case TableKind::kNewOrder:
      spec.max_key_bytes = SizeOf<NewOrderKey>();
      spec.primary = IndexKind::kBtree;
      break;
    case TableKind::kOrders:
      spec.max_key_bytes = SizeOf<OrderKey>();
      spec.expected_rows_per_partition = 3 * customers;
      spec.secondaries = {OrdersByCustomer()};
      break;
    case TableKind::kOrderLine:
      spec.max_key_bytes = SizeOf<OrderLineKey>();
      spec.primary = IndexKind::kBtree;
      break;
    case TableKind::kItem:
      spec.max_key_bytes = SizeOf<ItemKey>();
      spec.partitions = scale.item_copies;
      spec.placement_group = "tpcc.item";
      spec.expected_rows_per_partition = scale.items;
      break;
    case TableKind::kStock:
      spec.max_key_bytes = SizeOf<StockKey>();
      spec.expected_rows_per_partition = warehouses * scale.items;
      break;
    case TableKind::kCount:
      break;
  }
  return spec;
}

Task<absl::Status> CreateTables(index::Catalog& catalog, txn::Worker& worker, Scale scale) {
  EventLoop& loop = worker.loop();
  const Nanos give_up = loop.Now() + 10 * kSecond;
  for (size_t i = 0; i < kTables; ++i) {
    auto made = co_await catalog.CreateTable(worker, SpecOf(static_cast<TableKind>(i), scale));
    // A cluster that has just started has its catalog soon.
    while (absl::IsUnavailable(made.status()) && loop.Now() < give_up) {
      co_await loop.SleepFor(10 * kMillisecond);
      made = co_await catalog.CreateTable(worker, SpecOf(static_cast<TableKind>(i), scale));
    }
    if (absl::IsAlreadyExists(made.status())) {
      co_return absl::AlreadyExistsError(
          "the cluster holds TPC-C tables already: use their data with --no-load, or replace it with "
          "--reload");
    }
    if (!made.ok()) co_return made.status();
  }
  co_return absl::OkStatus();
}

Task<absl::Status> DropTables(index::Catalog& catalog, txn::Worker& worker, Scale scale) {
  for (size_t i = 0; i < kTables; ++i) {
    const absl::Status dropped =
        co_await catalog.DropTable(worker, SpecOf(static_cast<TableKind>(i), scale).name);
    if (!dropped.ok() && !absl::IsNotFound(dropped)) co_return dropped;
  }
  co_return absl::OkStatus();
}

Task<absl::Status> CheckLoaded(const Tables& tables, txn::Worker& worker) {
  const Scale& scale = tables.scale;
  std::string missing;
  const txn::CommitResult looked = co_await worker.Run(
      [&](txn::Transaction& tx) -> Task<absl::Status> {
        missing.clear();
        for (uint32_t copy = 0; copy < scale.item_copies; ++copy) {
          const ItemKey key{copy, scale.items};
          const index::RowResult row = co_await tables[TableKind::kItem].Get(tx, ViewOf(key));
          if (absl::IsNotFound(row.status())) missing = "items";
          if (!row.ok()) co_return row.status();
        }
        for (uint32_t w = 1; w <= scale.warehouses; ++w) {
          const OrderKey key{w, static_cast<uint8_t>(scale.districts), scale.customers};
          const index::RowResult row = co_await tables[TableKind::kOrders].Get(tx, ViewOf(key));
          if (absl::IsNotFound(row.status())) missing = absl::StrCat("orders of warehouse ", w);
          if (!row.ok()) co_return row.status();
        }
        co_return absl::OkStatus();
      },
      {.transaction = {.read_only = true}});
  if (missing.empty()) co_return looked.status;
  co_return absl::FailedPreconditionError(
      absl::StrCat("the cluster's TPC-C data is not whole (", missing,
                   " are missing): its load was interrupted; load it anew with --reload"));
}

Task<absl::StatusOr<std::unique_ptr<Tables>>> OpenTables(index::Catalog& catalog, txn::Worker& worker,
                                                         Scale scale) {
  auto tables = std::make_unique<Tables>();
  for (size_t i = 0; i < kTables; ++i) {
    const std::string name = SpecOf(static_cast<TableKind>(i), scale).name;
    auto opened = co_await catalog.Open(worker, name);
    if (absl::IsNotFound(opened.status())) {
      co_return absl::NotFoundError(absl::StrCat("the cluster holds no table ", name,
                                                 ": leave --no-load out, so that the data is loaded"));
    }
    FURROW_CO_ASSIGN_OR_RETURN(tables->table[i], std::move(opened));
  }
  const Tables& t = *tables;
  const uint32_t partitions = t[TableKind::kStock].spec().partitions;
  const uint32_t copies = t[TableKind::kItem].spec().partitions;
  if (partitions != std::min(scale.warehouses, kMaxPartitions)) {
    co_return absl::FailedPreconditionError(absl::StrCat("the cluster holds TPC-C tables of ", partitions,
                                                         " warehouses; run with --warehouses ", partitions));
  }
  const uint64_t items = t[TableKind::kItem].spec().expected_rows_per_partition;
  if (items != scale.items) {
    co_return absl::FailedPreconditionError(absl::StrCat(
        "the cluster holds TPC-C tables of another --scale: ", items, " items, not ", scale.items,
        "; run with --scale ", items * 100 / kItems, ", or replace them with --reload"));
  }
  scale.item_copies = copies;
  tables->scale = scale;
  const cluster::RegionDirectory& directory = worker.node().directory;
  auto primary_of = [&](const index::Table& table, uint32_t partition) -> Task<absl::StatusOr<NodeId>> {
    const RegionId region = table.PartitionRegion(partition);
    const cluster::RegionMapping* mapping = directory.Find(region);
    if (mapping == nullptr) {
      FURROW_CO_ASSIGN_OR_RETURN(mapping, co_await worker.node().control->LookupRegion(region));
    }
    co_return mapping->primary().node;
  };
  std::vector<NodeId> copy_home(copies);
  for (uint32_t copy = 0; copy < copies; ++copy) {
    const uint32_t partition = t[TableKind::kItem].PartitionOf(ViewOf(ItemKey{copy, 1}));
    FURROW_CO_ASSIGN_OR_RETURN(copy_home[copy], co_await primary_of(t[TableKind::kItem], partition));
  }
  tables->item_copy.assign(scale.warehouses + 1, 0);
  tables->home.assign(scale.warehouses + 1, NodeId());
  for (uint32_t w = 1; w <= scale.warehouses; ++w) {
    const uint32_t partition = t[TableKind::kStock].PartitionOf(ViewOf(WarehouseKey{w}));
    FURROW_CO_ASSIGN_OR_RETURN(tables->home[w], co_await primary_of(t[TableKind::kStock], partition));
    const auto nearest = std::find(copy_home.begin(), copy_home.end(), tables->home[w]);
    tables->item_copy[w] =
        nearest == copy_home.end() ? w % copies : static_cast<uint32_t>(nearest - copy_home.begin());
  }
  co_return tables;
}

}  // namespace furrow::bench::tpcc
