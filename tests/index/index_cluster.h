// A simulated three-node cluster with a catalog per node, for the tests of index/.
#ifndef FURROW_TESTS_INDEX_INDEX_CLUSTER_H_
#define FURROW_TESTS_INDEX_INDEX_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/task.h"
#include "gtest/gtest.h"
#include "index/catalog.h"
#include "index/table.h"
#include "tests/sim/sim_cluster.h"
#include "txn/worker.h"

namespace furrow::index {

inline sim::SimClusterOptions IndexClusterOptions() {
  sim::SimClusterOptions options;
  options.exact_clocks = true;
  options.world.clocks.max_offset = 0;
  options.world.clocks.max_drift_ppb = 0;
  options.region_bytes = 32 << 20;
  options.log_ring_bytes = 1 << 20;
  options.old_version_blocks = 4;
  return options;
}

class IndexCluster {
 public:
  explicit IndexCluster(uint64_t seed, sim::SimClusterOptions options = IndexClusterOptions(),
                        std::vector<size_t> cache_bytes = {1 << 20, 1 << 20, 1 << 20})
      : sim_(seed, options) {
    Check(sim_.Start());
    Check(sim_.AddRegion(0).status());
    for (uint32_t n = 0; n < sim_.nodes(); ++n) {
      catalogs_.push_back(std::make_unique<Catalog>(CatalogOptions{
          .first_region = RegionId(1), .inner_cache_bytes = cache_bytes[n % cache_bytes.size()]}));
    }
    RunOn(0,
          [](txn::Worker& worker) -> Task<void> { Check(co_await Catalog::Bootstrap(worker, RegionId(1))); });
  }

  sim::SimCluster& sim() { return sim_; }
  txn::Worker& worker(uint32_t node) { return sim_.worker(node, 0); }
  Catalog& catalog(uint32_t node) { return *catalogs_[node]; }

  // Runs `body`, a coroutine of a worker, on a node until it ends.
  template <class Body>
  void RunOn(uint32_t node, Body body) {
    bool done = false;
    auto task = [&]() -> Task<void> {
      co_await body(worker(node));
      done = true;
    };
    worker(node).loop().Spawn(task());
    RunUntil([&] { return done; });
  }
  // One that comes to no end is the cluster's last: tasks refer to what their callers have on the stack.
  template <class Done>
  void RunUntil(Done done) {
    if (abandoned_) return;
    const absl::Status status = sim_.world().RunUntil(done, sim_.world().now() + 600 * kSecond);
    Check(status);
    if (status.ok()) return;
    abandoned_ = true;
    sim_.Abandon();
  }

  std::shared_ptr<const Table> Create(uint32_t node, TableSpec spec) {
    std::shared_ptr<const Table> table;
    RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      auto made = co_await catalog(node).CreateTable(worker, spec);
      Check(made.status());
      if (made.ok()) table = *made;
    });
    return table;
  }
  std::shared_ptr<const Table> Open(uint32_t node, std::string name) {
    std::shared_ptr<const Table> table;
    RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      auto opened = co_await catalog(node).Open(worker, name);
      Check(opened.status());
      if (opened.ok()) table = *opened;
    });
    return table;
  }

  static void Check(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

 private:
  sim::SimCluster sim_;
  std::vector<std::unique_ptr<Catalog>> catalogs_;
  bool abandoned_ = false;
};

}  // namespace furrow::index

#endif  // FURROW_TESTS_INDEX_INDEX_CLUSTER_H_
