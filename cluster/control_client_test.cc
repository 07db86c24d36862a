// Control clients and servers that come and go while calls are under way.
#include "cluster/control_client.h"

#include <grpc/grpc.h>

#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "base/thread.h"
#include "cluster/control_server.h"
#include "cluster/proto/cluster.pb.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

const std::string kSecret(64, 's');

// Answers Hello; a Join waits until it is released.
class Handler final : public ControlHandler {
 public:
#define FURROW_UNUSED(name)                                                \
  absl::Status name(const pb::name##Request&, pb::name##Reply*) override { \
    return absl::UnimplementedError("not a message for this fake");        \
  }
  FURROW_UNUSED(Ready)
  FURROW_UNUSED(Leave)
  FURROW_UNUSED(AllocateRegion)
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
  absl::Status Hello(const pb::HelloRequest&, pb::HelloReply* reply) override {
    reply->set_version("7");
    return absl::OkStatus();
  }
  absl::Status Join(const pb::JoinRequest&, pb::JoinReply*) override {
    arrived.count_down();
    release.wait();
    return absl::OkStatus();
  }
  std::latch arrived{1};
  std::latch release{1};
};

std::unique_ptr<ControlServer> Serve(ControlHandler& handler) {
  auto server = ControlServer::Start("127.0.0.1:0", kSecret, handler);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(ControlClientTest, GrpcStaysWhenTheLastClientAndServerHaveGone) {
  {
    ControlClient client(kSecret);
  }
  EXPECT_TRUE(grpc_is_initialized());
  Handler handler;
  {
    auto server = Serve(handler);
  }
  EXPECT_TRUE(grpc_is_initialized());
}

TEST(ControlClientTest, ShutdownEndsACallThatIsUnderWayAndRefusesLaterOnes) {
  Handler handler;
  auto server = Serve(handler);
  ControlClient client(kSecret);
  pb::JoinReply reply;
  absl::Status ended;
  // The call is destroyed before Shutdown() returns, and with it what `done` holds.
  auto held = std::make_shared<int>(0);
  client.Start(server->address(), pb::JoinRequest(), &reply, 60 * kSecond,
               [&ended, held](absl::Status status) { ended = std::move(status); });
  handler.arrived.wait();
  client.Shutdown();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_EQ(held.use_count(), 1);
  pb::HelloReply hello;
  EXPECT_TRUE(absl::IsCancelled(client.Call(server->address(), pb::HelloRequest(), &hello, 60 * kSecond)));
  handler.release.count_down();
}

// As members do when they join: a client that says hello goes, another one and a server come.
TEST(ControlClientTest, ClientsAndServersComeAndGoUnderCalls) {
  Handler handler;
  auto server = Serve(handler);
  constexpr int kRounds = 20;
  auto live = [&] {
    for (int round = 0; round < kRounds; ++round) {
      pb::HelloReply reply;
      {
        ControlClient client(kSecret);
        EXPECT_TRUE(client.Call(server->address(), pb::HelloRequest(), &reply, 60 * kSecond).ok());
      }
      EXPECT_EQ(reply.version(), "7");
      Handler own_handler;
      std::vector<pb::HelloReply> replies(8);
      ControlClient client(kSecret);
      auto own = Serve(own_handler);
      // Some of these are cancelled, some have ended: both is well.
      for (size_t i = 0; i < replies.size(); ++i) {
        client.Start(i % 2 == 0 ? server->address() : own->address(), pb::HelloRequest(), &replies[i],
                     60 * kSecond, [](absl::Status) {});
      }
      if (round % 2 == 0) own.reset();
    }
  };
  std::vector<Thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back(ThreadOptions{.name = "member", .realtime_priority = 0, .cpu = {}}, live);
}

}  // namespace
}  // namespace furrow::cluster
