// Agents of one process over the shm fabric and real gRPC, with fake hosts.
#include "cluster/agent.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <latch>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/agent_test_util.h"
#include "cluster/proto/cluster.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::HasSubstr;

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

// TCP connections to `address` that can be cut; new ones are made after it.
class Cable {
 public:
  explicit Cable(const std::string& address) {
    const size_t colon = address.rfind(':');
    uint32_t port = 0;
    FURROW_CHECK(absl::SimpleAtoi(address.substr(colon + 1), &port));
    to_ = {.sin_family = AF_INET,
           .sin_port = htons(static_cast<uint16_t>(port)),
           .sin_addr = {},
           .sin_zero = {}};
    FURROW_CHECK(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to_.sin_addr) == 1);
    sockaddr_in at = to_;
    at.sin_port = 0;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FURROW_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0);
    FURROW_CHECK(listen(listener_, 16) == 0);
    socklen_t size = sizeof(at);
    FURROW_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address_ = absl::StrCat(address.substr(0, colon), ":", ntohs(at.sin_port));
    thread_ = Thread({.name = "cable", .realtime_priority = 0, .cpu = {}}, [this] { Run(); });
  }
  ~Cable() {
    stopped_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.Join();
    for (const auto& [end, other] : ends_) close(end);
    close(listener_);
  }
  const std::string& address() const { return address_; }
  void Cut() {
    MutexLock lock(&mutex_);
    for (const auto& [end, other] : ends_) shutdown(end, SHUT_RDWR);
  }

 private:
  void Run() {
    while (!stopped_) {
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      {
        MutexLock lock(&mutex_);
        for (const auto& [end, other] : ends_) fds.push_back({end, POLLIN, 0});
      }
      poll(fds.data(), fds.size(), -1);
      if (fds[0].revents != 0) Accept();
      for (size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents != 0) Carry(fds[i].fd);
      }
    }
  }
  void Accept() {
    const int in = accept(listener_, nullptr, nullptr);
    if (in < 0) return;
    const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FURROW_CHECK(connect(out, reinterpret_cast<sockaddr*>(&to_), sizeof(to_)) == 0);
    MutexLock lock(&mutex_);
    ends_[in] = out;
    ends_[out] = in;
  }
  void Carry(int from) {
    MutexLock lock(&mutex_);
    auto it = ends_.find(from);
    if (it == ends_.end()) return;
    const int to = it->second;
    char bytes[16384];
    const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    if (got > 0 && send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got) return;
    ends_.erase(from);
    ends_.erase(to);
    close(from);
    close(to);
  }

  sockaddr_in to_;
  int listener_;
  std::string address_;
  std::atomic<bool> stopped_{false};
  Mutex mutex_;
  std::map<int, int> ends_ ABSL_GUARDED_BY(mutex_);  // by either end of a pair: the other
  Thread thread_;
};

// Stands before the manager: carries the first request for a region out, and loses its answer; cuts the
// cable, if there is one, between a join and its answer.
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
  absl::Status Join(const pb::JoinRequest& request, pb::JoinReply* reply) override {
    absl::Status status = manager_.Join(request, reply);
    cable->Cut();
    return status;
  }
  absl::Status Leave(const pb::LeaveRequest& request, pb::LeaveReply* reply) override {
    return manager_.Leave(request, reply);
  }
  int requests() const { return requests_.load(); }
  Cable* cable = nullptr;
#define FURROW_UNUSED(name)                                                \
  absl::Status name(const pb::name##Request&, pb::name##Reply*) override { \
    return absl::UnimplementedError("not a message for this fake");        \
  }
  FURROW_UNUSED(Hello)
  FURROW_UNUSED(Ready)
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

TEST_F(AgentTest, AllocationEndsAtItsCallersDeadline) {
  Bootstrap();
  ControlClient client(kSecret);
  RegionDirectory directory;
  RemoteControlPlane plane(client, directory, {.allocate_timeout_ns = kSecond * 3600});
  plane.SetManager("127.0.0.1:1");  // nobody is there
  using Result = absl::StatusOr<const RegionMapping*>;
  const Result made = OnLoop<Result>([&]() -> Task<Result> {
    co_return co_await plane.AllocateRegion(
        {.deadline = EventLoop::Current()->Now() + 100 * kMillisecond, .name = 9});
  });
  EXPECT_FALSE(made.ok());
}

TEST_F(AgentTest, MemberWhoseConnectionBrokeAfterItsAdmissionLeavesAgain) {
  Bootstrap();
  AnswerLoser loser(*first_->agent);
  auto server = ControlServer::Start("127.0.0.1:0", kSecret, loser);
  ASSERT_TRUE(server.ok());
  Cable cable((*server)->address());
  loser.cable = &cable;
  Process second(root_, 2);
  ControlClient client(kSecret);
  auto introduction = SayHello(client, kSecret, first_->agent->control_address(), Role::kStorage, NodeId(2),
                               true, 5 * kSecond);
  ASSERT_TRUE(introduction.ok());
  introduction->manager_address = cable.address();
  absl::Status joined = second.agent->Join(*introduction);
  EXPECT_TRUE(absl::IsUnavailable(joined)) << joined;
  EXPECT_EQ(first_->agent->view()->id(), ConfigId(3)) << "it was admitted, and has left";
  EXPECT_EQ(first_->agent->view()->members().size(), 1u);
  EXPECT_TRUE(first_->agent->lease().valid());
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
  c.set_fabric("shm");
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

TEST_F(AgentTest, ALostDataLinkBetweenMembersEndsTheClusterAndNamesBoth) {
  Bootstrap();
  Process second(root_, 2);
  ASSERT_TRUE(second.Join(*first_).ok());
  Process third(root_, 3);
  ASSERT_TRUE(third.Join(*first_).ok());
  second.agent->OnDataLinkLost(NodeId(3));
  second.agent->OnDataLinkLost(NodeId(3));
  for (Process* p : {first_.get(), &second, &third}) {
    p->host.ended.wait();
    MutexLock lock(&p->host.mutex);
    EXPECT_FALSE(p->host.in_good_order);
    EXPECT_THAT(p->host.why, HasSubstr("from node 2 to node 3"));
  }
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

TEST_F(AgentTest, WhatIsAskedAfterTheEndOfTheClusterIsUnavailable) {
  Bootstrap();
  Process second(root_, 2);
  ASSERT_TRUE(second.Join(*first_).ok());
  ASSERT_TRUE(second.agent->EndCluster("enough for today").ok());
  first_->host.ended.wait();
  second.host.ended.wait();
  using Result = absl::StatusOr<const RegionMapping*>;
  for (Process* p : {first_.get(), &second}) {
    const Result made = OnLoop<Result>(
        [&]() -> Task<Result> { co_return co_await p->agent->control_plane().AllocateRegion({.name = 9}); });
    EXPECT_TRUE(absl::IsUnavailable(made.status())) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("has ended for this member"));
  }
}

}  // namespace
}  // namespace furrow::cluster
