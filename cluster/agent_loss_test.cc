// Whom a member names when something is lost, above all one that was itself away.
#include <memory>
#include <string>

#include "cluster/agent_test_util.h"
#include "cluster/proto/cluster.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Nanos kAway = kTestLease * 9 / 10;

class AgentLossTest : public AgentTest {
 protected:
  void SetUp() override {
    Bootstrap();
    second_ = std::make_unique<Process>(root_, 2);
    third_ = std::make_unique<Process>(root_, 3);
    ASSERT_TRUE(second_->Join(*first_).ok());
    ASSERT_TRUE(third_->Join(*first_).ok());
  }
  std::unique_ptr<Process> second_;
  std::unique_ptr<Process> third_;
  std::string why_;
};

TEST_F(AgentLossTest, ManagerThatWasAwayNamesTheOneMemberThatIsLost) {
  first_->time.skipped = kAway;
  rdma::KillShmFabric(*third_->fabric);
  for (Process* p : {first_.get(), second_.get()}) {
    p->WaitForEnd(&why_);
    EXPECT_THAT(why_, AllOf(StartsWith("node 3 at "), HasSubstr("is lost: it crashed or was killed"),
                            HasSubstr("; and node 1 did not run for")));
  }
}

TEST_F(AgentLossTest, ManagerThatWasAwayAndLosesAllNamesItself) {
  first_->time.skipped = kAway;
  rdma::KillShmFabric(*third_->fabric);
  rdma::KillShmFabric(*second_->fabric);
  first_->WaitForEnd(&why_);
  EXPECT_THAT(why_, AllOf(StartsWith("node 1 did not run for"),
                          HasSubstr("is lost to the other members, which"), Not(HasSubstr("node 3"))));
}

TEST_F(AgentLossTest, MemberThatWasAwayAndIsToldOfAnotherNamesThat) {
  second_->time.skipped = kAway;
  rdma::KillShmFabric(*third_->fabric);
  second_->WaitForEnd(&why_);
  EXPECT_THAT(why_, AllOf(StartsWith("node 3 at "), HasSubstr("; and node 2 did not run for")));
  first_->WaitForEnd(&why_);
  EXPECT_THAT(why_, AllOf(StartsWith("node 3 at "), Not(HasSubstr("did not run"))));
}

TEST_F(AgentLossTest, MemberThatWasAwayAndIsToldOfItselfSaysThatItWasAway) {
  second_->time.skipped = kAway;
  pb::EndClusterRequest request;
  request.set_why("node 2 is lost: it was silent");
  request.set_lost(2);
  pb::EndClusterReply reply;
  ControlHandler& handler = *second_->agent;
  ASSERT_TRUE(handler.EndCluster(request, &reply).ok());
  second_->WaitForEnd(&why_);
  EXPECT_THAT(why_, AllOf(StartsWith("node 2 did not run for"), HasSubstr("is lost to the other members")));
}

TEST_F(AgentLossTest, MemberThatWasAwayAndIsCutOffNamesItself) {
  second_->time.skipped = kAway;
  // A manager that is dead tells nobody what it makes of its broken connections.
  first_->agent->Stop();
  rdma::KillShmFabric(*first_->fabric);
  second_->WaitForEnd(&why_);
  EXPECT_THAT(why_, AllOf(StartsWith("node 2 did not run for"), Not(HasSubstr("node 1"))));
  third_->WaitForEnd(&why_);
  EXPECT_THAT(why_, HasSubstr("node 1, the configuration manager, is lost: it crashed or was killed"));
}

}  // namespace
}  // namespace furrow::cluster
