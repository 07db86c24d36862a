// What the verbs provider adds to the contract: what sleeps and wakes, credits, the bounds of the send queue,
// errors and their log, and that nothing is left behind. Skipped without an RDMA device.
#include <dirent.h>
#include <stdio.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/fabric_contract_bytes.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_pair.h"

namespace furrow::rdma {
namespace {

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// What the process has in memory, in bytes.
size_t ResidentBytes() {
  FILE* file = fopen("/proc/self/statm", "r");
  unsigned long all = 0, resident = 0;
  const int fields = fscanf(file, "%lu %lu", &all, &resident);
  fclose(file);
  return fields == 2 ? resident * 4096 : 0;
}

using VerbsTest = VerbsTestPair;

// --- sleeping and waking. A lost wake-up would hang. ---

TEST_F(VerbsTest, WakingNotificationWakesParkedOwner) {
  Connect();
  for (int i = 0; i < 50; ++i) {
    b_.node.queue->parker().PrepareToPark();
    Poll(b_);
    ASSERT_EQ(Do(a_, Make(Opcode::kWrite, a_.bytes().first(8), b_.at(), Notify::kWake)),
              CompletionStatus::kOk);
    b_.node.queue->parker().Park(kNever);
    ASSERT_TRUE(RunUntil({&b_}, [&] { return b_.Count(Completion::Kind::kNotified) == size_t(i) + 1; }));
  }
}

TEST_F(VerbsTest, QuietNotificationWaitsForThePollOfItsOwner) {
  Connect();
  if (!Inside(b_).queue()->parts()->device->solicits())
    GTEST_SKIP() << "this device's every completion wakes";
  Poll(b_);
  b_.node.queue->parker().PrepareToPark();
  Poll(b_);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Do(a_, Make(Opcode::kWrite, a_.bytes().first(8), b_.at(), Notify::kQuiet)),
              CompletionStatus::kOk);
  }
  const Nanos deadline = MonotonicClock().Now() + 30 * kMillisecond;
  b_.node.queue->parker().Park(deadline);
  EXPECT_GE(MonotonicClock().Now(), deadline) << "the owner was woken";
  Poll(b_);
  EXPECT_GE(b_.Count(Completion::Kind::kNotified), 1u);
}

// Quiet ones have used all credits; the waking one cannot go before the owner has polled.
TEST_F(VerbsTest, WakingNotificationBehindManyQuietOnesWakesParkedOwner) {
  Connect();
  for (int round = 0; round < 3; ++round) {
    a_.completions.clear();
    b_.completions.clear();
    std::atomic<bool> parked{false}, woken{false};
    Thread owner({.name = "owner"}, [&] {
      Parker& parker = b_.node.queue->parker();
      const Nanos give_up = MonotonicClock().Now() + 60 * kSecond;
      while (MonotonicClock().Now() < give_up) {
        parker.PrepareToPark();
        Poll(b_);
        for (const Completion& c : b_.completions) {
          if (c.kind == Completion::Kind::kNotified && c.channel == 9) woken = true;
        }
        if (woken) break;
        parked = true;
        parker.Park(give_up);
      }
      parker.CancelPark();
      if (!woken) parked = true;
    });
    while (!parked) SleepThreadUntil(MonotonicClock().Now() + 100 * kMicrosecond);
    for (uint32_t i = 0; i <= VerbsOptions().notify_credits; ++i) {
      WorkRequest write = Make(Opcode::kWrite, a_.bytes().first(8), b_.at(), Notify::kQuiet);
      write.signaled = false;
      if (i == VerbsOptions().notify_credits) {
        write.notify = Notify::kWake;
        write.channel = 9;
      }
      ASSERT_TRUE(a_.connection->Post(write).ok());
    }
    EXPECT_TRUE(RunUntil({&a_}, [&] { return woken.load(); }));
    owner.Join();
  }
}

TEST_F(VerbsTest, EndOfOwnRequestWakesItsOwner) {
  Connect();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(a_.connection->Post(Make(Opcode::kRead, a_.bytes().first(8), b_.at())).ok());
    EXPECT_TRUE(SleepsUntilWoken(a_, kNever));
  }
  // Also of one that fails and did not ask.
  WorkRequest bad = Make(Opcode::kRead, a_.bytes().first(8), b_.at(1 << 20));
  bad.signaled = false;
  ASSERT_TRUE(a_.connection->Post(bad).ok());
  EXPECT_TRUE(SleepsUntilWoken(a_, kNever));
  EXPECT_TRUE(a_.connection->failed());
}

