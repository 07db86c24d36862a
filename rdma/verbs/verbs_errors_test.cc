// Without a device: what the provider says when something is wrong.
#include "rdma/verbs/verbs_errors.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/verbs/verbs_device.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_wire.h"

namespace furrow::rdma {
namespace {

using testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(VerbsErrorsTest, LockedMemoryLimitIsNamedWithNeedAndRemedy) {
  const absl::Status status = RegistrationRefused(ENOMEM, {.bytes = 64 << 20,
                                                           .registered_bytes = 16 << 20,
                                                           .registrations = 2,
                                                           .max_registrations = 1000,
                                                           .memlock_limit = 8 << 20});
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(Text(status), HasSubstr("the limit of locked memory is 8 MB and at least 80 MB are needed"));
  EXPECT_THAT(Text(status), HasSubstr("LimitMEMLOCK=infinity"));
}

TEST(VerbsErrorsTest, OtherCausesOfTheSameErrnoAreToldApart) {
  RegistrationAttempt attempt{
      .bytes = 4096, .registrations = 1000, .max_registrations = 1000, .memlock_limit = UINT64_MAX};
  EXPECT_THAT(Text(RegistrationRefused(ENOMEM, attempt)), HasSubstr("1000 registrations, all in use"));
  attempt.max_registrations = 2000;
  EXPECT_THAT(Text(RegistrationRefused(ENOMEM, attempt)), HasSubstr("is not the cause"));
  attempt.memlock_limit = 0;
  attempt.may_exceed_memlock = true;
  EXPECT_THAT(Text(RegistrationRefused(ENOMEM, attempt)), HasSubstr("is not the cause"));
  EXPECT_THAT(Text(QueuePairRefused(EINVAL, {.device = "x", .send_depth = 5000, .max_depth = 4096})),
              HasSubstr("its queues hold at most 4096"));
  EXPECT_THAT(Text(CompletionQueueRefused(EINVAL, 40'000, 32'767)), HasSubstr("use more workers"));
}

TEST(VerbsErrorsTest, MissingDevicesAndRightsAreToldApart) {
  EXPECT_TRUE(absl::IsPermissionDenied(NoConnectionManager(EACCES)));
  EXPECT_THAT(Text(NoConnectionManager(ENOENT)), HasSubstr("modprobe rdma_ucm"));
  EXPECT_THAT(Text(NoConnectionManager(ENOENT)), HasSubstr("the devices in /dev/infiniband"));
  EXPECT_TRUE(absl::IsInvalidArgument(NoDeviceAt(EADDRNOTAVAIL, "10.0.0.9")));
  EXPECT_TRUE(absl::IsUnavailable(NoDeviceAt(ENODEV, "10.0.0.9")));
  EXPECT_TRUE(absl::IsPermissionDenied(DeviceRefused(EPERM, "mlx5_0")));
}

TEST(VerbsErrorsTest, EveryStatusOfTheDeviceHasWords) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_GENERAL_ERR; ++status) {
    EXPECT_FALSE(WordsFor(status).empty()) << status;
    EXPECT_EQ(MeaningOf(status) == CompletionStatus::kOk, status == IBV_WC_SUCCESS) << status;
  }
  EXPECT_EQ(MeaningOf(IBV_WC_RETRY_EXC_ERR), CompletionStatus::kPeerGone);
  EXPECT_EQ(MeaningOf(IBV_WC_REM_ACCESS_ERR), CompletionStatus::kRemoteAccess);
  EXPECT_EQ(MeaningOf(IBV_WC_LOC_PROT_ERR), CompletionStatus::kLocalProtection);
  // No word of memory: its interface may be down.
  EXPECT_EQ(MeaningOf(IBV_WC_LOC_QP_OP_ERR), CompletionStatus::kPeerGone);
  EXPECT_THAT(std::string(WordsFor(IBV_WC_LOC_QP_OP_ERR)), HasSubstr("its network interface is down"));
}

TEST(VerbsErrorsTest, SettingsOutOfRangeAreRefusedByName) {
  EXPECT_TRUE(CheckVerbsOptions({}).ok());
  VerbsOptions options;
  options.retry_count = 7;
  EXPECT_THAT(Text(CheckVerbsOptions(options)), HasSubstr("retry_count is 7"));
  options = {};
  options.ack_timeout = 0;
  EXPECT_THAT(Text(CheckVerbsOptions(options)), HasSubstr("ack_timeout is 0"));
  options = {};
  options.max_mtu = 1500;
  EXPECT_THAT(Text(CheckVerbsOptions(options)), HasSubstr("max_mtu is 1500"));
  options = {};
  options.notify_credits = 1;
  EXPECT_THAT(Text(CheckVerbsOptions(options)), HasSubstr("notify_credits is 1"));
}

TEST(VerbsErrorsTest, FabricWithoutDeviceSaysWhatToDo) {
  // Of this host, and never an RDMA device's.
  auto fabric = MakeVerbsFabric({.identity = {NodeId(1), "c", "s"}, .address = "127.0.0.1"});
  if (fabric.ok()) GTEST_SKIP() << "the loopback interface of this host is an RDMA device";
  EXPECT_TRUE(absl::StrContains(fabric.status().message(), "modprobe") ||
              absl::StrContains(fabric.status().message(), "rdma link"))
      << fabric.status();
}

