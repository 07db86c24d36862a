// The manager over real gRPC, with members that are fakes: each records what it is told and fails where a
// test says so.
#include "cluster/manager.h"

#include <functional>
#include <latch>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kCluster(32, 'c');
const std::string kSecret(64, 's');

// What all members were told, in order: "2 new-config 3".
class Diary {
 public:
  void Add(std::string entry) {
    MutexLock lock(&mutex_);
    entries_.push_back(std::move(entry));
  }
  std::vector<std::string> Take() {
    MutexLock lock(&mutex_);
    return std::exchange(entries_, {});
  }

 private:
  Mutex mutex_;
  std::vector<std::string> entries_ ABSL_GUARDED_BY(mutex_);
};

class FakeMember final : public ControlHandler {
 public:
  FakeMember(uint32_t node, Diary& diary) : node_(node), diary_(diary) {}

  // Until another is set: the answer to that message.
  void Answer(const std::string& message, absl::Status status) {
    MutexLock lock(&mutex_);
    answers_[message] = std::move(status);
  }
  std::function<void(RegionId)> on_commit;  // on a thread of the server's
  std::string address;
  std::unique_ptr<ControlServer> server;

#define FURROW_UNUSED(name)                                                \
  absl::Status name(const pb::name##Request&, pb::name##Reply*) override { \
    return absl::UnimplementedError("not a message for this fake");        \
  }
  FURROW_UNUSED(Hello)
  FURROW_UNUSED(Join)
  FURROW_UNUSED(Ready)
  FURROW_UNUSED(Leave)
  FURROW_UNUSED(AllocateRegion)
  FURROW_UNUSED(LookupRegion)
  FURROW_UNUSED(ClusterStatus)
#undef FURROW_UNUSED
  absl::Status NewConfig(const pb::NewConfigRequest& q, pb::NewConfigReply*) override {
    return Told("new-config", q.configuration().id());
  }
  absl::Status NewConfigCommit(const pb::NewConfigCommitRequest& q, pb::NewConfigCommitReply*) override {
    return Told("commit-config", q.config());
  }
  absl::Status PrepareRegion(const pb::PrepareRegionRequest& q, pb::PrepareRegionReply* r) override {
    r->set_address(node_ * 1000 + q.id());
    r->set_key(node_);
    return Told(q.primary() ? "prepare-primary" : "prepare", q.id());
  }
  absl::Status CommitRegion(const pb::CommitRegionRequest& q, pb::CommitRegionReply*) override {
    if (on_commit) on_commit(RegionId(q.region().id()));
    return Told("commit", q.region().id());
  }
  absl::Status AbortRegion(const pb::AbortRegionRequest& q, pb::AbortRegionReply*) override {
    return Told("abort", q.id());
  }
  absl::Status MemberStatus(const pb::MemberStatusRequest&, pb::MemberStatusReply* r) override {
    r->set_committed(node_ * 10);
    return Told("status", 0);
  }
  absl::Status EndCluster(const pb::EndClusterRequest& q, pb::EndClusterReply*) override {
    return Told(absl::StrCat("end ", q.why()), 0);
  }

 private:
  absl::Status Told(const std::string& message, uint64_t number) {
    diary_.Add(absl::StrCat(node_, " ", message, " ", number));
    MutexLock lock(&mutex_);
    auto it = answers_.find(absl::StrCat(message, " ", number));
    if (it == answers_.end()) it = answers_.find(message);
    return it == answers_.end() ? absl::OkStatus() : it->second;
  }
  const uint32_t node_;
  Diary& diary_;
  Mutex mutex_;
  std::map<std::string, absl::Status> answers_ ABSL_GUARDED_BY(mutex_);
};

class MemoryStore final : public ConfigStore {
 public:
  absl::StatusOr<StoredConfiguration> Read() override {
    MutexLock lock(&mutex_);
    if (!stored_.has_value()) return absl::NotFoundError("empty");
    return *stored_;
  }
  absl::Status CompareAndSwap(uint64_t expected, const Configuration& next) override {
    MutexLock lock(&mutex_);
    if (expected != (stored_.has_value() ? stored_->version : 0))
      return absl::AbortedError("another version");
    stored_ = StoredConfiguration{expected + 1, next};
    return absl::OkStatus();
  }

