// The verbs fabric between real processes, and over a link that is cut. The target is this binary again,
// started with --target.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/thread.h"
#include "gtest/gtest.h"
#include "rdma/fabric_contract_bytes.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_world.h"

namespace furrow::rdma {
namespace {

constexpr size_t kBytes = 1 << 16;

// Registers a readable and a writable region, tells where they lie, and serves connections until the input
// ends. It answers each line of input with the word at the start of the writable region.
int RunTarget(const std::string& address, const std::string& endpoint) {
  auto fabric = *MakeVerbsFabric({.identity = {NodeId(2), "processes", "their secret"}, .address = address});
  auto queue = *fabric->CreateCompletionQueue();
  EventLoop loop(MonotonicClock(), queue->parker());
  std::vector<MemoryFile> files;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  for (const Access access : {Access::kRead, Access::kWrite}) {
    files.push_back(*MemoryFile::Anonymous(kBytes));
    if (access == Access::kRead) memset(files.back().data(), 5, kBytes);
    regions.push_back(*fabric->Register(files.back(), access));
    const RemoteAddress at = regions.back()->remote_address();
    printf("%lu %u\n", at.address, at.key.value());
  }
  const absl::StatusOr<Endpoint> listening =
      fabric->Listen(endpoint, [&](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
        return AcceptDecision{queue.get(), "target"};
      });
  printf("%s\n", listening.ok() ? "listening" : "failed");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof(line), stdin) != nullptr) {
    printf("%lu\n", LoadShared(files[1].bytes()));
    fflush(stdout);
  }
  _Exit(0);
}

class VerbsProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (VerbsTestAddresses().empty()) GTEST_SKIP() << "this host has no RDMA device";
    endpoint_ = VerbsTestEndpoint(1);
    child_ = *ChildProcess::Start(ChildProcess::Self(), {"--target", VerbsTestAddress(1), endpoint_});
    readable_ = ReadAddress();
    writable_ = ReadAddress();
    ASSERT_EQ(child_->ReadLine(), "listening");
    OpenFabric(VerbsOptions());
  }

  void OpenFabric(VerbsOptions options) {
    region_.reset();
    loop_.reset();
    queue_.reset();
    options.identity = {NodeId(1), "processes", "their secret"};
    options.address = VerbsTestAddress(0);
    fabric_ = *MakeVerbsFabric(options);
    queue_ = *fabric_->CreateCompletionQueue();
    loop_ = std::make_unique<EventLoop>(MonotonicClock(), queue_->parker());
    file_ = *MemoryFile::Anonymous(kBytes);
    region_ = *fabric_->Register(file_, Access::kNone);
  }

  RemoteAddress ReadAddress() {
    std::istringstream line(child_->ReadLine());
    uint64_t address = 0;
    uint32_t key = 0;
    line >> address >> key;
    return {address, RemoteKey(key)};
  }

  absl::StatusOr<std::unique_ptr<Connection>> TryConnect(Nanos timeout = 60 * kSecond) {
    absl::StatusOr<std::unique_ptr<Connection>> result = absl::UnknownError("not called");
    bool done = false;
    fabric_->Connect(*queue_, *loop_, endpoint_, "", {}, timeout,
                     [&](absl::StatusOr<std::unique_ptr<Connection>> made) {
                       done = true;
                       result = std::move(made);
                     });
    while (!done) {
      queue_->parker().PrepareToPark();
      if (loop_->RunOnce()) {
        queue_->parker().CancelPark();
      } else {
        queue_->parker().Park(MonotonicClock().Now() + 100 * kMillisecond);
      }
    }
    return result;
  }
  std::unique_ptr<Connection> Connect() {
    auto connection = TryConnect();
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }

  // The next completion of the kind; others are dropped.
  Completion Next(Completion::Kind kind) {
    const Nanos limit = MonotonicClock().Now() + 120 * kSecond;
    Completion completion;
    while (MonotonicClock().Now() < limit) {
      if (queue_->Poll(std::span(&completion, 1)) == 1) {
        if (completion.kind == kind) return completion;
      } else {
        SleepThreadUntil(MonotonicClock().Now() + 100 * kMicrosecond);
      }
    }
    ADD_FAILURE() << "no completion of kind " << static_cast<int>(kind);
    return completion;
  }
  CompletionStatus Do(Connection& connection, Opcode opcode, RemoteAddress remote, size_t bytes = 256,
                      WorkRequest::Notify notify = WorkRequest::Notify::kNone) {
    WorkRequest request;
    request.opcode = opcode;
    request.id = 9;
    request.local = file_.bytes().first(bytes);
    request.remote = remote;
    request.notify = notify;
    EXPECT_TRUE(connection.Post(request).ok());
    return Next(Completion::Kind::kRequest).status;
  }
  // tests/vm/network, in the virtual machine.
  static void Network(const std::string& what) {
    auto shell =
        *ChildProcess::Start("/bin/bash", {"-c", absl::StrCat("tests/vm/network ", what, "; echo $?")});
    ASSERT_EQ(shell->ReadLine(), "0") << what;
  }

  Endpoint endpoint_;
  std::unique_ptr<ChildProcess> child_;
  RemoteAddress readable_, writable_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  MemoryFile file_;
  std::unique_ptr<MemoryRegion> region_;
};

