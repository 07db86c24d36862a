// What a commit costs: three nodes over shared memory in one process, driven by one thread in turn, so that
// all CPU time of coordinator, primaries and both backups is in one number.
//   commit_bench [transactions] [objects per transaction] [payload bytes] [share of objects at a remote
//   primary, %]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/event_loop.h"
#include "base/histogram.h"
#include "base/random.h"
#include "cluster/cluster_clock.h"
#include "cluster/region_directory.h"
#include "rdma/shm/shm_fabric.h"
#include "txn/node.h"
#include "txn/worker.h"

namespace furrow {
namespace {

constexpr uint64_t kRegionBytes = 64 << 20;

class AlwaysValid final : public cluster::Lease {
 public:
  bool valid() const override { return true; }
};

struct BenchNode {
  BenchNode(uint32_t number, const std::string& directory, uint64_t clock_origin, const cluster::Lease& lease)
      : id(number),
        endpoint(rdma::ShmEndpoint(directory, id)),
        fabric(*rdma::MakeShmFabric({.identity = {id, "bench", "secret"}})),
        queue(*fabric->CreateCompletionQueue()),
        loop(MonotonicClock(), queue->parker()),
        clock(MonotonicClock(), {}),
        old_memory(*MemoryFile::Anonymous(64 << 20)),
        old_registration(*fabric->Register(old_memory, rdma::Access::kRead)),
        old_versions(old_memory),
        budget(uint64_t{8} << 30, 0),
        safe_point(1) {
    clock.StartShared(clock_origin);
    txn::NodeOptions options;
    options.id = id;
    node = std::make_unique<txn::Node>(
        options, MonotonicClock(), *fabric,
        [](const std::string&, size_t bytes) { return MemoryFile::Anonymous(bytes); }, clock, lease,
        safe_point, directory_, &old_versions, budget);
  }

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
  std::unique_ptr<txn::Worker> worker;
};

struct Bench {
  explicit Bench(const std::string& directory) {
    for (uint32_t n = 1; n <= 3; ++n) {
      nodes.push_back(std::make_unique<BenchNode>(n, directory, 1'000'000'000'000, lease));
    }
    std::vector<cluster::Member> members;
    for (auto& n : nodes) {
      cluster::Member& member = members.emplace_back();
      member.id = n->id;
      member.fabric_endpoint = n->endpoint;
      member.old_versions = n->old_registration->remote_address();
    }
    auto view = std::make_shared<cluster::ClusterView>(ConfigId(1), NodeId(1), members);
    for (auto& n : nodes) {
      n->node->SetView(view);
      n->worker = std::make_unique<txn::Worker>(*n->node, WorkerId(0), n->loop, *n->queue, n->id.value());
      FURROW_CHECK(n->worker->Start().ok());
      txn::Worker* worker = n->worker.get();
      FURROW_CHECK(n->fabric
                       ->Listen(n->endpoint,
                                [worker](const rdma::ConnectRequest& r) { return worker->PrepareAccept(r); })
                       .ok());
    }
    for (auto& from : nodes) {
      for (auto& to : nodes) {
        if (from != to) Wait(from->worker->ConnectTo(to->id, to->endpoint), *from);
      }
    }
    for (uint32_t r = 1; r <= 3; ++r) MakeRegion(r);
  }

  void Turn() {
    Timestamp safe = Timestamp::Max();
    for (auto& n : nodes) {
      n->loop.RunOnce();
      cluster::ClockInterval now;
      n->clock.Now(&now);
      safe = std::min(safe, n->safe_point.OldestActive(now.lower));
    }
    for (auto& n : nodes) n->safe_point.Advance(safe, safe);
  }
  void Wait(Task<absl::Status> task, BenchNode& on) {
    bool done = false;
    on.loop.Spawn([](Task<absl::Status> t, bool* flag) -> Task<void> {
      absl::Status status = co_await t;
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      FURROW_CHECK(status.ok());
      *flag = true;
    }(std::move(task), &done));
    while (!done) Turn();
  }
  void MakeRegion(uint32_t primary) {
    cluster::RegionMapping mapping;
    mapping.id = mapping.locality = RegionId(primary);
    mapping.bytes = kRegionBytes;
    mapping.config = ConfigId(1);
    for (uint32_t i = 0; i < 3; ++i) {
      BenchNode& n = *nodes[(primary - 1 + i) % 3];
      mapping.replicas.push_back(
          {n.id, *n.node->CreateReplica(mapping.id, mapping.id, kRegionBytes, ConfigId(1), i == 0)});
    }
    for (auto& n : nodes) n->directory_.Put(mapping);
  }

  AlwaysValid lease;
  std::vector<std::unique_ptr<BenchNode>> nodes;
};

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
    Bench bench(directory);
    std::vector<Address> local, far;
    BenchNode& first = *bench.nodes[0];
    bench.Wait(Populate(*first.worker, RegionId(1), 50000, bytes, &local), first);
    bench.Wait(Populate(*first.worker, RegionId(2), 50000, bytes, &far), first);
    Nanos start = MonotonicClock().Now();
    bench.Wait(Work(*first.worker, transactions, objects, bytes, remote, local, far), first);
    Nanos ns = MonotonicClock().Now() - start;
    std::printf(
        "%lu transactions of %u objects of %u bytes, %u %% remote: %.2f us each, %.0f ns per object\n",
        transactions, objects, bytes, remote,
        1e-3 * static_cast<double>(ns) / static_cast<double>(transactions),
        static_cast<double>(ns) / static_cast<double>(transactions * objects));
    for (auto& n : bench.nodes) {
      std::printf("  node %u: committed %lu, applied as backup %lu\n", n->id.value(),
                  n->worker->stats().committed, n->worker->stats().applied);
    }
    Histogram latency;
    bench.Wait(ReadOne(*first.worker, transactions, bytes, far, &latency), first);
    std::printf("read-only, one row at a remote primary: p50 %.2f us, p99 %.2f us\n",
                1e-3 * static_cast<double>(latency.Percentile(50)),
                1e-3 * static_cast<double>(latency.Percentile(99)));
    for (auto& n : bench.nodes) n->worker.reset();
  }
  rmdir(directory);
  return 0;
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) { return furrow::Main(argc, argv); }