 private:
  Mutex mutex_;
  std::optional<StoredConfiguration> stored_ ABSL_GUARDED_BY(mutex_);
};

class ManagerTest : public ::testing::Test {
 protected:
  ManagerTest() : client_(kSecret), clock_(MonotonicClock(), {}) {
    clock_.StartMaster(Timestamp(1'000'000));
    Manager::Options options;
    options.self = NodeId(1);
    options.clock_domain = "here";
    options.change_timeout_ns = 5 * kSecond;
    options.lost = [this](std::string why) { lost_.Add(std::move(why)); };
    options.changed = [](const Configuration&, NodeId) {};
    options.founded = [this](RegionId first) {
      diary_.Add(absl::StrCat("founded ", first.value()));
      return absl::OkStatus();
    };
    Fake(1);
    manager_ = std::make_unique<Manager>(std::move(options), std::make_unique<MemoryStore>(), client_,
                                         *members_[1], clock_);
  }
  ~ManagerTest() override {
    manager_->Stop();
    client_.Shutdown();
  }

  FakeMember& Fake(uint32_t node) {
    members_[node] = std::make_unique<FakeMember>(node, diary_);
    auto server = ControlServer::Start("127.0.0.1:0", kSecret, *members_[node]);
    EXPECT_TRUE(server.ok()) << server.status();
    members_[node]->server = *std::move(server);
    return *members_[node];
  }
  Member Describe(uint32_t node) {
    Member m;
    m.id = NodeId(node);
    m.incarnation = Incarnation(node);
    m.role = node >= kFirstComputeId ? Role::kCompute : Role::kStorage;
    m.failure_domain = absl::StrCat("domain ", node);
    m.control_address = members_[node]->server->address();
    return m;
  }
  void Bootstrap(uint32_t replicas) {
    Configuration first;
    first.cluster_id = kCluster;
    first.id = ConfigId(1);
    first.manager = NodeId(1);
    first.replicas = replicas;
    first.region_bytes = 1 << 21;
    first.Add(Describe(1), 100);
    ASSERT_TRUE(manager_->Bootstrap(first).ok());
    ASSERT_TRUE(Ready(1).ok());
  }
  std::string Nonce() {
    pb::HelloRequest hello;
    pb::HelloReply reply;
    EXPECT_TRUE(manager_->Hello(hello, &reply).ok());
    return reply.nonce();
  }
  pb::JoinRequest JoinOf(uint32_t node, uint64_t capacity = 100) {
    pb::JoinRequest request;
    request.set_protocol(kControlProtocol);
    request.set_cluster_id(kCluster);
    request.set_nonce(Nonce());
    request.set_clock_domain("here");
    ToProto(Describe(node), capacity, request.mutable_member());
    return request;
  }
  absl::Status Join(uint32_t node, uint64_t capacity = 100) {
    Fake(node);
    return manager_->Join(JoinOf(node, capacity), &join_reply_);
  }
  absl::Status Ready(uint32_t node) {
    pb::ReadyRequest request;
    request.set_node(node);
    request.set_incarnation(node);
    return manager_->Ready(request);
  }
  absl::Status Leave(uint32_t node) {
    pb::LeaveRequest request;
    request.set_node(node);
    request.set_incarnation(node);
    return manager_->Leave(request);
  }
  // Three ready storage members, two copies of each region.
  void Three(uint64_t capacity = 100) {
    Bootstrap(2);
    for (uint32_t node : {2u, 3u}) {
      ASSERT_TRUE(Join(node, capacity).ok());
      ASSERT_TRUE(Ready(node).ok());
    }
    diary_.Take();
  }

  Diary diary_;
  Diary lost_;
  ControlClient client_;
  ClusterClock clock_;
  std::map<uint32_t, std::unique_ptr<FakeMember>> members_;
  std::unique_ptr<Manager> manager_;
  pb::JoinReply join_reply_;
};

