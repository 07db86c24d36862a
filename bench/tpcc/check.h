// TPC-C's part of --check: the consistency conditions over the rows as they lie in the regions, and again
// over the rows as each index finds them. Nothing else may run, and every record must be truncated.
#ifndef FURROW_BENCH_TPCC_CHECK_H_
#define FURROW_BENCH_TPCC_CHECK_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/task.h"
#include "bench/harness/host.h"
#include "bench/harness/result.h"
#include "bench/tpcc/audit.h"
#include "bench/tpcc/tables.h"
#include "txn/worker.h"

namespace furrow::bench::tpcc {

// Adds the row that an object's payload is, if it is one of TPC-C's tables, to the audit; `history` receives
// the keys of HISTORY rows.
void AddPayload(const Tables& tables, std::span<const std::byte> payload, Audit* audit,
                std::vector<HistoryKey>* history);

// Appends the results:
//   replicas                    every object is the same on all replicas
//   condition_N, rows           over the regions; after the load with "_after_load", but for condition_11
//   condition_N_by_index, ...   after a run only: over the primary indexes
//   index_TABLE[.NAME]          after a run only: the index finds exactly the rows that the regions hold
Task<absl::Status> CheckCluster(const Tables& tables, Host& host, txn::Worker& worker, bool after_load,
                                std::vector<CheckResult>* results);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_CHECK_H_
