// What a transaction of TPC-C's mix costs: three nodes over shared memory in one process, driven by one
// thread in turn, so that all the CPU time of terminals, coordinators, primaries and both backups is in one
// number.
//   tpcc_mix [warehouses] [seconds] [terminals per node] [type: one of the five, or all]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/harness/agent.h"
#include "bench/harness/driver.h"
#include "bench/harness/static_cluster.h"
#include "bench/tpcc/workload.h"

namespace furrow::bench::tpcc {
namespace {

int Main(int argc, char** argv) {
  auto arg = [&](int i, uint64_t fallback) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : fallback;
  };
  Scale scale;
  scale.warehouses = static_cast<uint32_t>(arg(1, 3));
  const Nanos seconds = static_cast<Nanos>(arg(2, 10));
  const size_t terminals = arg(3, 4);
  char directory[] = "/tmp/furrow-mix-XXXXXX";
  FURROW_CHECK(mkdtemp(directory) != nullptr);
  {
    StaticCluster cluster({}, directory);
    const uint32_t nodes = static_cast<uint32_t>(cluster.nodes());
    scale.item_copies = nodes;
    std::vector<std::unique_ptr<TpccWorkload>> workloads;
    auto place = [&](uint32_t n) {
      return Place{.process = n, .processes = nodes, .worker = 0, .workers = 1};
    };
    auto must = [](const absl::Status& status) {
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      FURROW_CHECK(status.ok());
    };
    Nanos start = MonotonicClock().Now();
    Progress progress;
    for (uint32_t n = 0; n < nodes; ++n) {
      workloads.push_back(std::make_unique<TpccWorkload>(scale, 1, true));
      if (n == 0) must(cluster.Wait(0, workloads[0]->Create(cluster.host(0).catalog(), cluster.worker(0))));
      must(cluster.Wait(n, workloads[n]->Open(cluster.host(n).catalog(), cluster.worker(n))));
      must(cluster.Wait(n, workloads[n]->Load(cluster.worker(n), place(n), &progress)));
    }
    const double load = static_cast<double>(MonotonicClock().Now() - start);
    std::printf("loaded %lu rows in %.1f s, %.2f us per row\n", progress.done.load(), load / kSecond,
                load / kMicrosecond / static_cast<double>(progress.done.load()));
    std::fflush(stdout);

    std::vector<std::unique_ptr<Driver>> drivers;
    size_t running = nodes;
    for (uint32_t n = 0; n < nodes; ++n) {
      drivers.push_back(
          std::make_unique<Driver>(cluster.worker(n), workloads[n]->types(), Driver::Options{}));
      drivers[n]->Start(workloads[n]->MakeTerminals(cluster.worker(n), place(n), terminals, n + 1),
                        [&running] { --running; });
    }
    auto run_for = [&cluster](Nanos ns) {
      const Nanos end = MonotonicClock().Now() + ns;
      cluster.TurnUntil([end] { return MonotonicClock().Now() > end; });
    };
    run_for(kSecond);
    for (auto& driver : drivers) driver->ResetMeasurement();
    start = MonotonicClock().Now();
    const uint64_t cpu = ProcessCpuNanos();
    run_for(seconds * kSecond);
    const Nanos measured = MonotonicClock().Now() - start;
    Report report;
    report.workload = "tpcc_mix";
    report.nodes = report.replicas = nodes;
    report.headline_type = "new_order";
    report.headline_name = "new_orders_per_second";
    for (auto& driver : drivers) report.measured.Merge(driver->Measured());
    report.measured.measured_ns = measured;
    report.measured.cpu_ns = ProcessCpuNanos() - cpu;
    std::printf("%s", report.Table().c_str());
    std::fflush(stdout);
    for (auto& driver : drivers) driver->Stop();
    cluster.TurnUntil([&running] { return running == 0; });
    must(cluster.Drain());
    std::vector<CheckResult> checks;
    start = MonotonicClock().Now();
    must(cluster.Wait(0, workloads[0]->Check(cluster.host(0), cluster.worker(0), false, &checks)));
    for (const CheckResult& check : checks) {
      if (!check.pass) std::printf("FAIL %s: %s\n", check.name.c_str(), check.detail.c_str());
    }
    std::printf("%zu checks in %.1f s\n", checks.size(),
                static_cast<double>(MonotonicClock().Now() - start) / kSecond);
  }
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace furrow::bench::tpcc

int main(int argc, char** argv) { return furrow::bench::tpcc::Main(argc, argv); }
