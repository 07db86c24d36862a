// Host: this process as a member of a cluster, as far as a benchmark needs it.
#ifndef FURROW_BENCH_HARNESS_HOST_H_
#define FURROW_BENCH_HARNESS_HOST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/view.h"
#include "index/catalog.h"
#include "txn/worker.h"

namespace furrow::bench {

class Host {
 public:
  virtual ~Host() = default;  // leaves the cluster and stops the workers
  // Each runs on a thread of its own until the host is destroyed.
  virtual size_t workers() const = 0;
  virtual txn::Worker& worker(size_t i) = 0;
  virtual index::Catalog& catalog() = 0;
  // Mappings of all regions of the cluster.
  virtual Task<absl::StatusOr<std::vector<const cluster::RegionMapping*>>> Regions(txn::Worker& worker) = 0;
  // Why the cluster has ended for this process; OK while it lives. Any thread.
  virtual absl::Status ended() { return absl::OkStatus(); }
  // Whether the kernel backs any region of this process with huge pages.
  virtual bool HasHugePages() { return false; }
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_HOST_H_
