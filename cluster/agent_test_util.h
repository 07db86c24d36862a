// For tests: agents of one process over the shm fabric and real gRPC, with fake hosts.
#ifndef FURROW_CLUSTER_AGENT_TEST_UTIL_H_
#define FURROW_CLUSTER_AGENT_TEST_UTIL_H_

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/task.h"
#include "base/thread_parker.h"
#include "cluster/agent.h"
#include "cluster/file_config_store.h"
#include "gtest/gtest.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow::cluster {

inline const std::string kCluster(32, 'a');
inline const std::string kSecret(64, 'b');

class FakeHost final : public MemberHost {
 public:
  absl::StatusOr<rdma::RemoteAddress> CreateReplica(const ReplicaSpec& spec) override {
    return rdma::RemoteAddress{spec.id.value() * 4096u, rdma::RemoteKey(7)};
  }
  void CommitReplica(const RegionMapping&) override { ++committed; }
  void ReleaseReplica(RegionId) override {}
  absl::Status OnNewConfiguration(std::shared_ptr<const ClusterView>, bool) override {
    return absl::OkStatus();
  }
  void OnConfigurationCommitted(ConfigId) override {}
  absl::Status OnFounded(RegionId) override { return absl::OkStatus(); }
  MemberReport Report() override { return {}; }
  void OnEnded(const ClusterEnd& end) override {
    MutexLock lock(&mutex);
    why = end.why;
    in_good_order = end.in_good_order;
    ended.count_down();
  }
  std::atomic<int> committed{0};
  std::latch ended{1};
  Mutex mutex;
  std::string why ABSL_GUARDED_BY(mutex);
  bool in_good_order ABSL_GUARDED_BY(mutex) = false;
};

// Of all members in these tests.
inline constexpr Nanos kTestLease = 10 * kSecond;

// Goes on at once by what is added: as if the process had been stopped for so long.
class SkippingClock final : public Clock {
 public:
  Nanos Now() const override { return MonotonicClock().Now() + skipped.load(); }
  std::atomic<Nanos> skipped{0};
};

// One member, as client/ would assemble it.
struct Process {
  Process(const std::string& root, uint32_t node, Role role = Role::kStorage)
      : clock(MonotonicClock(), {}), safe_point(1) {
    endpoint = absl::StrCat(root, "/n", node, ".sock");
    fabric = *rdma::MakeShmFabric({.identity = {NodeId(node), kCluster, kSecret}});
    Agent::Options options;
    options.self.id = NodeId(node);
    options.self.incarnation = Incarnation(node);
    options.self.role = role;
    options.self.failure_domain = absl::StrCat(node);
    options.self.fabric_endpoint = endpoint;
    options.region_capacity = role == Role::kStorage ? 10 : 0;
    options.cluster_id = kCluster;
    options.secret = kSecret;
    options.clock_domain = "one";
    options.lease_ns = kTestLease;
    agent = std::make_unique<Agent>(std::move(options), host, time, *fabric, clock, safe_point, directory);
    EXPECT_TRUE(agent->Listen("127.0.0.1:0").ok());
    EXPECT_TRUE(
        fabric->Listen(endpoint, [this](const rdma::ConnectRequest& r) { return agent->Accept(r); }).ok());
  }
  ~Process() { agent->Stop(); }

  absl::Status Join(const Process& other) {
    ControlClient client(kSecret);
    absl::StatusOr<Introduction> introduction = SayHello(client, kSecret, other.agent->control_address(),
                                                         Role::kStorage, NodeId(), true, 5 * kSecond);
    if (!introduction.ok()) return introduction.status();
    absl::Status joined = agent->Join(*introduction);
    return joined.ok() ? agent->Ready() : joined;
  }

  void WaitForEnd(std::string* why) {
    host.ended.wait();
    MutexLock lock(&host.mutex);
    *why = host.why;
  }

  std::string endpoint;
  FakeHost host;
  SkippingClock time;
  ClusterClock clock;
  SafePoint safe_point;
  RegionDirectory directory;
  std::unique_ptr<rdma::Fabric> fabric;
  std::unique_ptr<Agent> agent;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    char name[] = "/tmp/furrow-agent-XXXXXX";
    root_ = mkdtemp(name);
    first_ = std::make_unique<Process>(root_, 1);
  }
  ~AgentTest() override {
    first_.reset();
    std::filesystem::remove_all(root_);
  }
  void Bootstrap(uint32_t replicas = 1) {
    auto store =
        FileConfigStore::Open({.directory = root_ + "/config", .expect_cluster_id = "", .fail = nullptr});
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(
        first_->agent->Bootstrap(*std::move(store), replicas, 1 << 21, Timestamp(1'000'000'000)).ok());
    ASSERT_TRUE(first_->agent->Ready().ok());
  }
  // Runs a coroutine of a worker to its end.
  template <class T>
  static T OnLoop(std::function<Task<T>()> make) {
    ThreadParker parker;
    EventLoop loop(MonotonicClock(), parker);
    std::optional<T> result;
    auto run = [&]() -> Task<void> {
      result.emplace(co_await make());
      loop.Stop();
    };
    loop.Spawn(run());
    loop.Run();
    return *std::move(result);
  }

  std::string root_;
  std::unique_ptr<Process> first_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_AGENT_TEST_UTIL_H_
