// Reads whole regions, block by block, from any of their replicas: for checks of a cluster in which nothing
// runs and every record is truncated. Reads its own node's replicas in place and those of peers with
// one-sided READs.
#ifndef FURROW_BENCH_HARNESS_REPLICAS_H_
#define FURROW_BENCH_HARNESS_REPLICAS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/memory_file.h"
#include "base/task.h"
#include "bench/harness/result.h"
#include "cluster/view.h"
#include "rdma/fabric.h"
#include "storage/object.h"
#include "txn/worker.h"

namespace furrow::bench {

// One block of a region, as one replica has it.
struct BlockImage {
  uint32_t slot_bytes = 0;  // 0: free
  uint64_t version = 0;
  std::span<const std::byte> bytes;  // empty if the block is free
};

class ReplicaReader {
 public:
  // Owner thread: the worker's.
  static absl::StatusOr<std::unique_ptr<ReplicaReader>> Create(txn::Worker& worker);

  // Reads the headers of the region's blocks; index 0 is unused.
  Task<absl::StatusOr<std::vector<BlockImage>>> ReadBlockTable(const cluster::RegionMapping& mapping,
                                                               size_t replica);
  // Fills `block->bytes`, valid until the next call with the same `buffer` (0 or 1).
  Task<absl::Status> ReadBlock(const cluster::RegionMapping& mapping, size_t replica, uint32_t number,
                               int buffer, BlockImage* block);

 private:
  explicit ReplicaReader(txn::Worker& worker) : worker_(worker) {}
  Task<absl::StatusOr<std::span<const std::byte>>> Read(const cluster::Replica& replica, RegionId region,
                                                        uint64_t offset, std::span<std::byte> buffer);

  txn::Worker& worker_;
  MemoryFile memory_;
  std::unique_ptr<rdma::MemoryRegion> registration_;
};

// Compares every object of every region on all its replicas, and calls `each` with the payload of every
// allocated object of the primaries. The result's detail says where the first difference is.
Task<absl::StatusOr<CheckResult>> CompareReplicas(txn::Worker& worker,
                                                  std::vector<const cluster::RegionMapping*> regions,
                                                  absl::FunctionRef<void(std::span<const std::byte>)> each);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_REPLICAS_H_