TEST_F(VerbsTest, DisconnectionAndSendWakeTheirOwner) {
  Connect();
  ASSERT_TRUE(b_.connection->PostReceive(7, b_.bytes().first(64)).ok());
  // Comes behind the word that there is a receive.
  ASSERT_EQ(Do(b_, Make(Opcode::kWrite, b_.bytes().first(8), a_.at(), Notify::kQuiet)),
            CompletionStatus::kOk);
  ASSERT_TRUE(RunUntil({&a_}, [&] { return a_.Count(Completion::Kind::kNotified) == 1; }));
  a_.completions.clear();
  ASSERT_EQ(Do(a_, Make(Opcode::kSend, a_.bytes().first(64), {})), CompletionStatus::kOk);
  EXPECT_TRUE(SleepsUntilWoken(b_, kNever));
  EXPECT_EQ(b_.completions.back().kind, Completion::Kind::kReceived);
  a_.connection.reset();
  EXPECT_TRUE(SleepsUntilWoken(b_, kNever));
  EXPECT_EQ(b_.completions.back().kind, Completion::Kind::kDisconnected);
}

// --- credits ---

// The target does not poll, as if its process were stopped: neither WRITE nor READ waits for it.
TEST_F(VerbsTest, TargetThatDoesNotPollTakesAnyNumberOfNotifications) {
  Connect();
  for (uint64_t i = 1; i <= 500; ++i) {
    WorkRequest write =
        Make(Opcode::kWrite, std::as_writable_bytes(std::span(&i, 1)), b_.at(), Notify::kWake);
    write.inlined = true;
    write.channel = static_cast<uint8_t>(i % 3);
    ASSERT_EQ(Do(a_, write), CompletionStatus::kOk) << i;
  }
  ASSERT_EQ(Do(a_, Make(Opcode::kRead, a_.bytes().first(8), b_.at())), CompletionStatus::kOk);
  EXPECT_EQ(LoadShared(a_.bytes()), 500u);
  // Now it polls: each channel is notified once all its bytes are there.
  ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return b_.Count(Completion::Kind::kNotified) >= 3; }));
  EXPECT_EQ(LoadShared(b_.bytes()), 500u);
  EXPECT_FALSE(a_.connection->failed());
}

// A sender that has run out of credits sleeps; the notifications that it owes go out when credits come back.
// Their channel is no other's.
TEST_F(VerbsTest, OwedNotificationsAreMadeUpForByASleepingSender) {
  Connect();
  uint64_t last = 0;
  const auto write = [&](uint8_t channel, Notify notify) {
    ++last;
    WorkRequest request = Make(Opcode::kWrite, std::as_writable_bytes(std::span(&last, 1)), b_.at(), notify);
    request.inlined = true;
    request.signaled = false;
    request.channel = channel;
    ASSERT_TRUE(a_.connection->Post(request).ok());
  };
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < VerbsOptions().notify_credits; ++i) write(5, Notify::kQuiet);
    for (int i = 0; i < 20; ++i) write(9, Notify::kWake);
    write(10, Notify::kQuiet);
    std::atomic<bool> stop{false};
    Thread sender({.name = "sender"}, [&] {
      Parker& parker = a_.node.queue->parker();
      for (;;) {
        parker.PrepareToPark();
        Poll(a_);
        if (stop.load()) break;
        parker.Park(kNever);
      }
      parker.CancelPark();
    });
    uint32_t seen[64] = {};
    const bool complete = RunUntil({&b_}, [&] {
      for (const Completion& c : b_.completions) {
        if (c.kind != Completion::Kind::kNotified) continue;
        // Those of channel 5 had credits, and may be polled before the later bytes are there; owed ones come
        // last.
        if (c.channel == 5 || LoadShared(b_.bytes()) == last) ++seen[c.channel];
      }
      b_.completions.clear();
      return seen[5] > 0 && seen[9] > 0 && seen[10] > 0;
    });
    stop = true;
    a_.node.queue->parker().Wake();
    sender.Join();
    ASSERT_TRUE(complete) << seen[5] << ", " << seen[9] << ", " << seen[10];
    EXPECT_EQ(seen[9], 1u) << "merged";
  }
}

TEST_F(VerbsTest, CreditsGoRoundForAsLongAsBothPoll) {
  Connect();
  const int rounds = VerbsTestRounds(3000);
  uint64_t notified = 0;
  for (int i = 0; i < rounds; ++i) {
    WorkRequest write =
        Make(Opcode::kWrite, a_.bytes().first(8), b_.at(), i % 2 == 0 ? Notify::kQuiet : Notify::kWake);
    write.signaled = i % 7 == 0;
    while (!a_.connection->Post(write).ok()) Poll(a_);
    if (i % 16 == 0) {
      Poll(a_);
      Poll(b_);
      notified += b_.completions.size();
      b_.completions.clear();
      a_.completions.clear();
    }
  }
  ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return a_.connection->idle() && !b_.completions.empty(); }));
  EXPECT_GE(notified, 1u);
  EXPECT_FALSE(a_.connection->failed());
}

