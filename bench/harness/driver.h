// Driver: runs the terminals of one worker and measures them. Owner thread: the worker's.
//
// Closed loop: each terminal wants its next transaction as soon as the last has ended. Open loop:
// transactions are wanted at the times of a Poisson process, whether or not a terminal is free, and the time
// that one waits for a terminal counts as latency: what stalls the system shows in the percentiles.
#ifndef FURROW_BENCH_HARNESS_DRIVER_H_
#define FURROW_BENCH_HARNESS_DRIVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/histogram.h"
#include "bench/harness/arrivals.h"
#include "bench/harness/result.h"
#include "bench/harness/workload.h"
#include "txn/worker.h"

namespace furrow::bench {

class Driver {
 public:
  struct Options {
    double rate = 0;  // transactions per second of this worker; 0: closed loop
    uint64_t seed = 1;
  };
  // `worker` outlives the driver. The driver dies after all terminals have ended, or after the tasks of the
  // worker's loop were destroyed.
  Driver(txn::Worker& worker, std::vector<std::string> types, Options options);

  // Starts all terminals. `stopped` is called once on this thread when all of them have ended: after Stop(),
  // or after a failure that ended the run.
  void Start(std::vector<std::unique_ptr<Terminal>> terminals, std::function<void()> stopped);
  // Terminals end after the transaction that they are in.
  void Stop();
  // Forgets what was measured: the end of the warm-up.
  void ResetMeasurement();
  // What was measured since; `cpu_ns` and `measured_ns` are the caller's to fill.
  Measurement Measured() const;
  // Since the last call: commits by type, attempts that were aborted, and the latencies of all types, as type
  // "all".
  Measurement TakeInterval();
  // Why the run ended by itself; empty: it did not.
  const std::string& failure() const { return failure_; }

 private:
  Task<void> RunTerminal(Terminal* terminal);
  void Record(const TxReport& report);
  void Fail(const absl::Status& status);

  txn::Worker& worker_;
  EventLoop& loop_;
  const std::vector<std::string> type_names_;
  const Options options_;
  std::vector<std::unique_ptr<Terminal>> terminals_;
  std::unique_ptr<Arrivals> arrivals_;
  std::function<void()> stopped_;
  size_t running_ = 0;
  size_t paced_ = 0;  // of the running ones, those that serve no queue
  bool stopping_ = false;
  std::string failure_;

  std::vector<TypeResult> types_;
  txn::WorkerStats base_;  // the worker's counters at the start of the measurement
  std::vector<uint64_t> interval_committed_;
  uint64_t interval_aborts_base_ = 0;
  Histogram interval_latency_;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_DRIVER_H_