TEST_F(ManagerTest, SecondBootstrapOfAStoreIsRefused) {
  Bootstrap(1);
  Configuration again = manager_->configuration();
  EXPECT_TRUE(absl::IsFailedPrecondition(manager_->Bootstrap(again)));
}

TEST_F(ManagerTest, NewMemberIsToldFirstAndTheCommitComesAfterAllAcknowledgements) {
  Bootstrap(2);
  diary_.Take();
  ASSERT_TRUE(Join(2).ok());
  EXPECT_THAT(diary_.Take(), ElementsAre("2 new-config 2", "1 new-config 2", testing::_, testing::_));
  EXPECT_TRUE(join_reply_.shared_clock());
  EXPECT_EQ(join_reply_.clock_origin(), clock_.origin());
  ASSERT_TRUE(Join(3).ok());
  std::vector<std::string> told = diary_.Take();
  ASSERT_EQ(told.size(), 6u);
  EXPECT_EQ(told[0], "3 new-config 3");
  for (size_t i = 3; i < 6; ++i) EXPECT_THAT(told[i], HasSubstr("commit-config 3"));
  EXPECT_EQ(manager_->store().Read()->configuration.id, ConfigId(3));
}

TEST_F(ManagerTest, LeasesFollowTheMembers) {
  Bootstrap(1);
  EXPECT_EQ(manager_->right(), LeaseBook::kForever);
  ASSERT_TRUE(Join(2).ok());
  EXPECT_EQ(manager_->right(), LeaseBook::kForever) << "node 2 is still on its way";
  const Manager::Leased first = manager_->Lease(NodeId(2), kSecond, 0);
  EXPECT_GT(first.term, 0);
  EXPECT_LT(first.right, LeaseBook::kForever);
  EXPECT_EQ(manager_->Lease(NodeId(2), 2 * kSecond, 2 * kSecond).right, first.right + kSecond);
  EXPECT_EQ(manager_->Lease(NodeId(3), 2 * kSecond, 0).term, 0) << "no member";
  ASSERT_TRUE(Leave(2).ok());
  EXPECT_EQ(manager_->right(), LeaseBook::kForever);
}

TEST_F(ManagerTest, ClusterIsFoundedWhenThereIsAMemberForEachCopy) {
  Bootstrap(2);
  EXPECT_TRUE(absl::IsUnavailable(manager_->Allocate({}).status()));
  ASSERT_TRUE(Join(2).ok());
  EXPECT_THAT(diary_.Take(), Not(Contains("founded 1")));
  ASSERT_TRUE(Ready(2).ok());
  EXPECT_THAT(diary_.Take(), Contains("founded 1"));
  EXPECT_EQ(manager_->Allocate({})->id, RegionId(2));
}

TEST_F(ManagerTest, MemberThatCannotBeReachedIsNotAdmittedAndTheOthersGoOn) {
  Bootstrap(1);
  Fake(2).Answer("new-config", absl::UnavailableError("cannot hear you"));
  absl::Status joined = manager_->Join(JoinOf(2), &join_reply_);
  EXPECT_TRUE(absl::IsFailedPrecondition(joined)) << joined;
  EXPECT_THAT(std::string(joined.message()), HasSubstr("was not admitted"));
  EXPECT_EQ(manager_->configuration().members.size(), 1u);
  EXPECT_EQ(manager_->configuration().id, ConfigId(3));  // in, and out again
  EXPECT_TRUE(lost_.Take().empty());
  EXPECT_TRUE(Join(3).ok());
}

TEST_F(ManagerTest, NewMemberThatAnotherCannotOpenRingsToIsNotAdmitted) {
  Three();
  members_[3]->Answer("new-config 4", absl::FailedPreconditionError("no rings"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Join(4)));
  EXPECT_TRUE(lost_.Take().empty());
  EXPECT_EQ(manager_->configuration().Find(NodeId(4)), nullptr);
}

