// The Host that a real process is: a member of a cluster, storage or compute, with the catalog of its tables.
#ifndef FURROW_BENCH_HARNESS_MEMBER_HOST_H_
#define FURROW_BENCH_HARNESS_MEMBER_HOST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/host.h"
#include "bench/harness/run.h"
#include "client/member.h"
#include "index/catalog.h"

namespace furrow::bench {

class MemberHost final : public Host {
 public:
  // Joins as `flags` say: process `flags.agent_index` of --symmetric, of which the first founds the cluster
  // in flags.dir; or a compute member of flags.cluster. Blocks.
  static absl::StatusOr<std::unique_ptr<MemberHost>> Start(const CommonFlags& flags);
  ~MemberHost() override;

  size_t workers() const override { return member_->workers(); }
  txn::Worker& worker(size_t i) override { return member_->worker(i); }
  index::Catalog& catalog() override { return *catalog_; }
  Task<absl::StatusOr<std::vector<const cluster::RegionMapping*>>> Regions(txn::Worker& worker) override;

  absl::Status ended() override { return member_->ended(); }
  bool HasHugePages() override;

  // The line that the parent waits for: "ready REPLICAS NODES DURABILITY".
  absl::StatusOr<std::string> ReadyLine(const CommonFlags& flags);

 private:
  MemberHost() = default;
  std::unique_ptr<client::Member> member_;
  std::unique_ptr<index::Catalog> catalog_;
};

// Memory that a storage process of --symmetric may use when the user does not say: its share of what this
// host has free, in main memory and in /dev/shm.
absl::StatusOr<uint64_t> DefaultMemoryBytes(uint64_t processes);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_MEMBER_HOST_H_