TEST_F(VerbsProcessTest, RequestsCompleteWhileTheTargetIsStopped) {
  auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  child_->Stop();
  EXPECT_EQ(Do(*connection, Opcode::kRead, readable_, kBytes), CompletionStatus::kOk);
  for (std::byte byte : file_.bytes()) ASSERT_EQ(byte, std::byte{5});
  // More notifications than the target has room for, and for longer than the session's probe takes.
  const Nanos end = MonotonicClock().Now() + 3 * kSecond;
  uint64_t last = 0;
  while (last < 300 || MonotonicClock().Now() < end) {
    ++last;
    memcpy(file_.data(), &last, sizeof last);
    ASSERT_EQ(Do(*connection, Opcode::kWrite, writable_, 8, WorkRequest::Notify::kWake),
              CompletionStatus::kOk);
  }
  EXPECT_FALSE(connection->failed());
  child_->Continue();
  child_->WriteLine("word?");
  EXPECT_EQ(child_->ReadLine(), std::to_string(last));
  EXPECT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
}

TEST_F(VerbsProcessTest, StoppedTargetDoesNotOpenConnections) {
  auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  child_->Stop();
  const auto late = TryConnect(500 * kMillisecond);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  child_->Continue();
  EXPECT_TRUE(TryConnect().ok());
}

TEST_F(VerbsProcessTest, KilledTargetFailsRequestsAndDisconnects) {
  auto busy = Connect();
  auto idle = Connect();
  ASSERT_TRUE(busy != nullptr && idle != nullptr);
  ASSERT_EQ(Do(*busy, Opcode::kRead, readable_), CompletionStatus::kOk);
  child_->Kill();
  CompletionStatus status = CompletionStatus::kOk;
  while (status == CompletionStatus::kOk) status = Do(*busy, Opcode::kRead, readable_);
  EXPECT_EQ(status, CompletionStatus::kPeerGone) << ToString(status);
  EXPECT_EQ(Do(*busy, Opcode::kRead, readable_), CompletionStatus::kFlushed);
  // The one that is idle is told, too. (Do() may have dropped that of the other.)
  while (!idle->failed()) {
    Completion completion;
    (void)queue_->Poll(std::span(&completion, 1));
    SleepThreadUntil(MonotonicClock().Now() + kMillisecond);
  }
  EXPECT_EQ(Do(*idle, Opcode::kRead, readable_), CompletionStatus::kPeerGone);
}

