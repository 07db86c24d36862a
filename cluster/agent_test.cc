// Agents of one process over the shm fabric and real gRPC, with fake hosts.
#include "cluster/agent.h"

#include <stdlib.h>

#include <filesystem>
#include <latch>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/thread_parker.h"
#include "cluster/file_config_store.h"
#include "cluster/proto/cluster.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow::cluster {
namespace {

using ::testing::HasSubstr;

const std::string kCluster(32, 'a');
const std::string kSecret(64, 'b');

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
    agent = std::make_unique<Agent>(std::move(options), host, MonotonicClock(), *fabric, clock, safe_point,
                                    directory);
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

  std::string endpoint;
  FakeHost host;
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

TEST_F(AgentTest, MemberJoinsWithTheManagersClockAndALease) {
  Bootstrap();
  Process second(root_, 2);
  EXPECT_FALSE(second.agent->lease().valid());
  ASSERT_TRUE(second.Join(*first_).ok());
  EXPECT_TRUE(second.agent->lease().valid());
  EXPECT_EQ(second.clock.origin(), first_->clock.origin());
  EXPECT_EQ(second.agent->view()->members().size(), 2u);
  EXPECT_EQ(first_->agent->view()->id(), ConfigId(2));
  EXPECT_TRUE(second.agent->Leave().ok());
  EXPECT_FALSE(second.agent->lease().valid());
  EXPECT_EQ(first_->agent->view()->members().size(), 1u);
}

TEST_F(AgentTest, RegionsAreAllocatedAndFoundFromCoroutines) {
  Bootstrap();
  Process second(root_, 2);
  ASSERT_TRUE(second.Join(*first_).ok());
  using Result = absl::StatusOr<const RegionMapping*>;
  Result made = OnLoop<Result>([&]() -> Task<Result> {
    co_return co_await second.agent->control_plane().AllocateRegion(
        {.near = {}, .newest_known = {}, .preferred_primary = NodeId(2)});
  });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->primary().node, NodeId(2));
  EXPECT_EQ(second.host.committed.load(), 1);
  EXPECT_EQ(second.directory.Find((*made)->id), *made);
  Result found = OnLoop<Result>([&]() -> Task<Result> {
    co_return co_await second.agent->control_plane().LookupRegion(
        RegionId(1));  // which is the manager's alone
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->primary().node, NodeId(1));
  Result none = OnLoop<Result>(
      [&]() -> Task<Result> { co_return co_await second.agent->control_plane().LookupRegion(RegionId(99)); });
  EXPECT_TRUE(absl::IsNotFound(none.status()));
}

// Stands before the manager: carries the first request for a region out, and loses its answer.
class AnswerLoser final : public ControlHandler {
 public:
  explicit AnswerLoser(ControlHandler& manager) : manager_(manager) {}
  absl::Status AllocateRegion(const pb::AllocateRegionRequest& request,
                              pb::AllocateRegionReply* reply) override {
    absl::Status status = manager_.AllocateRegion(request, reply);
    // Its caller gives up before this is released by the repetition.
    if (requests_.fetch_add(1) == 0) repeated_.wait();
    if (requests_.load() == 2) repeated_.count_down();
    return status;
  }
  int requests() const { return requests_.load(); }
#define FURROW_UNUSED(name)                                                \
  absl::Status name(const pb::name##Request&, pb::name##Reply*) override { \
    return absl::UnimplementedError("not a message for this fake");        \
  }
  FURROW_UNUSED(Hello)
  FURROW_UNUSED(Join)
  FURROW_UNUSED(Ready)
  FURROW_UNUSED(Leave)
  FURROW_UNUSED(LookupRegion)
  FURROW_UNUSED(ClusterStatus)
  FURROW_UNUSED(NewConfig)
  FURROW_UNUSED(NewConfigCommit)
  FURROW_UNUSED(PrepareRegion)
  FURROW_UNUSED(CommitRegion)
  FURROW_UNUSED(AbortRegion)
  FURROW_UNUSED(MemberStatus)
  FURROW_UNUSED(EndCluster)
#undef FURROW_UNUSED

 private:
  ControlHandler& manager_;
  std::atomic<int> requests_{0};
  std::latch repeated_{1};
};

TEST_F(AgentTest, AllocationWhoseAnswerWasLostIsRepeatedAndMakesNoSecondRegion) {
  Bootstrap();
  AnswerLoser loser(*first_->agent);
  auto server = ControlServer::Start("127.0.0.1:0", kSecret, loser);
  ASSERT_TRUE(server.ok());
  ControlClient client(kSecret);
  RegionDirectory directory;
  RemoteControlPlane plane(client, directory, {.attempt_timeout_ns = 100 * kMillisecond});
  plane.SetManager((*server)->address());
  using Result = absl::StatusOr<const RegionMapping*>;
  Result made =
      OnLoop<Result>([&]() -> Task<Result> { co_return co_await plane.AllocateRegion({.name = 9}); });
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_GE(loser.requests(), 2);
  pb::ClusterStatusReply status;
  ASSERT_TRUE(static_cast<ControlHandler&>(*first_->agent).ClusterStatus({}, &status).ok());
  EXPECT_EQ(status.regions_size(), 2) << "the first region of the cluster, and this one";
  EXPECT_EQ((*made)->id, RegionId(status.regions(1).id()));
}

TEST_F(AgentTest, PrepareAndCommitUnderAnotherConfigurationAreRefused) {
  Bootstrap();
  ControlHandler& handler = *first_->agent;
  pb::PrepareRegionRequest prepare;
  prepare.set_config(2);
  prepare.set_id(5);
  pb::PrepareRegionReply prepared;
  absl::Status refused = handler.PrepareRegion(prepare, &prepared);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("configuration 2"));
  pb::CommitRegionRequest commit;
  commit.set_config(0);
  pb::CommitRegionReply committed;
  EXPECT_TRUE(absl::IsFailedPrecondition(handler.CommitRegion(commit, &committed)));
  pb::NewConfigCommitRequest stale;
  stale.set_config(7);
  pb::NewConfigCommitReply done;
  EXPECT_TRUE(absl::IsFailedPrecondition(handler.NewConfigCommit(stale, &done)));
}

