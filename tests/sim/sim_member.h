// The parts of a SimCluster: one member, and what it has in place of a manager and a lease. For the .cc files
// of SimCluster only.
#ifndef FURROW_TESTS_SIM_SIM_MEMBER_H_
#define FURROW_TESTS_SIM_SIM_MEMBER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_cluster.h"
#include "txn/recovery/node_recovery.h"

namespace furrow::sim {

inline NodeId IdOf(uint32_t node) { return NodeId(node + 1); }

class SimCluster::MemberLease final : public cluster::Lease {
 public:
  bool valid() const override { return valid_; }
  void Expire() { valid_ = false; }

 private:
  bool valid_ = true;
};

// The configuration manager's part for regions: makes them after a drawn delay.
class SimCluster::Control final : public cluster::ControlPlane {
 public:
  Control(SimCluster& c, uint32_t node) : cluster_(c), node_(node) {}
  Task<absl::StatusOr<const cluster::RegionMapping*>> AllocateRegion(
      cluster::AllocateRegionRequest request) override {
    co_await EventLoop::Current()->SleepFor(cluster_.random_.Between(1'000, 300'000));
    cluster::RegionDirectory& directory = cluster_.node(node_).directory;
    if (request.near != RegionId()) {
      std::vector<RegionId> group = directory.Group(request.near);
      if (!group.empty() && group.back() != request.newest_known) co_return directory.Find(group.back());
    }
    uint32_t primary = request.preferred_primary == NodeId() ? node_ : request.preferred_primary.value() - 1;
    absl::StatusOr<RegionId> id = cluster_.AddRegion(primary, request.near);
    if (!id.ok()) co_return id.status();
    co_return directory.Find(*id);
  }
  Task<absl::StatusOr<const cluster::RegionMapping*>> LookupRegion(RegionId id) override {
    const cluster::RegionMapping* mapping = cluster_.node(node_).directory.Find(id);
    if (mapping == nullptr) co_return absl::NotFoundError(absl::StrCat("there is no region ", id.value()));
    co_return mapping;
  }

 private:
  SimCluster& cluster_;
  const uint32_t node_;
};

struct SimCluster::Member {
  Member(SimCluster& c, uint32_t i)
      : process(c.world_.StartProcess(IdOf(i))),
        index(i),
        fabric(c.network_.MakeFabric(process, {IdOf(i), "sim", "secret"})),
        clock(process.clock(), {}),
        safe_point(c.options_.workers),
        old_memory(*MemoryFile::Anonymous(size_t{c.options_.old_version_blocks} << 20)),
        old_region(*fabric->Register(old_memory, rdma::Access::kRead)),
        old_versions(old_memory),
        budget(uint64_t{1} << 32, 1 << 20),
        control(c, i) {}
  ~Member() {
    // The frames of clients first, then the workers that they use.
    for (auto& loop : loops) {
      process.Detach(*loop);
      loop->DestroyTasks();
    }
  }

  rdma::SimProcess& process;
  const uint32_t index;
  std::unique_ptr<rdma::Fabric> fabric;
  cluster::ClusterClock clock;
  cluster::SafePoint safe_point;
  cluster::RegionDirectory directory;
  MemoryFile old_memory;
  std::unique_ptr<rdma::MemoryRegion> old_region;
  storage::OldVersionArena old_versions;
  storage::MemoryBudget budget;
  Control control;
  MemberLease lease;
  bool member = true;  // in the newest configuration
  std::unique_ptr<txn::Node> node;
  std::unique_ptr<txn::NodeRecovery> recovery;
  std::vector<std::unique_ptr<rdma::CompletionQueue>> queues;
  std::vector<std::unique_ptr<EventLoop>> loops;
  std::vector<std::unique_ptr<txn::Worker>> workers;
};

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_SIM_MEMBER_H_
