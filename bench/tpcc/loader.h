// The initial data of TPC-C (clause 4.3.3), in transactions of some hundred kilobytes. What a transaction
// inserts follows from the seed and its place alone, so that a retry inserts the same rows.
#ifndef FURROW_BENCH_TPCC_LOADER_H_
#define FURROW_BENCH_TPCC_LOADER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/task.h"
#include "bench/harness/workload.h"
#include "bench/tpcc/random.h"
#include "bench/tpcc/tables.h"
#include "txn/worker.h"

namespace furrow::bench::tpcc {

// Rows that the load of one warehouse, or of one copy of ITEM, inserts; order lines by their mean number.
uint64_t RowsPerWarehouse(const Scale& scale);

// AlreadyExists: there is data already. ResourceExhausted: it does not fit.
Task<absl::Status> LoadWarehouse(const Tables& tables, txn::Worker& worker, uint32_t w, uint64_t seed,
                                 NurandConstants constants, Progress* progress);
Task<absl::Status> LoadItems(const Tables& tables, txn::Worker& worker, uint32_t copy, uint64_t seed,
                             NurandConstants constants, Progress* progress);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_LOADER_H_
