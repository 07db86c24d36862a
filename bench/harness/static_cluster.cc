#include "bench/harness/static_cluster.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "cluster/cluster_clock.h"
#include "cluster/region_directory.h"
#include "rdma/shm/shm_fabric.h"
#include "storage/memory_budget.h"
#include "storage/old_versions.h"
#include "txn/node.h"

namespace furrow::bench {
namespace {

constexpr uint64_t kClockOrigin = 1'000'000'000'000;
constexpr ConfigId kConfig{1};

class AlwaysValid final : public cluster::Lease {
 public:
  bool valid() const override { return true; }
};

template <class T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  FURROW_CHECK(result.ok());
  return std::move(result).value();
}

}  // namespace

struct StaticCluster::Member final : public Host, public cluster::ControlPlane {
  Member(StaticCluster& c, NodeId node_id, const std::string& directory)
      : cluster(c),
        id(node_id),
        endpoint(rdma::ShmEndpoint(directory, id)),
        fabric(Must(rdma::MakeShmFabric({.identity = {id, "static", "secret"}}))),
        queue(Must(fabric->CreateCompletionQueue())),
        loop(MonotonicClock(), queue->parker()),
        clock(MonotonicClock(), {}),
        old_memory(Must(MemoryFile::Anonymous(c.options_.old_version_bytes))),
        old_registration(Must(fabric->Register(old_memory, rdma::Access::kRead))),
        old_versions(old_memory),
        budget(c.options_.memory_bytes, 0),
        safe_point(1) {
    clock.StartShared(kClockOrigin);
    txn::NodeOptions node_options;
    node_options.id = id;
    node_options.region_bytes = c.options_.region_bytes;
    node = std::make_unique<txn::Node>(
        node_options, MonotonicClock(), *fabric,
        [](const std::string&, size_t bytes) { return MemoryFile::Anonymous(bytes); }, clock, *c.lease_,
        safe_point, directory_, &old_versions, budget);
    node->control = this;
  }

  // Host
  size_t workers() const override { return 1; }
  txn::Worker& worker(size_t) override { return *the_worker; }
  index::Catalog& catalog() override { return the_catalog; }
  Task<absl::StatusOr<std::vector<const cluster::RegionMapping*>>> Regions(txn::Worker&) override {
    co_return directory_.All();
  }

  // ControlPlane
  Task<absl::StatusOr<const cluster::RegionMapping*>> AllocateRegion(
      cluster::AllocateRegionRequest request) override {
    FURROW_CO_ASSIGN_OR_RETURN(const RegionId region, cluster.AllocateRegion(request));
    co_return directory_.Find(region);
  }
  Task<absl::StatusOr<const cluster::RegionMapping*>> LookupRegion(RegionId region) override {
    const cluster::RegionMapping* mapping = directory_.Find(region);
    if (mapping == nullptr)
      co_return absl::NotFoundError(absl::StrCat("there is no region ", region.value()));
    co_return mapping;
  }

  StaticCluster& cluster;
  NodeId id;
  rdma::Endpoint endpoint;
  std::unique_ptr<rdma::Fabric> fabric;
  std::unique_ptr<rdma::CompletionQueue> queue;
  EventLoop loop;
  cluster::ClusterClock clock;
  cluster::RegionDirectory directory_;
  MemoryFile old_memory;
  std::unique_ptr<rdma::MemoryRegion> old_registration;
  storage::OldVersionArena old_versions;
  storage::MemoryBudget budget;
  cluster::SafePoint safe_point;
  std::unique_ptr<txn::Node> node;
  std::unique_ptr<txn::Worker> the_worker;
  index::Catalog the_catalog;
};