TEST_F(ManagerTest, MemberThatDoesNotAcknowledgeIsLost) {
  Three();
  members_[3]->server->Stop();
  EXPECT_TRUE(absl::IsUnavailable(Join(4)));
  std::vector<std::string> lost = lost_.Take();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0], HasSubstr("node 3"));
  EXPECT_THAT(lost[0], HasSubstr("NEW-CONFIG"));
}

TEST_F(ManagerTest, JoinsThatCannotBeAreRefusedWithASentence) {
  Three();
  Fake(4);
  pb::JoinRequest request = JoinOf(4);
  request.set_cluster_id(std::string(32, 'x'));
  EXPECT_TRUE(absl::IsFailedPrecondition(manager_->Join(request, &join_reply_)));
  request = JoinOf(4);
  request.set_protocol(kControlProtocol + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(manager_->Join(request, &join_reply_)));
  request = JoinOf(4);
  request.set_nonce("made up");
  EXPECT_TRUE(absl::IsFailedPrecondition(manager_->Join(request, &join_reply_)));
  request = JoinOf(4, /*capacity=*/0);
  EXPECT_TRUE(absl::IsInvalidArgument(manager_->Join(request, &join_reply_)));
  request = JoinOf(3);
  EXPECT_TRUE(absl::IsAlreadyExists(manager_->Join(request, &join_reply_)));
  request = JoinOf(4);
  request.mutable_member()->set_role(1);  // a compute member's id is not the operator's to choose
  EXPECT_TRUE(absl::IsInvalidArgument(manager_->Join(request, &join_reply_)));
  request = JoinOf(4);
  ASSERT_TRUE(manager_->Join(request, &join_reply_).ok());
  EXPECT_FALSE(manager_->Join(request, &join_reply_).ok());  // its nonce is used up
}

TEST_F(ManagerTest, ComputeMembersComeAndGoFreely) {
  Three();
  pb::HelloRequest hello;
  hello.set_role(1);
  pb::HelloReply introduced;
  ASSERT_TRUE(manager_->Hello(hello, &introduced).ok());
  EXPECT_EQ(introduced.id(), kFirstComputeId);
  ASSERT_TRUE(Join(kFirstComputeId, 0).ok());
  EXPECT_TRUE(Leave(kFirstComputeId).ok());
  ASSERT_TRUE(manager_->Hello(hello, &introduced).ok());
  EXPECT_EQ(introduced.id(), kFirstComputeId + 1);  // never the same again
}

TEST_F(ManagerTest, StorageMemberLeavesOnlyWithoutRegions) {
  Three();
  const RegionMapping first = (*manager_->Lookup(RegionId(1), 1))[0];
  const NodeId holder = first.replicas[0].node == NodeId(1) ? first.replicas[1].node : first.replicas[0].node;
  const uint32_t other = holder == NodeId(2) ? 3 : 2;
  absl::Status refused = Leave(holder.value());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("holds copies of 1 regions"));
  EXPECT_TRUE(Leave(other).ok());
  EXPECT_THAT(diary_.Take(), Not(Contains(absl::StrCat(other, " new-config 4"))));
  EXPECT_TRUE(absl::IsFailedPrecondition(Leave(1)));  // the manager
  EXPECT_TRUE(absl::IsNotFound(Leave(77)));
}

TEST_F(ManagerTest, RegionIsCommittedAfterAllReplicasHavePreparedIt) {
  Three();
  auto region = manager_->Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(3)});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->primary().node, NodeId(3));
  EXPECT_EQ(region->primary().memory.address, 3000u + region->id.value());
  std::vector<std::string> told = diary_.Take();
  ASSERT_GE(told.size(), 4u);
  EXPECT_THAT(std::vector<std::string>(told.begin(), told.begin() + 2), Contains("3 prepare-primary 2"));
  for (size_t i = 2; i < told.size(); ++i) EXPECT_THAT(told[i], HasSubstr(" commit 2"));
  EXPECT_THAT(told, Contains("1 commit 2"));  // the manager answers for all regions
}