TEST_F(AgentTest, ConfigurationOfAnotherClusterIsRefused) {
  Bootstrap();
  ControlHandler& handler = *first_->agent;
  pb::NewConfigRequest request;
  pb::NewConfigReply reply;
  EXPECT_FALSE(handler.NewConfig(request, &reply).ok());  // not a configuration
  pb::Configuration& c = *request.mutable_configuration();
  c.set_cluster_id(std::string(32, 'z'));
  c.set_id(9);
  c.set_manager(1);
  c.set_first_region(1);
  c.set_replicas(1);
  c.set_region_bytes(1 << 21);
  pb::Member& m = *c.add_members();
  m.set_id(1);
  m.set_workers(1);
  absl::Status refused = handler.NewConfig(request, &reply);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another cluster"));
  EXPECT_EQ(first_->agent->view()->id(), ConfigId(1));
}

TEST_F(AgentTest, OnlyTheManagerAdmitsAndAllocates) {
  Bootstrap();
  Process second(root_, 2);
  ASSERT_TRUE(second.Join(*first_).ok());
  ControlHandler& handler = *second.agent;
  pb::AllocateRegionReply reply;
  absl::Status refused = handler.AllocateRegion(pb::AllocateRegionRequest(), &reply);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ask node 1"));
  // Whoever asks a member is sent to the manager.
  ControlClient client(kSecret);
  auto introduction = SayHello(client, kSecret, second.agent->control_address(), Role::kCompute, NodeId(),
                               false, 5 * kSecond);
  ASSERT_TRUE(introduction.ok()) << introduction.status();
  EXPECT_EQ(introduction->manager_address, first_->agent->control_address());
  EXPECT_GE(introduction->id.value(), kFirstComputeId);
}

TEST_F(AgentTest, StrangerDoesNotGetPastHello) {
  Bootstrap();
  const std::string other(64, 'x');
  ControlClient client(other);
  auto introduction =
      SayHello(client, other, first_->agent->control_address(), Role::kCompute, NodeId(), false, 5 * kSecond);
  EXPECT_TRUE(absl::IsPermissionDenied(introduction.status())) << introduction.status();
}

TEST_F(AgentTest, LostMemberEndsTheClusterOnEveryOtherWithItsName) {
  Bootstrap();
  Process second(root_, 2);
  auto third = std::make_unique<Process>(root_, 3);
  ASSERT_TRUE(second.Join(*first_).ok());
  ASSERT_TRUE(third->Join(*first_).ok());
  rdma::KillShmFabric(*third->fabric);
  first_->host.ended.wait();
  second.host.ended.wait();
  for (Process* p : {first_.get(), &second}) {
    EXPECT_FALSE(p->agent->lease().valid());
    MutexLock lock(&p->host.mutex);
    EXPECT_FALSE(p->host.in_good_order);
    EXPECT_THAT(p->host.why, HasSubstr("node 3"));
  }
}

TEST(MemberLeaseTest, EndsWithItsTimeUnlessItIsExtendedAndNeverComesBackOnceItIsOver) {
  ClusterClock clock(MonotonicClock(), {});
  MemberLease lease(clock);
  lease.Extend(MemberLease::kForever);
  EXPECT_FALSE(lease.valid()) << "not granted yet";
  lease.Grant(clock.LocalNow() - 1);
  EXPECT_FALSE(lease.valid()) << "its time is over";
  lease.Extend(clock.LocalNow() + 3600 * kSecond);
  EXPECT_TRUE(lease.valid());
  lease.Extend(clock.LocalNow() - 1);
  EXPECT_TRUE(lease.valid()) << "an older answer shortens nothing";
  lease.Expire();
  lease.Extend(MemberLease::kForever);
  EXPECT_FALSE(lease.valid()) << "the cluster has ended";
}

TEST_F(AgentTest, AnyMemberCanStopTheClusterInGoodOrder) {
  Bootstrap();
  Process second(root_, 2);
  ASSERT_TRUE(second.Join(*first_).ok());
  ASSERT_TRUE(second.agent->EndCluster("enough for today").ok());
  first_->host.ended.wait();
  second.host.ended.wait();
  MutexLock lock(&first_->host.mutex);
  EXPECT_TRUE(first_->host.in_good_order);
  EXPECT_EQ(first_->host.why, "enough for today");
}

}  // namespace
}  // namespace furrow::cluster