StaticCluster::StaticCluster(Options options, std::string directory)
    : options_(options), lease_(std::make_unique<AlwaysValid>()) {
  std::vector<cluster::Member> members;
  for (uint32_t n = 1; n <= options_.nodes; ++n) {
    nodes_.push_back(std::make_unique<Member>(*this, NodeId(n), directory));
    cluster::Member& member = members.emplace_back();
    member.id = NodeId(n);
    member.fabric_endpoint = nodes_.back()->endpoint;
    member.old_versions = nodes_.back()->old_registration->remote_address();
    member.old_version_bytes = nodes_.back()->old_memory.size();
  }
  const auto view = std::make_shared<cluster::ClusterView>(kConfig, NodeId(1), members);
  for (auto& n : nodes_) {
    n->node->SetView(view);
    n->the_worker = std::make_unique<txn::Worker>(*n->node, WorkerId(0), n->loop, *n->queue, n->id.value());
    FURROW_CHECK(n->the_worker->Start().ok());
    auto accept = [worker = n->the_worker.get()](const rdma::ConnectRequest& r) {
      return worker->PrepareAccept(r);
    };
    FURROW_CHECK(n->fabric->Listen(n->endpoint, accept).ok());
  }
  for (size_t from = 0; from < nodes_.size(); ++from) {
    for (auto& to : nodes_) {
      if (nodes_[from] == to) continue;
      FURROW_CHECK(Wait(from, nodes_[from]->the_worker->ConnectTo(to->id, to->endpoint)).ok());
    }
  }
  FURROW_CHECK(AllocateRegion({}).ok());
  FURROW_CHECK(Wait(0, index::Catalog::Bootstrap(worker(0), RegionId(1))).ok());
}

StaticCluster::~StaticCluster() {
  for (auto& n : nodes_) n->loop.DestroyTasks();
  for (auto& n : nodes_) n->the_worker.reset();
}

txn::Worker& StaticCluster::worker(size_t node) { return *nodes_[node]->the_worker; }
Host& StaticCluster::host(size_t node) { return *nodes_[node]; }

void StaticCluster::Turn() {
  Timestamp safe = Timestamp::Max();
  for (auto& n : nodes_) {
    n->loop.RunOnce();
    cluster::ClockInterval now;
    FURROW_CHECK(n->clock.Now(&now));
    safe = std::min(safe, n->safe_point.OldestActive(now.lower));
  }
  for (auto& n : nodes_) n->safe_point.Advance(safe, safe);
}

void StaticCluster::TurnUntil(const std::function<bool()>& done) {
  while (!done()) Turn();
}

absl::Status StaticCluster::Wait(size_t node, Task<absl::Status> task) {
  struct Waiting {
    static Task<void> For(Task<absl::Status> t, absl::Status* result, bool* ended) {
      *result = co_await t;
      *ended = true;
    }
  };
  absl::Status status;
  bool ended = false;
  nodes_[node]->loop.Spawn(Waiting::For(std::move(task), &status, &ended));
  TurnUntil([&ended] { return ended; });
  return status;
}

absl::Status StaticCluster::Drain() {
  for (size_t n = 0; n < nodes_.size(); ++n) FURROW_RETURN_IF_ERROR(Wait(n, worker(n).Drain()));
  return absl::OkStatus();
}

absl::StatusOr<RegionId> StaticCluster::AllocateRegion(const cluster::AllocateRegionRequest& request) {
  cluster::RegionMapping mapping;
  mapping.id = RegionId(static_cast<uint32_t>(regions_.size() + 1));
  mapping.locality = mapping.id;
  mapping.bytes = options_.region_bytes;
  mapping.config = kConfig;
  size_t primary = regions_.size() % nodes_.size();
  if (request.near != RegionId()) {
    mapping.locality = regions_[request.near.value() - 1].locality;
    for (const cluster::RegionMapping& known : regions_) {
      if (known.locality == mapping.locality && known.id > request.newest_known) return known.id;
    }
    primary = regions_[mapping.locality.value() - 1].primary().node.value() - 1;
  } else if (request.preferred_primary != NodeId()) {
    primary = request.preferred_primary.value() - 1;
  }
  for (uint32_t i = 0; i < options_.replicas; ++i) {
    Member& n = *nodes_[(primary + i) % nodes_.size()];
    FURROW_ASSIGN_OR_RETURN(
        const rdma::RemoteAddress memory,
        n.node->CreateReplica(mapping.id, mapping.locality, mapping.bytes, kConfig, i == 0));
    mapping.replicas.push_back({n.id, memory});
  }
  regions_.push_back(mapping);
  for (auto& n : nodes_) n->directory_.Put(mapping);
  return mapping.id;
}

}  // namespace furrow::bench