// --- the send queue ---

TEST_F(VerbsTest, UnsignaledRequestsNeverOverrunTheirQueue) {
  for (const uint32_t max_requests : {1u, 3u, 16u, 200u}) {
    Connect({.max_requests = max_requests, .max_receives = 0});
    uint64_t refused = 0;
    for (uint64_t i = 1; i <= 2000; ++i) {
      WorkRequest write = Make(Opcode::kWrite, std::as_writable_bytes(std::span(&i, 1)), b_.at());
      write.inlined = true;
      write.signaled = false;
      while (!a_.connection->Post(write).ok()) {
        ++refused;
        Poll(a_);
      }
    }
    EXPECT_GT(refused, 0u);
    // Nobody asked for the end of the last ones, and yet it can be known.
    ASSERT_TRUE(RunUntil({&a_}, [&] { return a_.connection->idle(); })) << max_requests;
    EXPECT_EQ(LoadShared(b_.bytes()), 2000u);
    EXPECT_TRUE(a_.completions.empty());
    a_.connection.reset();
    ASSERT_TRUE(RunUntil({&b_}, [&] { return b_.Count(Completion::Kind::kDisconnected) == 1; }));
    b_.completions.clear();
    b_.connection.reset();
  }
}

TEST_F(VerbsTest, PayloadsBeyondThePathMtuArriveWhole) {
  Connect();
  MemoryFile large = *MemoryFile::Anonymous(300'000), target = *MemoryFile::Anonymous(300'000);
  auto of_a = *a_.node.fabric->Register(large, Access::kNone);
  auto of_b = *b_.node.fabric->Register(target, Access::kReadWrite);
  Fill(large.bytes(), 77);
  ASSERT_EQ(Do(a_, Make(Opcode::kWrite, large.bytes(), of_b->remote_address())), CompletionStatus::kOk);
  EXPECT_TRUE(Same(large.bytes(), target.bytes()));
  Fill(target.bytes(), 78);
  ASSERT_EQ(Do(a_, Make(Opcode::kRead, large.bytes(), of_b->remote_address())), CompletionStatus::kOk);
  EXPECT_TRUE(Same(large.bytes(), target.bytes()));
}

// --- errors ---

TEST_F(VerbsTest, FirstFailureIsLoggedAndFlushedRequestsAreCounted) {
  Connect();
  ASSERT_EQ(Do(a_, Make(Opcode::kRead, a_.bytes().first(8), b_.at())), CompletionStatus::kOk);
  Mutex mutex;
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel level, std::string_view line) {
    MutexLock lock(&mutex);
    // Where the session has said already that the peer has gone, it is no error.
    if (level == LogLevel::kError || line.find(" failed: ") != std::string_view::npos)
      lines.emplace_back(line);
  });
  std::vector<WorkRequest> requests(10, Make(Opcode::kWrite, a_.bytes().first(100), b_.at()));
  requests[3].remote = b_.at(1 << 20);
  a_.completions.clear();
  ASSERT_TRUE(a_.connection->Post(requests).ok());
  ASSERT_TRUE(RunUntil({&a_}, [&] { return a_.Count(Completion::Kind::kRequest) == 10; }));
  SetLogSink(nullptr);
  MutexLock lock(&mutex);
  ASSERT_EQ(lines.size(), 1u);
  const bool iwarp = Inside(a_).queue()->parts()->device->iwarp();
  for (const char* part :
       {"WRITE of 100 bytes to node 2 failed", iwarp ? "address " : "GID ", "queue pair ", "last success"}) {
    EXPECT_THAT(lines[0], testing::HasSubstr(part));
  }
  EXPECT_EQ(UseOf(*a_.node.fabric).failures, 1u);
  // On iWARP the proof of a WRITE before it may be lost with the connection.
  const uint64_t flushed = UseOf(*a_.node.fabric).flushed;
  EXPECT_TRUE(flushed == 6 || (iwarp && flushed > 6 && flushed < 10)) << flushed;
}

