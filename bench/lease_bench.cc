// Whether this host is good enough for a lease: members that renew theirs over shared memory, each from a
// control thread of its own, beside threads that only burn processor time. Counts false alarms: nobody dies
// here.
//   lease_bench [lease, ms] [seconds] [members] [busy threads] [renewals] [real-time priority, 0: none]
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/histogram.h"
#include "base/thread.h"
#include "cluster/control_link.h"
#include "cluster/lease_book.h"
#include "cluster/member_lease.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow {
namespace {

struct Settings {
  Nanos lease_ns = 10 * kMillisecond;
  Nanos seconds = 10;
  uint32_t members = 3;
  uint32_t busy = 4;
  int renewals = 5;
  int priority = 50;
};

// By the control threads.
struct Counts {
  std::atomic<uint64_t> silent{0};  // one side has counted the other as lost
  std::atomic<uint64_t> broken{0};  // a connection
  std::atomic<uint64_t> lapses{0};  // times that a lease was over when it was renewed
  std::atomic<uint64_t> renewals{0};
};

struct Node {
  explicit Node(const std::string& root, uint32_t number)
      : id(number),
        endpoint(absl::StrCat(root, "/n", number, ".sock")),
        clock(MonotonicClock(), {}),
        lease(clock) {}
  const NodeId id;
  const std::string endpoint;
  cluster::ClusterClock clock;
  cluster::MemberLease lease;
  cluster::SafePoint safe_point{1};
  std::latch connected{1};
  bool counted = false;    // control thread
  bool waiting = false;    // to connect again; control thread
  Nanos last_renewal = 0;  // control thread
  Histogram age;           // of the lease at its renewal; control thread
  std::unique_ptr<rdma::Fabric> fabric;
  std::unique_ptr<rdma::CompletionQueue> queue;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<cluster::ControlLink> link;
  Thread thread;
};

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(settings), book_(settings.lease_ns, 1000) {
    char name[] = "/tmp/furrow-lease-XXXXXX";
    root_ = mkdtemp(name);
    for (uint32_t i = 1; i <= settings_.members; ++i) Add(i);
  }
  ~Bench() {
    nodes_.clear();
    std::filesystem::remove_all(root_);
  }

