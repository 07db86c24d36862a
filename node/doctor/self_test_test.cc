#include "node/doctor/self_test.h"

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/doctor/peer_server.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow::node {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<rdma::Fabric> MakeFabric(uint32_t node, const std::string& secret = "secret") {
  absl::StatusOr<std::unique_ptr<rdma::Fabric>> fabric =
      rdma::MakeShmFabric({.identity = {NodeId(node), "furrow-doctor", secret}});
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  return *std::move(fabric);
}

class SelfTestTest : public ::testing::Test {
 protected:
  SelfTestTest() {
    char name[] = "/tmp/furrow-doctor-peer-XXXXXX";
    directory_ = mkdtemp(name);
    fabric_ = MakeFabric(1);
    server_ = *PeerServer::Start(*fabric_, endpoint());
    thread_ = Thread({.name = "doctor"}, [this] {
      const absl::Status served = server_->Serve([this] { return stop_.load(); }, false);
      EXPECT_TRUE(served.ok()) << served;
    });
  }
  ~SelfTestTest() override {
    stop_ = true;
    thread_.Join();
    server_.reset();
    fabric_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string endpoint() const { return directory_ + "/doctor.sock"; }

  static SelfTestOptions Quick() { return {.measure_ns = 1 * kMillisecond, .order_rounds = 2000}; }
  // "level check found" of each finding.
  std::string Examine(const std::string& secret = "secret") {
    std::unique_ptr<rdma::Fabric> fabric = MakeFabric(2, secret);
    std::string text;
    for (const Finding& f : SelfTest(*fabric, endpoint(), Quick()))
      absl::StrAppend(&text, LevelName(f.level), " ", f.check, " ", f.found, "\n");
    return text;
  }

  std::string directory_;
  std::unique_ptr<rdma::Fabric> fabric_;
  std::unique_ptr<PeerServer> server_;
  std::atomic<bool> stop_{false};
  Thread thread_;
};

TEST_F(SelfTestTest, GoodFabricPassesAllSteps) {
  const std::string text = Examine();
  EXPECT_THAT(text, HasSubstr("ok peer.connect connected to "));
  EXPECT_THAT(text, HasSubstr("ok peer.payload 4 MB written and read back"));
  EXPECT_THAT(text, HasSubstr("ok peer.order in 2000 rounds"));
  EXPECT_THAT(text, HasSubstr("saw 0 flags before their block; 0 READs overtook"));
  EXPECT_THAT(text, HasSubstr("ok peer.latency READ of 8 bytes: p50 "));
  EXPECT_THAT(text, HasSubstr("ok peer.latency SEND and answer: p50 "));
  EXPECT_THAT(text, HasSubstr("ok peer.bandwidth READ "));
}

TEST_F(SelfTestTest, ServerServesOnePeerAfterTheOther) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Examine(), HasSubstr("ok peer.bandwidth")) << i;
}

TEST_F(SelfTestTest, NobodyThereIsAnErrorOfTheFirstStep) {
  std::unique_ptr<rdma::Fabric> fabric = MakeFabric(2);
  const std::vector<Finding> findings = SelfTest(*fabric, directory_ + "/nobody.sock", Quick());
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kError);
  EXPECT_EQ(findings[0].check, "peer.connect");
  EXPECT_THAT(findings[0].advice, HasSubstr("--serve"));
}

TEST_F(SelfTestTest, WrongSecretIsRefused) {
  EXPECT_THAT(Examine("another"), HasSubstr("error peer.connect "));
  EXPECT_THAT(Examine(), HasSubstr("ok peer.bandwidth"));
}

// The doctor's own judgement, made to fail: a server whose block is never that of its flag.
TEST_F(SelfTestTest, BlockThatIsOlderThanItsFlagIsSeen) {
  std::unique_ptr<rdma::Fabric> fabric = MakeFabric(2);
  std::unique_ptr<PeerLink> link = *PeerLink::Make(*fabric, kOfferedBytes, false);
  absl::StatusOr<PeerHello> hello = link->Connect(endpoint(), 10 * kSecond);
  ASSERT_TRUE(hello.ok()) << hello.status();
  const rdma::RemoteAddress remote{hello->address, rdma::RemoteKey(hello->key)};
  const auto request = [&](rdma::Opcode opcode, size_t at, size_t bytes) {
    rdma::WorkRequest r;
    r.opcode = opcode;
    r.local = link->memory().first(bytes);
    r.remote = remote.Plus(at);
    return r;
  };
  do {
    ASSERT_TRUE(link->Run(std::vector{request(rdma::Opcode::kRead, kReadyAt, 8)}, 10 * kSecond).ok());
  } while (LoadWord(link->memory(), 0) != 1);
  ASSERT_TRUE(link->Ask({PeerMessage::kWatch, 0, 0, 0}, 10 * kSecond).ok());
  StoreWord(link->memory(), 0, 7);
  ASSERT_TRUE(link->Run(std::vector{request(rdma::Opcode::kWrite, kFlagAt, 8)}, 10 * kSecond).ok());
  absl::StatusOr<PeerMessage> seen = link->Ask({PeerMessage::kWatched, 0, 0, 0}, 10 * kSecond);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_GT(seen->b, 0u);
  // And the payload is not that of any seed.
  absl::StatusOr<PeerMessage> wrong = link->Ask({PeerMessage::kPattern, 0, 5, 1000}, 10 * kSecond);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_GT(wrong->a, 900u);
  // The next peer does not suffer from the flag that this one leaves.
  StoreWord(link->memory(), 0, UINT64_MAX);
  ASSERT_TRUE(link->Run(std::vector{request(rdma::Opcode::kWrite, kFlagAt, 8)}, 10 * kSecond).ok());
  link.reset();
  fabric.reset();
  std::string text;
  // Until the server has seen that we are gone, it refuses others.
  do {
    text = Examine();
  } while (absl::StrContains(text, "examines somebody else"));
  EXPECT_THAT(text, HasSubstr("saw 0 flags before their block"));
}

TEST(PeerHelloTest, OtherMagicOrVersionIsNone) {
  PeerHello hello{};
  EXPECT_FALSE(DecodeHello(EncodeHello(hello)).has_value());
  std::memcpy(hello.magic, kPeerMagic, sizeof(kPeerMagic));
  hello.version = kPeerVersion;
  hello.bytes = 77;
  ASSERT_TRUE(DecodeHello(EncodeHello(hello)).has_value());
  EXPECT_EQ(DecodeHello(EncodeHello(hello) + "more")->bytes, 77u);
  EXPECT_FALSE(DecodeHello(EncodeHello(hello).substr(0, 20)).has_value());
  hello.version = kPeerVersion + 1;
  EXPECT_FALSE(DecodeHello(EncodeHello(hello)).has_value());
}

}  // namespace
}  // namespace furrow::node