// A refused request takes the queue pair down on both sides; whoever did nothing wrong is told.
TEST_F(VerbsTest, OwnerOfTheOtherEndHearsOfAQueuePairThatFailed) {
  Connect();
  ASSERT_NE(Do(a_, Make(Opcode::kWrite, a_.bytes().first(8), b_.at(1 << 20))), CompletionStatus::kOk);
  ASSERT_TRUE(RunUntil({&b_}, [&] { return b_.Count(Completion::Kind::kDisconnected) == 1; }));
  EXPECT_TRUE(b_.connection->failed());
  EXPECT_EQ(Do(b_, Make(Opcode::kRead, b_.bytes().first(8), a_.at())), CompletionStatus::kPeerGone);
  a_.connection.reset();
  world_->Settle([&] { Poll(b_); });
  EXPECT_EQ(b_.Count(Completion::Kind::kDisconnected), 1u);
}

TEST_F(VerbsTest, ConnectionTooLargeForTheDeviceIsRefusedWithItsLimits) {
  absl::Status status;
  a_.node.fabric->Connect(*a_.node.queue, *a_.node.loop, b_.node.endpoint, "", {.max_requests = 65'536},
                          kSecond,
                          [&](absl::StatusOr<std::unique_ptr<Connection>> c) { status = c.status(); });
  ASSERT_TRUE(world_->RunUntil([&] { return !status.ok(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "holds") || absl::StrContains(status.message(), "at most"))
      << status;
}

// --- nothing is left ---

TEST_F(VerbsTest, ConnectionsThatComeFailAndGoLeaveNothing) {
  const int rounds = VerbsTestRounds(40);
  VerbsUse first_a, first_b;
  size_t descriptors = 0, memory = 0;
  for (int i = 0; i < rounds; ++i) {
    if (i == rounds / 4) memory = ResidentBytes();
    Connect({.max_requests = 16, .max_receives = 4});
    ASSERT_EQ(Do(a_, Make(Opcode::kWrite, a_.bytes().first(64), b_.at(), Notify::kWake)),
              CompletionStatus::kOk);
    if (i % 3 == 0) {
      EXPECT_NE(Do(a_, Make(Opcode::kRead, a_.bytes().first(64), b_.at(1 << 20))), CompletionStatus::kOk);
    }
    if (i % 3 == 1) {
      // Under way while it goes.
      for (int k = 0; k < 8; ++k) {
        ASSERT_TRUE(a_.connection->Post(Make(Opcode::kWrite, a_.bytes().first(4096), b_.at())).ok());
      }
    }
    a_.connection.reset();
    ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return b_.Count(Completion::Kind::kDisconnected) == 1; }));
    b_.connection.reset();
    a_.completions.clear();
    b_.completions.clear();
    const VerbsUse use_a = UseOf(*a_.node.fabric), use_b = UseOf(*b_.node.fabric);
    if (i == 0) {
      first_a = use_a;
      first_b = use_b;
      descriptors = OpenDescriptors();
    }
    ASSERT_EQ(use_a.queue_pairs, 0u);
    ASSERT_EQ(use_b.queue_pairs, 0u);
    ASSERT_EQ(use_a.registrations, first_a.registrations);
    ASSERT_EQ(use_b.registrations, first_b.registrations);
    ASSERT_EQ(use_a.sessions, first_a.sessions);
    // The fabrics' threads end these.
    ASSERT_TRUE(RunUntil(
        {},
        [&] { return UseOf(*a_.node.fabric).manager_ids == 1 && UseOf(*b_.node.fabric).manager_ids == 1; }))
        << "after " << i << " rounds, beside the session's: " << UseOf(*a_.node.fabric).manager_ids << ", "
        << UseOf(*b_.node.fabric).manager_ids;
    ASSERT_EQ(OpenDescriptors(), descriptors) << "after " << i << " rounds";
  }
  // The log of the test, the allocator: some growth at the beginning means nothing. (AddressSanitizer keeps
  // what was freed.)
  std::fprintf(stderr, "resident after a quarter of the rounds: %zu bytes, at the end %zu\n", memory,
               ResidentBytes());
  if (rounds >= 1000) EXPECT_LE(ResidentBytes(), memory + (4 << 20));
}

TEST_F(VerbsTest, FabricsThatComeAndGoLeaveNoDescriptor) {
  Connect();
  TearDown();
  a_ = End();
  b_ = End();
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < VerbsTestRounds(5); ++i) {
    SetUp();
    Connect();
    if (i % 2 == 0) world_->Kill(b_.node);
    TearDown();
    a_ = End();
    b_ = End();
    ASSERT_EQ(OpenDescriptors(), descriptors) << "after " << i << " rounds";
  }
}

}  // namespace
}  // namespace furrow::rdma