// Nothing is under way, and no datagram says that the target is gone: the session's probe finds out.
TEST_F(VerbsProcessTest, CutLinkEndsRequestsInBoundedTimeAndComesBack) {
  if (getenv("FURROW_VERBS_LINK") == nullptr) GTEST_SKIP() << "there is no link to cut: FURROW_VERBS_LINK";
  const std::string link = getenv("FURROW_VERBS_LINK");
  auto busy = Connect();
  auto idle = Connect();
  ASSERT_TRUE(busy != nullptr && idle != nullptr);
  Network("down " + link);
  EXPECT_EQ(Do(*busy, Opcode::kRead, readable_), CompletionStatus::kPeerGone);
  while (!idle->failed()) {
    Completion completion;
    (void)queue_->Poll(std::span(&completion, 1));
    SleepThreadUntil(MonotonicClock().Now() + kMillisecond);
  }
  const auto down = TryConnect(kSecond);
  EXPECT_TRUE(absl::IsUnavailable(down.status())) << down.status();
  Network("up " + link);
  busy.reset();
  idle.reset();
  // The target learns on its side, too, and takes new connections.
  std::unique_ptr<Connection> again;
  const Nanos limit = MonotonicClock().Now() + 120 * kSecond;
  while (again == nullptr && MonotonicClock().Now() < limit) {
    auto connection = TryConnect(5 * kSecond);
    if (connection.ok()) {
      again = *std::move(connection);
    } else {
      SleepThreadUntil(MonotonicClock().Now() + 50 * kMillisecond);
    }
  }
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(Do(*again, Opcode::kRead, readable_), CompletionStatus::kOk);
}

// Soft-RoCE says that it could not send; a card would find no way to the peer. Neither means our memory.
TEST_F(VerbsProcessTest, InterfaceOfTheOwnDeviceThatIsDownMakesThePeerUnreachable) {
  if (getenv("FURROW_VERBS_OWN_LINK") == nullptr) GTEST_SKIP() << "nothing to cut: FURROW_VERBS_OWN_LINK";
  const std::string link = getenv("FURROW_VERBS_OWN_LINK");
  auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
  Network("down " + link);
  const CompletionStatus status = Do(*connection, Opcode::kRead, readable_);
  Network("up " + link);
  EXPECT_EQ(status, CompletionStatus::kPeerGone) << ToString(status);
  EXPECT_TRUE(connection->failed());
}

// Shorter than the retries take: nothing fails.
TEST_F(VerbsProcessTest, ShortInterruptionIsRetried) {
  if (getenv("FURROW_VERBS_LINK") == nullptr) GTEST_SKIP() << "there is no link to cut: FURROW_VERBS_LINK";
  // Changing the network takes the emulated machine long, now and then: seconds of retries.
  VerbsOptions patient;
  patient.ack_timeout = patient.session_ack_timeout = 18;
  const Nanos retries = patient.retry_count * (Nanos{4'096} << patient.ack_timeout);
  OpenFabric(patient);
  auto connection = Connect();
  ASSERT_NE(connection, nullptr);
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
  for (int i = 0; i < 5; ++i) {
    Network("disturb loss 100%");
    WorkRequest request;
    request.local = file_.bytes().first(256);
    request.remote = readable_;
    const Nanos posted = MonotonicClock().Now();
    ASSERT_TRUE(connection->Post(request).ok());
    Network("calm");
    const Nanos lasted = MonotonicClock().Now() - posted;
    const CompletionStatus status = Next(Completion::Kind::kRequest).status;
    if (lasted >= retries) GTEST_SKIP() << "the interruption took " << lasted / kMillisecond << " ms";
    ASSERT_EQ(status, CompletionStatus::kOk)
        << ToString(status) << " after " << lasted / kMillisecond << " ms";
  }
}

}  // namespace
}  // namespace furrow::rdma

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--target") return furrow::rdma::RunTarget(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
