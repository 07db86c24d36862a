// The shm fabric between real processes. The target is this binary again, started with --target.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/thread.h"
#include "gtest/gtest.h"
#include "rdma/shm/shm_fabric.h"
#include "rdma/shm/shm_test_world.h"

namespace furrow::rdma {
namespace {

constexpr size_t kBytes = 1 << 16;
const FabricIdentity kInitiator = {NodeId(1), "processes", "their secret"};
const FabricIdentity kTarget = {NodeId(2), "processes", "their secret"};

// Registers a readable and a writable region, tells where they lie, and serves connections until the input
// ends. A line of input registers one more readable region, filled with sevens, and answers with its address.
int RunTarget(const std::string& endpoint) {
  auto fabric = *MakeShmFabric({.identity = kTarget});
  auto queue = *fabric->CreateCompletionQueue();
  std::vector<MemoryFile> files;
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  const auto add = [&](Access access, int fill) {
    files.push_back(*MemoryFile::Anonymous(kBytes));
    memset(files.back().data(), fill, kBytes);
    regions.push_back(*fabric->Register(files.back(), access));
    const RemoteAddress at = regions.back()->remote_address();
    printf("%lu %u\n", at.address, at.key.value());
    fflush(stdout);
  };
  add(Access::kRead, 5);
  add(Access::kWrite, 0);
  absl::StatusOr<Endpoint> listening =
      fabric->Listen(endpoint, [&](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
        return AcceptDecision{queue.get(), "target"};
      });
  printf("%s\n", listening.ok() ? "listening" : "failed");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof(line), stdin) != nullptr) add(Access::kRead, 7);
  return 0;
}

class ShmProcessTest : public testing::Test {
 protected:
  ShmProcessTest()
      : endpoint_(directory_.path() + "/target.sock"),
        child_owner_(*ChildProcess::Start(ChildProcess::Self(), {"--target", endpoint_})),
        child_(*child_owner_) {}

  void SetUp() override {
    readable_ = ReadAddress();
    writable_ = ReadAddress();
    ASSERT_EQ(child_.ReadLine(), "listening");
    fabric_ = *MakeShmFabric({.identity = kInitiator});
    queue_ = *fabric_->CreateCompletionQueue();
    loop_ = std::make_unique<EventLoop>(MonotonicClock(), queue_->parker());
    file_ = *MemoryFile::Anonymous(kBytes);
    region_ = *fabric_->Register(file_, Access::kNone);
  }

  RemoteAddress ReadAddress() {
    std::istringstream line(child_.ReadLine());
    uint64_t address = 0;
    uint32_t key = 0;
    line >> address >> key;
    return {address, RemoteKey(key)};
  }

  absl::StatusOr<std::unique_ptr<Connection>> Connect(Fabric& fabric, CompletionQueue& queue, EventLoop& loop,
                                                      Nanos timeout = 20 * kSecond) {
    absl::StatusOr<std::unique_ptr<Connection>> result = absl::UnknownError("not called");
    bool done = false;
    fabric.Connect(queue, loop, endpoint_, "", {}, timeout,
                   [&](absl::StatusOr<std::unique_ptr<Connection>> made) {
                     done = true;
                     result = std::move(made);
                   });
    while (!done) {
      queue.parker().PrepareToPark();
      if (loop.RunOnce()) {
        queue.parker().CancelPark();
      } else {
        queue.parker().Park(MonotonicClock().Now() + 100 * kMillisecond);
      }
    }
    return result;
  }
  std::unique_ptr<Connection> Connect() {
    auto connection = Connect(*fabric_, *queue_, *loop_);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }

  CompletionStatus Do(Connection& connection, Opcode opcode, RemoteAddress remote, size_t bytes = 256) {
    WorkRequest request;
    request.opcode = opcode;
    request.id = 9;
    request.local = file_.bytes().first(bytes);
    request.remote = remote;
    EXPECT_TRUE(connection.Post(request).ok());
    Completion completion;
    EXPECT_EQ(queue_->Poll(std::span(&completion, 1)), 1u);
    return completion.status;
  }

  SocketDirectory directory_;
  const std::string endpoint_;
  const std::unique_ptr<ChildProcess> child_owner_;
  ChildProcess& child_;
  RemoteAddress readable_, writable_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  MemoryFile file_;
  std::unique_ptr<MemoryRegion> region_;
};

