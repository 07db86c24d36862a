// The tables of TPC-C in a cluster: their specifications, and the open tables with what terminals need to
// know of their places.
#ifndef FURROW_BENCH_TPCC_TABLES_H_
#define FURROW_BENCH_TPCC_TABLES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/task.h"
#include "bench/tpcc/schema.h"
#include "index/catalog.h"
#include "index/table.h"
#include "txn/worker.h"

namespace furrow::bench::tpcc {

// Secondary index 0 of its table.
inline constexpr int kCustomerByName = 0;
inline constexpr int kOrdersByCustomer = 0;

index::TableSpec SpecOf(TableKind kind, const Scale& scale);

// Immutable once open; shared by the workers of a process.
struct Tables {
  Scale scale;
  std::shared_ptr<const index::Table> table[kTables];
  // The copy of ITEM that lies at the primary of the warehouse; by warehouse, [0] unused.
  std::vector<uint32_t> item_copy;
  // The node that is primary of the warehouse; by warehouse, [0] unused.
  std::vector<NodeId> home;

  const index::Table& operator[](TableKind kind) const { return *table[static_cast<size_t>(kind)]; }
};

// AlreadyExists: the cluster holds tables of TPC-C, whole or not; the message says what to do.
Task<absl::Status> CreateTables(index::Catalog& catalog, txn::Worker& worker, Scale scale);
// Drops those that are there.
Task<absl::Status> DropTables(index::Catalog& catalog, txn::Worker& worker, Scale scale);
// FailedPrecondition, with what to do: rows are missing that a load puts last, so that it has not ended.
Task<absl::Status> CheckLoaded(const Tables& tables, txn::Worker& worker);
// Opens all nine. NotFound: not created. FailedPrecondition: the cluster holds another number of warehouses
// or items than `scale` says. The number of ITEM's copies is that of the tables.
Task<absl::StatusOr<std::unique_ptr<Tables>>> OpenTables(index::Catalog& catalog, txn::Worker& worker,
                                                         Scale scale);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_TABLES_H_
