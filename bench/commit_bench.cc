// What a commit costs: three nodes over shared memory in one process, driven by one thread in turn, so that
// all CPU time of coordinator, primaries and both backups is in one number.
//   commit_bench [transactions] [objects per transaction] [payload bytes] [share of objects at a remote
//   primary, %]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/harness/static_cluster.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow {
namespace {

// A region whose primary is that node, with backups on the two others.
Task<absl::Status> MakeRegion(txn::Worker& worker, NodeId primary, RegionId* out) {
  FURROW_CO_ASSIGN_OR_RETURN(
      const cluster::RegionMapping* mapping,
      co_await worker.node().control->AllocateRegion(
          {.near = RegionId(), .newest_known = RegionId(), .preferred_primary = primary}));
  *out = mapping->id;
  co_return absl::OkStatus();
}

Task<absl::Status> Populate(txn::Worker& worker, RegionId region, uint32_t count, uint32_t bytes,
                            std::vector<Address>* out) {
  for (uint32_t made = 0; made < count; made += 100) {
    txn::CommitResult result = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
      for (uint32_t i = 0; i < 100; ++i) {
        auto allocation = co_await tx.Alloc(region, bytes);
        if (!allocation.ok()) co_return allocation.status();
        out->push_back(allocation->address);
      }
      co_return absl::OkStatus();
    });
    if (!result.committed()) co_return result.status;
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Work(txn::Worker& worker, uint64_t transactions, uint32_t objects, uint32_t bytes,
                        uint32_t remote_percent, const std::vector<Address>& local,
                        const std::vector<Address>& remote) {
  Random random(42);
  for (uint64_t t = 0; t < transactions; ++t) {
    txn::CommitResult result = co_await worker.Run([&](txn::Transaction& tx) -> Task<absl::Status> {
      for (uint32_t i = 0; i < objects; ++i) {
        const auto& from = random.Below(100) < remote_percent ? remote : local;
        Address address = from[random.Below(from.size())];
        auto read = co_await tx.Read(address, bytes);
        if (!read.ok()) co_return read.status();
        auto write = tx.OpenForWrite(address, bytes);
        if (!write.ok()) co_return write.status();
        (*write)[0] = std::byte(t);
      }
      co_return absl::OkStatus();
    });
    if (!result.committed()) co_return result.status;
  }
  co_return absl::OkStatus();
}

// One row per transaction, read-only, at a remote primary; each timed by itself.
Task<absl::Status> ReadOne(txn::Worker& worker, uint64_t transactions, uint32_t bytes,
                           const std::vector<Address>& remote, Histogram* latency) {
  Random random(43);
  txn::RunOptions options;
  options.transaction.read_only = true;
  for (uint64_t t = 0; t < transactions; ++t) {
    Address address = remote[random.Below(remote.size())];
    const Nanos start = MonotonicClock().Now();
    txn::CommitResult result = co_await worker.Run(
        [&](txn::Transaction& tx) -> Task<absl::Status> {
          co_return (co_await tx.Read(address, bytes)).status();
        },
        options);
    if (!result.committed()) co_return result.status;
    latency->Record(MonotonicClock().Now() - start);
  }
  co_return absl::OkStatus();
}

int Main(int argc, char** argv) {
  auto arg = [&](int i, uint64_t fallback) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : fallback;
  };
  const uint64_t transactions = arg(1, 100000);
  const uint32_t objects = static_cast<uint32_t>(arg(2, 20));
  const uint32_t bytes = static_cast<uint32_t>(arg(3, 100));
  const uint32_t remote = static_cast<uint32_t>(arg(4, 0));
  char directory[] = "/tmp/furrow-commit-XXXXXX";
  FURROW_CHECK(mkdtemp(directory) != nullptr);
  {
    bench::StaticCluster cluster({}, directory);
    txn::Worker& worker = cluster.worker(0);
    const auto run = [&cluster](Task<absl::Status> task) {
      const absl::Status status = cluster.Wait(0, std::move(task));
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      FURROW_CHECK(status.ok());
    };
    RegionId here, there;
    run(MakeRegion(worker, NodeId(1), &here));
    run(MakeRegion(worker, NodeId(2), &there));
    std::vector<Address> local, far;
    run(Populate(worker, here, 50000, bytes, &local));
    run(Populate(worker, there, 50000, bytes, &far));
    const uint64_t before = worker.stats().committed;
    Nanos start = MonotonicClock().Now();
    run(Work(worker, transactions, objects, bytes, remote, local, far));
    Nanos ns = MonotonicClock().Now() - start;
    FURROW_CHECK(worker.stats().committed == before + transactions);
    std::printf(
        "%lu transactions of %u objects of %u bytes, %u %% remote: %.2f us each, %.0f ns per object\n",
        transactions, objects, bytes, remote,
        1e-3 * static_cast<double>(ns) / static_cast<double>(transactions),
        static_cast<double>(ns) / static_cast<double>(transactions * objects));
    for (size_t n = 0; n < cluster.nodes(); ++n) {
      std::printf("  node %zu: committed %lu, applied as backup %lu\n", n + 1,
                  cluster.worker(n).stats().committed, cluster.worker(n).stats().applied);
    }
    Histogram latency;
    run(ReadOne(worker, transactions, bytes, far, &latency));
    std::printf("read-only, one row at a remote primary: p50 %.2f us, p99 %.2f us\n",
                1e-3 * static_cast<double>(latency.Percentile(50)),
                1e-3 * static_cast<double>(latency.Percentile(99)));
  }
  rmdir(directory);
  return 0;
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) { return furrow::Main(argc, argv); }
