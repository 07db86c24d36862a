// What a benchmark's workload gives to the harness.
#ifndef FURROW_BENCH_HARNESS_WORKLOAD_H_
#define FURROW_BENCH_HARNESS_WORKLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/task.h"
#include "bench/harness/host.h"
#include "bench/harness/result.h"
#include "index/catalog.h"
#include "txn/worker.h"

namespace furrow::bench {

// How one transaction ended.
struct TxReport {
  size_t type = 0;           // index into Workload::types()
  Nanos wanted = 0;          // when the terminal wanted it, on the loop's clock
  bool rolled_back = false;  // aborted by the application, as the workload demands
  // OK, also when rolled back. Anything else ends the run: conflicts were retried until the deadline.
  absl::Status status;
};

// One of many that run at the same time on a worker. Owner thread: the worker's.
class Terminal {
 public:
  virtual ~Terminal() = default;
  // Runs one transaction, wanted at `wanted`. No think time.
  virtual Task<TxReport> Next(txn::Worker& worker, Nanos wanted) = 0;
  // True for one that serves what other terminals have queued: it is not paced, and Next() may wait until
  // Stop(). Next() reports the status Cancelled when it has been stopped and there is nothing left.
  virtual bool serves_queue() const { return false; }
  virtual void Stop() {}
};

// Progress of a load, counted by the workers and read by the reporter. Thread-safe.
struct Progress {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> total{0};
  std::atomic<bool> stop{false};  // set by the owner: the load is given up
};

// Where a worker stands among all the workers of the benchmark.
struct Place {
  uint32_t process = 0;
  uint32_t processes = 1;
  uint32_t worker = 0;   // within its process
  uint32_t workers = 1;  // of each process
};

// One per process. Methods with a worker run on its thread; those of different workers at the same time.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::vector<std::string> types() const = 0;

  // Makes the tables; in one process only, before any Open().
  virtual Task<absl::Status> Create(index::Catalog& catalog, txn::Worker& worker) = 0;
  virtual Task<absl::Status> Open(index::Catalog& catalog, txn::Worker& worker) = 0;
  // Fills this worker's share of the tables.
  virtual Task<absl::Status> Load(txn::Worker& worker, Place place, Progress* progress) = 0;
  // The terminals of this worker; `count` is what the user asked for per worker, 0: the workload's own
  // choice.
  virtual std::vector<std::unique_ptr<Terminal>> MakeTerminals(txn::Worker& worker, Place place, size_t count,
                                                               uint64_t seed) = 0;
  // The workload's own conditions, while nothing runs; in one process only. `after_load`: nothing has run
  // since the load.
  virtual Task<absl::Status> Check(Host& host, txn::Worker& worker, bool after_load,
                                   std::vector<CheckResult>* results) = 0;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_WORKLOAD_H_
