// What the contract suite cannot see: parking, and that quiet notifications leave it alone.
#include "rdma/shm/shm_queue.h"

#include <atomic>

#include "base/clock.h"
#include "base/thread.h"
#include "gtest/gtest.h"
#include "rdma/shm/shm_layout.h"
#include "rdma/shm/shm_test_world.h"

namespace furrow::rdma {
namespace {

class ShmQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    from_ = world_.AddNode({NodeId(1), "queue", "s"});
    to_ = world_.AddNode({NodeId(2), "queue", "s"});
    ASSERT_TRUE(to_.fabric
                    ->Listen(to_.endpoint,
                             [this](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
                               return AcceptDecision{to_.queue, ""};
                             })
                    .ok());
    from_.fabric->Connect(
        *from_.queue, *from_.loop, to_.endpoint, "", {}, 10 * kSecond,
        [this](absl::StatusOr<std::unique_ptr<Connection>> c) { connection_ = *std::move(c); });
    Completion connected;
    ASSERT_TRUE(world_.RunUntil([&] {
      if (accepted_ == nullptr && to_.queue->Poll(std::span(&connected, 1)) == 1) {
        accepted_ = to_.queue->TakeAccepted(connected.connection);
      }
      return connection_ != nullptr && accepted_ != nullptr;
    }));
    local_ = *MemoryFile::Anonymous(4096);
    remote_ = *MemoryFile::Anonymous(4096);
    local_region_ = *from_.fabric->Register(local_, Access::kNone);
    remote_region_ = *to_.fabric->Register(remote_, Access::kWrite);
  }
  void TearDown() override {
    connection_.reset();
    accepted_.reset();
  }
  void Notify(WorkRequest::Notify notify, uint8_t channel = 0, uint64_t value = 1) {
    WorkRequest write;
    write.opcode = Opcode::kWrite;
    write.signaled = false;
    write.inlined = true;
    write.local = std::as_writable_bytes(std::span(&value, 1));
    write.remote = remote_region_->remote_address();
    write.notify = notify;
    write.channel = channel;
    ASSERT_TRUE(connection_->Post(write).ok());
  }
  uint32_t parking_word() {
    return __atomic_load_n(static_cast<ShmParker&>(to_.queue->parker()).word(), __ATOMIC_SEQ_CST);
  }

  ShmTestWorld world_;
  FabricWorld::Node from_, to_;
  std::unique_ptr<Connection> connection_, accepted_;
  MemoryFile local_, remote_;
  std::unique_ptr<MemoryRegion> local_region_, remote_region_;
};

TEST_F(ShmQueueTest, OnlyWakingNotificationsEndPark) {
  Parker& parker = to_.queue->parker();
  parker.PrepareToPark();
  Notify(WorkRequest::Notify::kQuiet, 1);
  EXPECT_EQ(parking_word(), 1u);
  // The channel is marked already, and the wish to wake counts all the same.
  Notify(WorkRequest::Notify::kWake, 1);
  EXPECT_EQ(parking_word(), 0u);
  parker.Park(kNever);  // returns at once
  Completion completions[4];
  ASSERT_EQ(to_.queue->Poll(completions), 1u);
  EXPECT_EQ(completions[0].channel, 1);
}

TEST_F(ShmQueueTest, CancelledParkIsNotWokenLater) {
  Parker& parker = to_.queue->parker();
  parker.PrepareToPark();
  parker.CancelPark();
  Notify(WorkRequest::Notify::kWake);
  parker.PrepareToPark();
  EXPECT_EQ(parking_word(), 1u);
  parker.CancelPark();
}

TEST_F(ShmQueueTest, NoWakeUpIsLostBetweenThreads) {
  // The receiver parks without a deadline whenever it has seen nothing: a lost wake-up would hang this test.
  constexpr uint64_t kRounds = 20000;
  std::atomic<uint64_t> seen{0};
  Thread receiver({.name = "receiver"}, [&] {
    Parker& parker = to_.queue->parker();
    Completion completions[4];
    while (seen.load() < kRounds) {
      parker.PrepareToPark();
      if (to_.queue->Poll(completions) > 0) {
        parker.CancelPark();
        const uint64_t value = __atomic_load_n(reinterpret_cast<uint64_t*>(remote_.data()), __ATOMIC_ACQUIRE);
        seen.store(value);
      } else {
        parker.Park(kNever);
      }
    }
  });
  for (uint64_t round = 1; round <= kRounds; ++round) {
    Notify(WorkRequest::Notify::kWake, static_cast<uint8_t>(round % 3), round);
    // Now in lock-step, now in bursts.
    while (round % 4 == 0 && seen.load() < round) {
    }
  }
  receiver.Join();
  EXPECT_EQ(seen.load(), kRounds);
}

TEST_F(ShmQueueTest, CompletionsAreKeptWhenFewAreTaken) {
  for (uint8_t channel = 0; channel < 64; ++channel) Notify(WorkRequest::Notify::kQuiet, channel);
  Completion one;
  for (uint8_t channel = 0; channel < 64; ++channel) {
    ASSERT_EQ(to_.queue->Poll(std::span(&one, 1)), 1u);
    EXPECT_EQ(one.channel, channel);
  }
  EXPECT_EQ(to_.queue->Poll(std::span(&one, 1)), 0u);
}

}  // namespace
}  // namespace furrow::rdma
