// TPC-C as a workload of the harness.
#ifndef FURROW_BENCH_TPCC_WORKLOAD_H_
#define FURROW_BENCH_TPCC_WORKLOAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness/workload.h"
#include "bench/tpcc/random.h"
#include "bench/tpcc/tables.h"

namespace furrow::bench::tpcc {

// Transactions in flight on a worker, unless the user says otherwise: one per warehouse that it serves, since
// two in the same warehouse conflict often. Where the warehouses lie in the worker's own process at least
// two, so that one runs while the other waits for its backups; where every read and lock crosses to another
// process, two in one warehouse abort each other in half of their attempts.
constexpr size_t TerminalsOf(size_t warehouses, bool co_located) {
  return std::clamp<size_t>(warehouses, co_located ? 2 : 1, 8);
}

// What a warehouse takes of the memory of each of its replicas after the load, at full scale.
inline constexpr uint64_t kWarehouseBytes = uint64_t{120} << 20;

// Where a benchmark's data comes from.
enum class Data : uint8_t {
  kNew,      // Create() and Load(); there is none yet
  kReplace,  // the same; Create() drops what is there
  kThere,    // an earlier load's, which Open() takes a look at
};

class TpccWorkload final : public Workload {
 public:
  // `seed` is the same in all processes of a benchmark. `co_located`: terminals stand only in warehouses
  // whose primary is this process, and each process loads those; otherwise the processes and workers share
  // all warehouses evenly.
  TpccWorkload(Scale scale, uint64_t seed, bool co_located, Data data = Data::kNew)
      : scale_(scale),
        seed_(seed),
        co_located_(co_located),
        data_(data),
        constants_(NurandConstants::FromSeed(seed)) {}

  std::vector<std::string> types() const override;
  Task<absl::Status> Create(index::Catalog& catalog, txn::Worker& worker) override;
  Task<absl::Status> Open(index::Catalog& catalog, txn::Worker& worker) override;
  Task<absl::Status> Load(txn::Worker& worker, Place place, Progress* progress) override;
  std::vector<std::unique_ptr<Terminal>> MakeTerminals(txn::Worker& worker, Place place, size_t count,
                                                       uint64_t seed) override;
  Task<absl::Status> Check(Host& host, txn::Worker& worker, bool after_load,
                           std::vector<CheckResult>* results) override;

 private:
  // The warehouses of one worker.
  std::vector<uint32_t> Share(txn::Worker& worker, Place place) const;

  const Scale scale_;
  const uint64_t seed_;
  const bool co_located_;
  const Data data_;
  const NurandConstants constants_;
  std::unique_ptr<Tables> tables_;  // set by Open, before workers use it
};

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_WORKLOAD_H_