  void Run() {
    for (auto& node : nodes_) {
      node->thread = Thread({.name = "control", .realtime_priority = settings_.priority, .cpu = {}},
                            [loop = node->loop.get()] { loop->Run(); });
    }
    if (!nodes_[0]->thread.settings().ok()) {
      std::printf("%s\n", std::string(nodes_[0]->thread.settings().message()).c_str());
    }
    if (absl::Status locked = LockMemory(); !locked.ok()) {
      std::printf("%s\n", std::string(locked.message()).c_str());
    }
    for (size_t i = 1; i < nodes_.size(); ++i) {
      nodes_[i]->loop->Post([this, n = nodes_[i].get()] { Connect(*n); });
    }
    for (size_t i = 1; i < nodes_.size(); ++i) nodes_[i]->connected.wait();
    std::vector<Thread> busy;
    std::atomic<bool> stop{false};
    measuring_ = true;
    for (uint32_t i = 0; i < settings_.busy; ++i) {
      busy.emplace_back(ThreadOptions{.name = "busy"}, [&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    SleepThreadUntil(MonotonicClock().Now() + settings_.seconds * kSecond);
    stop = true;
    measuring_ = false;
    for (auto& node : nodes_) {
      node->loop->Post([n = node.get()] {
        n->link->Stop();
        n->loop->Stop();
      });
      node->thread.Join();
    }
  }

  bool Report() {
    Histogram age;
    for (auto& node : nodes_) age.Merge(node->age);
    std::printf("lease %.3g ms, %u members, %u busy threads on %d processors, priority %d, %lld s\n",
                static_cast<double>(settings_.lease_ns) / kMillisecond, settings_.members, settings_.busy,
                AvailableCpus(), settings_.priority, static_cast<long long>(settings_.seconds));
    std::printf("%llu renewals; age of a lease when it is renewed: p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
                static_cast<unsigned long long>(counts_.renewals.load()),
                static_cast<double>(age.Percentile(50)) / kMillisecond,
                static_cast<double>(age.Percentile(99)) / kMillisecond,
                static_cast<double>(age.max()) / kMillisecond);
    std::printf("false alarms: %llu losses, %llu leases that ran out and came back\n",
                static_cast<unsigned long long>(counts_.silent.load() + counts_.broken.load()),
                static_cast<unsigned long long>(counts_.lapses.load()));
    return counts_.silent + counts_.broken + counts_.lapses == 0;
  }

 private:
  void Add(uint32_t number) {
    nodes_.push_back(std::make_unique<Node>(root_, number));
    Node* const node = nodes_.back().get();
    const bool manager = number == 1;
    node->fabric = *rdma::MakeShmFabric({.identity = {node->id, "lease bench", "secret"}});
    node->queue = *node->fabric->CreateCompletionQueue();
    node->loop = std::make_unique<EventLoop>(MonotonicClock(), node->queue->parker(),
                                             IdlePolicy{.spin_ns = 0, .yields = 0});
    if (manager) {
      node->clock.StartMaster(Timestamp(1'000'000'000));
      FURROW_CHECK(node->fabric
                       ->Listen(node->endpoint,
                                [node](const rdma::ConnectRequest& r) { return node->link->Accept(r.peer); })
                       .ok());
    } else {
      node->clock.StartShared(nodes_[0]->clock.origin());
      book_.AddKnown(node->id, cluster::Role::kStorage);
    }
    cluster::ControlLink::Options options;
    options.self = node->id;
    options.manager = manager;
    options.lease_ns = settings_.lease_ns;
    options.renewals = settings_.renewals;
    options.report = [](NodeId, Timestamp, Timestamp) { return cluster::ControlLink::Safe{}; };
    options.lease = [this, node](NodeId from, Nanos now, Nanos counter) {
      const Nanos term = book_.OnRequest(from, now, counter);
      node->lease.SetUntil(book_.right());
      return term;
    };
    options.answered = [this, node](Nanos sent, Nanos term) { Renew(*node, sent, term); };
    options.lost = [this, node, manager](NodeId, cluster::ControlLink::Loss how) {
      if (!manager) ConnectAgain(*node);
      if (!measuring_) return;
      ++(how == cluster::ControlLink::Loss::kSilent ? counts_.silent : counts_.broken);
    };
    options.bad_clock = [](absl::Status) {};
    node->link = std::make_unique<cluster::ControlLink>(std::move(options), *node->loop, *node->fabric,
                                                        *node->queue, node->clock, node->safe_point);
    FURROW_CHECK(node->link->Start().ok());
  }

  void ConnectAgain(Node& node) {
    if (!std::exchange(node.waiting, true)) node.loop->Post([this, &node] { Connect(node); });
  }
  // On the member's control thread; again after each loss.
  void Connect(Node& node) {
    node.last_renewal = 0;
    node.waiting = false;
    node.link->Connect(NodeId(1), nodes_[0]->endpoint, 10 * kSecond, [this, &node](absl::Status status) {
      if (!status.ok()) return ConnectAgain(node);
      node.lease.Grant();
      if (!std::exchange(node.counted, true)) node.connected.count_down();
    });
  }
  // On the member's control thread.
  void Renew(Node& node, Nanos sent, Nanos term) {
    const Nanos now = node.clock.LocalNow();
    if (measuring_ && node.last_renewal != 0) {
      node.age.Record(now - node.last_renewal);
      if (!node.lease.valid()) ++counts_.lapses;
    }
    node.last_renewal = sent;
    node.lease.Answered(sent, term);
    ++counts_.renewals;
  }

  const Settings settings_;
  std::string root_;
  cluster::LeaseBook book_;  // the manager's control thread
  std::atomic<bool> measuring_{false};
  Counts counts_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) {
  furrow::Settings s;
  auto number = [&](int i, long fallback) { return i < argc ? std::atol(argv[i]) : fallback; };
  if (argc > 7 || (argc > 1 && argv[1][0] == '-')) {
    std::printf(
        "lease_bench [lease, ms: 10] [seconds: 10] [members: 3] [busy threads: 4] [renewals: 5]\n"
        "            [real-time priority: 50; 0: none]\n"
        "Members renew leases beside busy threads. Exit code 1 if there was a false alarm.\n");
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  s.lease_ns = std::max(1L, number(1, 10)) * furrow::kMillisecond;
  s.seconds = std::max(1L, number(2, 10));
  s.members = static_cast<uint32_t>(std::clamp(number(3, 3), 2L, 100L));
  s.busy = static_cast<uint32_t>(std::clamp(number(4, 4), 0L, 1000L));
  s.renewals = static_cast<int>(std::clamp(number(5, 5), 2L, 100L));
  s.priority = static_cast<int>(std::clamp(number(6, 50), 0L, 99L));
  furrow::Bench bench(s);
  bench.Run();
  return bench.Report() ? 0 : 1;
}