TEST(VerbsErrorsTest, EndpointsAreParsedOrRefused) {
  sockaddr_storage address;
  for (const char* bad : {"", ":1", "10.77.0.1", "10.77.0.1:", "10.77.0.1:port", "[::1"}) {
    EXPECT_FALSE(ParseEndpoint(bad, /*with_port=*/true, &address).ok()) << bad;
  }
  for (const char* good : {"10.77.0.1:4711", "[fe80::1]:4711", "[::1]:1"}) {
    EXPECT_TRUE(ParseEndpoint(good, /*with_port=*/true, &address).ok()) << good;
  }
}

// --- what comes from a peer ---

TEST(VerbsWireTest, MessagesThatAreNoneAreRefused) {
  VerbsMessage good;
  good.type = VerbsMessageType::kOpen;
  good.SetText("private data");
  VerbsMessage parsed;
  const auto bytes = std::as_bytes(std::span(&good, 1));
  ASSERT_TRUE(ParseMessage(bytes, &parsed));
  EXPECT_EQ(parsed.Text(), "private data");
  EXPECT_FALSE(ParseMessage(bytes.first(bytes.size() - 1), &parsed));
  EXPECT_FALSE(ParseMessage({}, &parsed));
  for (const auto& spoil : std::vector<void (*)(VerbsMessage&)>{
           [](VerbsMessage& m) { m.magic ^= 1; },
           [](VerbsMessage& m) { m.text_bytes = VerbsMessage::kMaxText + 1; },
           [](VerbsMessage& m) { m.type = static_cast<VerbsMessageType>(0); },
           [](VerbsMessage& m) { m.type = static_cast<VerbsMessageType>(9); },
           [](VerbsMessage& m) { m.urgent = 2; },
           [](VerbsMessage& m) { m.zero[6] = 1; },
           [](VerbsMessage& m) { m.end.zero[0] = 1; },
       }) {
    VerbsMessage bad = good;
    spoil(bad);
    EXPECT_FALSE(ParseMessage(std::as_bytes(std::span(&bad, 1)), &parsed));
  }
}

TEST(VerbsWireTest, GreetingsOfOthersAreRefusedWithASentence) {
  const std::string nonce = MakeNonce();
  VerbsHello hello = MakeHello(NodeId(3), ClusterTag("a"), nonce);
  VerbsHello parsed;
  const auto parse = [&](size_t bytes) {
    return ParseHello(std::as_bytes(std::span(&hello, 1)).first(bytes), &parsed);
  };
  EXPECT_TRUE(parse(sizeof hello).ok());
  EXPECT_EQ(NonceOf(parsed), nonce);
  EXPECT_NE(ClusterTag("a"), ClusterTag("b"));
  EXPECT_THAT(Text(parse(sizeof(hello) - 1)), HasSubstr("no verbs fabric of Furrow"));
  EXPECT_THAT(Text(parse(0)), HasSubstr("no verbs fabric of Furrow"));
  hello.version = 77;
  EXPECT_THAT(Text(parse(sizeof hello)), HasSubstr("version 77: run the same release"));
  hello.version = kVerbsVersion;
  hello.zero1 = 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(parse(sizeof hello)));
}

TEST(VerbsWireTest, RefusalsCarryCodeAndSentence) {
  const VerbsRefusal refusal = MakeRefusal(absl::ResourceExhaustedError("too many " + std::string(500, 'x')));
  absl::Status status;
  ASSERT_TRUE(ParseRefusal(std::as_bytes(std::span(&refusal, 1)), &status));
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(Text(status), HasSubstr("too many xxx"));
  EXPECT_FALSE(ParseRefusal({}, &status));
  VerbsRefusal strange = refusal;
  strange.code = 999;
  ASSERT_TRUE(ParseRefusal(std::as_bytes(std::span(&strange, 1)), &status));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
}

TEST(VerbsWireTest, SentencesOfPeersFitOnALineOfTheLog) {
  const absl::Status forged = StatusFromWire(5, "no\nE node 7 has stolen\x1b[2J your data\x7f, K\xc3\xb6nig");
  EXPECT_EQ(Text(forged), "no?E node 7 has stolen?[2J your data?, K\xc3\xb6nig");
  EXPECT_EQ(Text(StatusFromWire(5, std::string(100'000, 'x'))).size(), kMaxPeerSentence);
  EXPECT_EQ(StatusFromWire(0, "fine").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromWire(17, "").code(), absl::StatusCode::kUnknown);
}

TEST(VerbsWireTest, ImmediateDataKeepsItsParts) {
  EXPECT_EQ(Immediate(Immediate::Notify(63, true)).kind(), Immediate::kNotify);
  EXPECT_EQ(Immediate(Immediate::Notify(63, true)).channel(), 63);
  EXPECT_TRUE(Immediate(Immediate::Notify(0, true)).last());
  EXPECT_FALSE(Immediate(Immediate::Notify(63, false)).last());
  EXPECT_EQ(Immediate(Immediate::Send(1024)).kind(), Immediate::kSend);
  EXPECT_EQ(Immediate(Immediate::Send(1024)).bytes(), 1024u);
  const Immediate credits(Immediate::Credits(4096, 1024));
  EXPECT_EQ(credits.kind(), Immediate::kCredits);
  EXPECT_EQ(credits.notifications(), 4096u);
  EXPECT_EQ(credits.receives(), 1024u);
}

}  // namespace
}  // namespace furrow::rdma