TEST_F(ShmProcessTest, ReadsAndWritesCompleteWhileTargetIsStopped) {
  std::unique_ptr<Connection> connection = Connect();
  ASSERT_NE(connection, nullptr);
  // A region that was registered after the connection was made, and is used first while its owner is stopped.
  child_.WriteLine("another");
  const RemoteAddress late = ReadAddress();
  child_.Stop();
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
  EXPECT_EQ(file_.bytes()[255], std::byte{5});
  memset(file_.data(), 3, kBytes);
  ASSERT_EQ(Do(*connection, Opcode::kWrite, writable_, kBytes), CompletionStatus::kOk);
  ASSERT_EQ(Do(*connection, Opcode::kRead, late, kBytes), CompletionStatus::kOk);
  EXPECT_EQ(file_.bytes()[kBytes - 1], std::byte{7});
  EXPECT_FALSE(connection->failed());
  child_.Continue();
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
}

TEST_F(ShmProcessTest, ConnectToStoppedTargetEndsInTime) {
  child_.Stop();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Connect(*fabric_, *queue_, *loop_, 50 * kMillisecond).status()));
  child_.Continue();
  EXPECT_NE(Connect(), nullptr);
}

TEST_F(ShmProcessTest, KilledTargetIsGoneThoughItsMemoryIsMapped) {
  std::unique_ptr<Connection> connection = Connect();
  ASSERT_NE(connection, nullptr);
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
  child_.Kill();
  Completion completion;
  while (queue_->Poll(std::span(&completion, 1)) == 0) {
    queue_->parker().PrepareToPark();
    if (connection->failed()) {
      queue_->parker().CancelPark();
    } else {
      queue_->parker().Park(kNever);
    }
  }
  EXPECT_EQ(completion.kind, Completion::Kind::kDisconnected);
  EXPECT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kPeerGone);
  EXPECT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kFlushed);
  EXPECT_TRUE(absl::IsUnavailable(Connect(*fabric_, *queue_, *loop_).status()));
}

TEST_F(ShmProcessTest, RestartedTargetListensAtTheSamePath) {
  child_.Kill();
  auto again = *ChildProcess::Start(ChildProcess::Self(), {"--target", endpoint_});
  again->ReadLine();
  again->ReadLine();
  ASSERT_EQ(again->ReadLine(), "listening");
  EXPECT_NE(Connect(), nullptr);
}

TEST_F(ShmProcessTest, StrangerGetsNoMemory) {
  auto stranger = *MakeShmFabric({.identity = {NodeId(9), "processes", "a guess"}});
  auto queue = *stranger->CreateCompletionQueue();
  EventLoop loop(MonotonicClock(), queue->parker());
  const absl::Status status = Connect(*stranger, *queue, loop).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_NE(std::string(status.message()).find("secret"), std::string::npos) << status;
}

TEST_F(ShmProcessTest, ReadableRegionCannotBeMappedForWriting) {
  std::unique_ptr<Connection> connection = Connect();
  ASSERT_NE(connection, nullptr);
  ASSERT_EQ(Do(*connection, Opcode::kRead, readable_), CompletionStatus::kOk);
  // Every mapping of the target's memory in this process that is the size of the readable region and holds
  // its bytes.
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long low = 0, high = 0;
    char rights[8] = {};
    if (line.find("memfd:furrow") == std::string::npos) continue;
    ASSERT_EQ(sscanf(line.c_str(), "%lx-%lx %4s", &low, &high, rights), 3);
    if (high - low != kBytes || *reinterpret_cast<const char*>(low) != 5) continue;
    if (reinterpret_cast<std::byte*>(low) == file_.data()) continue;
    ++found;
    EXPECT_EQ(rights[1], '-') << line;
    // The descriptor that it came from grants no more.
    EXPECT_NE(mprotect(reinterpret_cast<void*>(low), kBytes, PROT_READ | PROT_WRITE), 0);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(ShmProcessTest, SocketIsClosedToOthers) {
  namespace fs = std::filesystem;
  EXPECT_EQ(fs::status(endpoint_).permissions() & fs::perms(0777), fs::perms(0600));
  const std::string open_directory = directory_.path() + "/open";
  fs::create_directory(open_directory);
  fs::permissions(open_directory, fs::perms(0755));
  EXPECT_TRUE(absl::IsPermissionDenied(fabric_->Listen(open_directory + "/x.sock", nullptr).status()));
}

TEST_F(ShmProcessTest, SecondListenerAtTheSamePathIsRefused) {
  EXPECT_TRUE(absl::IsAlreadyExists(fabric_->Listen(endpoint_, nullptr).status()));
}

}  // namespace
}  // namespace furrow::rdma

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--target") == 0) return furrow::rdma::RunTarget(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