TEST_F(ManagerTest, RegionIsFoundBeforeItsPrimaryServesIt) {
  Three();
  absl::Status found = absl::UnknownError("node 3 was not told to commit");
  members_[3]->on_commit = [&](RegionId id) { found = manager_->Lookup(id, 1).status(); };
  ASSERT_TRUE(manager_->Allocate({.preferred_primary = NodeId(3)}).ok());
  EXPECT_TRUE(found.ok()) << found;
}

TEST_F(ManagerTest, FullReplicaIsPassedOverAndTheOthersAbort) {
  Three();
  members_[3]->Answer("prepare-primary", absl::ResourceExhaustedError("no memory"));
  auto region = manager_->Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(3)});
  ASSERT_TRUE(region.ok()) << region.status();
  for (const Replica& r : region->replicas) EXPECT_NE(r.node, NodeId(3));
  EXPECT_THAT(diary_.Take(), Contains(HasSubstr(" abort 2")));
  EXPECT_TRUE(absl::IsNotFound(manager_->Lookup(RegionId(2), 1).status()));
}

TEST_F(ManagerTest, ReplicaThatIsGoneLosesTheMember) {
  Three();
  members_[3]->server->Stop();
  EXPECT_TRUE(absl::IsUnavailable(
      manager_->Allocate({.near = {}, .newest_known = {}, .preferred_primary = NodeId(3)}).status()));
  EXPECT_THAT(lost_.Take(), ElementsAre(HasSubstr("node 3")));
}

TEST_F(ManagerTest, CallersOfOneGroupAtOnceGetOneRegion) {
  Three();
  std::vector<RegionId> got(4);
  {
    std::latch start(4);
    std::vector<Thread> callers;
    for (RegionId& id : got) {
      callers.emplace_back(ThreadOptions{.name = "caller", .realtime_priority = 0, .cpu = {}}, [&] {
        start.arrive_and_wait();
        auto region =
            manager_->Allocate({.near = RegionId(1), .newest_known = RegionId(1), .preferred_primary = {}});
        if (region.ok()) id = region->id;
      });
    }
  }
  for (RegionId id : got) EXPECT_EQ(id, RegionId(2));
}

TEST_F(ManagerTest, RepeatedRequestForANamedGroupGetsTheFirstAnswer) {
  Three();
  auto first = manager_->Allocate({.preferred_primary = NodeId(3), .name = 5});
  ASSERT_TRUE(first.ok()) << first.status();
  diary_.Take();
  auto again = manager_->Allocate({.preferred_primary = NodeId(3), .name = 5});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->id, first->id);
  EXPECT_THAT(diary_.Take(), ElementsAre()) << "nobody prepares another";
  EXPECT_NE(manager_->Allocate({.name = 6})->id, first->id);
}

TEST_F(ManagerTest, EndIsAnnouncedToAllOthers) {
  Three();
  members_[2]->server->Stop();  // one that cannot be told holds nobody up
  std::latch told(1);
  manager_->Announce({false, "node 9 is lost"}, [&] { told.count_down(); });
  told.wait();
  EXPECT_THAT(diary_.Take(), ElementsAre("3 end node 9 is lost 0"));
}

TEST_F(ManagerTest, StatusLeavesOutWhoDoesNotAnswer) {
  Three();
  members_[2]->server->Stop();
  pb::ClusterStatusReply reply;
  ASSERT_TRUE(manager_->Status(&reply).ok());
  EXPECT_EQ(reply.configuration().members_size(), 3);
  ASSERT_EQ(reply.members_size(), 2);
  EXPECT_EQ(reply.members(1).committed(), 30u);
}

TEST_F(ManagerTest, StrangersGetNowhere) {
  Bootstrap(1);
  ControlClient stranger(std::string(64, 'x'));
  pb::EndClusterReply reply;
  absl::Status status =
      stranger.Call(members_[1]->server->address(), pb::EndClusterRequest(), &reply, 5 * kSecond);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(diary_.Take(), Not(Contains(HasSubstr("end"))));
}

}  // namespace
}  // namespace furrow::cluster
