// Single steps of the protocol on a simulated cluster of three nodes: each test shows the step, and that its
// mutation takes the step away.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutation.h"
#include "tests/sim/step_fixture.h"

namespace furrow::sim {
namespace {

TEST_F(ProtocolStep, AFreedObjectIsNotFound) {
  Address address = Make(0, 1);
  txn::CommitResult freed = Commit(0, [=](txn::Transaction& tx) -> Task<absl::Status> {
    auto read = co_await tx.Read(address, kBytes);
    if (!read.ok()) co_return read.status();
    co_return tx.Free(address);
  });
  ASSERT_TRUE(freed.committed());
  for (uint32_t node : {0u, 1u}) {
    absl::Status seen;
    auto look = [&](txn::Transaction& tx) -> Task<absl::Status> {
      seen = (co_await tx.Read(address, kBytes)).status();
      co_return absl::OkStatus();
    };
    Commit(node, look);
    EXPECT_EQ(seen.code(), absl::StatusCode::kNotFound) << "node " << node;
#ifdef FURROW_MUTATIONS
    SetMutation(Mutation::kSkipTombstoneCheck);
    Commit(node, look);
    EXPECT_TRUE(seen.ok()) << "the mutation has no effect on node " << node;
    SetMutation(Mutation::kNone);
#endif
  }
}

TEST_F(ProtocolStep, ASnapshotBelowTheFloorFollowsNoChain) {
  Address address = Make(0, 1);
  auto read_below = [&](Mutation mutation, uint64_t config) {
    absl::Status seen;
    Run(0, [&, mutation, config]() -> Task<void> {
      txn::Worker& worker = cluster_.worker(0, 0);
      txn::Transaction old(worker, {.read_only = true});
      EXPECT_TRUE((co_await old.Begin()).ok());
      txn::CommitResult written = co_await worker.Run([=](txn::Transaction& tx) -> Task<absl::Status> {
        auto read = co_await tx.Read(address, kBytes);
        if (!read.ok()) co_return read.status();
        co_return tx.OpenForWrite(address, kBytes).status();
      });
      EXPECT_TRUE(written.committed());
      cluster::RegionMapping mapping = *worker.node().directory.Find(region_);
      mapping.floor = written.timestamp;
      mapping.config = ConfigId(config);
      AdvanceView(0, config);
      worker.node().directory.Put(mapping);
      SetMutationIfAny(mutation);
      seen = (co_await old.Read(address, kBytes)).status();
      SetMutationIfAny(Mutation::kNone);
    });
    return seen;
  };
  EXPECT_EQ(read_below(Mutation::kNone, 11).code(), absl::StatusCode::kAborted);
#ifdef FURROW_MUTATIONS
  EXPECT_TRUE(read_below(Mutation::kIgnoreFloor, 12).ok());
#endif
}

TEST_F(ProtocolStep, NothingIsReportedBeforeEveryBackupHasAcknowledged) {
  Address address = Make(0, 1);
  auto reported_while_cut = [&] {
    bool done = false;
    cluster_.network().Cut(NodeId(1), NodeId(3));
    cluster_.worker(0, 0).loop().Spawn(Then(
        [](txn::Worker& worker, Address a) -> Task<void> {
          txn::CommitResult result = co_await worker.Run([a](txn::Transaction& tx) -> Task<absl::Status> {
            auto read = co_await tx.Read(a, kBytes);
            if (!read.ok()) co_return read.status();
            co_return tx.OpenForWrite(a, kBytes).status();
          });
          EXPECT_TRUE(result.committed()) << result.status.ToString();
        }(cluster_.worker(0, 0), address),
        &done));
    EXPECT_TRUE(cluster_.world().RunFor(20 * kMillisecond).ok());
    const bool early = done;
    cluster_.network().Heal(NodeId(1), NodeId(3));
    EXPECT_TRUE(cluster_.world().RunUntil([&] { return done; }, cluster_.world().now() + kSecond).ok());
    return early;
  };
  EXPECT_FALSE(reported_while_cut());
#ifdef FURROW_MUTATIONS
  // With the step taken away COMMIT-PRIMARY goes out at once: the new value is visible, though a backup lacks
  // it.
  SetMutation(Mutation::kSkipBackupWait);
  cluster_.network().Cut(NodeId(1), NodeId(3));
  bool done = false;
  cluster_.worker(0, 0).loop().Spawn(Then(
      [](txn::Worker& worker, Address a) -> Task<void> {
        co_await worker.Run([a](txn::Transaction& tx) -> Task<absl::Status> {
          auto read = co_await tx.Read(a, kBytes);
          if (!read.ok()) co_return read.status();
          auto write = tx.OpenForWrite(a, kBytes);
          if (!write.ok()) co_return write.status();
          (*write)[0] = std::byte{99};
          co_return absl::OkStatus();
        });
      }(cluster_.worker(0, 0), address),
      &done));
  EXPECT_TRUE(cluster_.world().RunFor(20 * kMillisecond).ok());
  EXPECT_FALSE(done);
  uint8_t seen = 0;
  Commit(1, [&](txn::Transaction& tx) -> Task<absl::Status> {
    auto read = co_await tx.Read(address, kBytes);
    if (read.ok()) seen = static_cast<uint8_t>((*read)[0]);
    co_return read.status();
  });
  EXPECT_EQ(seen, 99);
  cluster_.network().Heal(NodeId(1), NodeId(3));
  EXPECT_TRUE(cluster_.world().RunUntil([&] { return done; }, cluster_.world().now() + kSecond).ok());
#endif
}

TEST_F(ProtocolStep, WhatAMemberLeavesIsForgotten) {
  Address address = Make(2, 1);
  ASSERT_TRUE(Write(0, address, 2).committed());
  ASSERT_TRUE(Write(2, address, 3).committed());
  ASSERT_TRUE(cluster_.DrainAndCompare().ok());
  txn::Worker& worker = cluster_.worker(0, 0);
  EXPECT_EQ(worker.coordinator().links().size(), 3u) << "itself, and two others";
  EXPECT_EQ(worker.participant().senders(), 2u) << "itself, and the one that has written";
  EXPECT_EQ(worker.mesh().counts(), (rdma::RingMesh::Counts{.links = 2, .accepted = 2}));
  cluster_.world().Kill(cluster_.process(2));
  EXPECT_TRUE(
      cluster_.world()
          .RunUntil([&] { return worker.mesh().counts().links == 1; }, cluster_.world().now() + 5 * kSecond)
          .ok());
  EXPECT_TRUE(cluster_.world().RunFor(kSecond).ok());
  EXPECT_EQ(worker.coordinator().links().size(), 2u);
  EXPECT_EQ(worker.participant().senders(), 1u);
  EXPECT_EQ(worker.mesh().counts(), (rdma::RingMesh::Counts{.links = 1, .accepted = 1}));
  // A call to who is gone ends at once, and a commit says so.
  Run(0, [&]() -> Task<void> {
    auto answer = co_await worker.coordinator().Call(NodeId(3), txn::MessageType::kValidate, 0, {}, 0);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  });
  EXPECT_EQ(Write(0, address, 4).status.code(), absl::StatusCode::kUnavailable);
}

// Transactions on node 0 that write there and read at nodes 1 and 2; no region has a backup, so that VALIDATE
// is the only step that talks to both.
class ValidateStep : public ProtocolStep {
 protected:
  explicit ValidateStep(uint32_t by_message_above = 100, const rdma::SimNetworkOptions* network = nullptr)
      : ProtocolStep(WithoutBackups(by_message_above, network)) {}
  static SimClusterOptions WithoutBackups(uint32_t by_message_above, const rdma::SimNetworkOptions* network) {
    SimClusterOptions options = Options();
    if (network != nullptr) options.network = *network;
    options.replicas = 1;
    options.validate_by_message_above = by_message_above;
    return options;
  }
  void SetUp() override {
    ProtocolStep::SetUp();
    own_ = Make(0, 1);
    for (uint32_t node : {1u, 2u}) {
      absl::StatusOr<RegionId> region = cluster_.AddRegion(node);
      ASSERT_TRUE(region.ok());
      for (int i = 0; i < 5; ++i) remote_.push_back(MakeNear(node, *region, 1));
    }
    ASSERT_TRUE(cluster_.world().RunFor(50 * kMillisecond).ok());
    for (uint32_t node : {1u, 2u}) rooms_.push_back(Link(node).reply_room);
  }
  rdma::OutboundLink& Link(uint32_t node) { return *cluster_.worker(0, 0).mesh().link(NodeId(node + 1)); }
  bool Asks(uint32_t node) {
    return !Link(node).connection->idle() || Link(node).reply_room < rooms_[node - 1];
  }
  // Reads everything and writes its own; `change` comes between the last read and the commit.
  txn::CommitResult ReadAllAndWrite(const std::function<Task<void>()>& change) {
    txn::CommitResult result;
    bool done = false;
    auto body = [&]() -> Task<void> {
      txn::Transaction tx(cluster_.worker(0, 0), {});
      EXPECT_TRUE((co_await tx.Begin()).ok());
      for (Address address : remote_) EXPECT_TRUE((co_await tx.Read(address, kBytes)).ok());
      EXPECT_TRUE((co_await tx.Read(own_, kBytes)).ok());
      EXPECT_TRUE(tx.OpenForWrite(own_, kBytes).ok());
      co_await change();
      result = co_await tx.Commit();
    };
    cluster_.worker(0, 0).loop().Spawn(Then(body(), &done));
    absl::Status status = cluster_.world().RunUntil(
        [&] {
          both_at_once_ = both_at_once_ || (Asks(1) && Asks(2));
          return done;
        },
        cluster_.world().now() + 5 * kSecond);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  }
  void ExpectBothAskedAtOnce() {
    EXPECT_TRUE(ReadAllAndWrite([]() -> Task<void> { co_return; }).committed());
    EXPECT_TRUE(both_at_once_);
  }
  // What each primary holds changes in turn: each is noticed, and nothing is left behind.
  void ExpectEachChangeNoticed() {
    for (size_t i : {size_t{0}, size_t{4}, size_t{5}, size_t{9}}) {
      const uint32_t primary = i < 5 ? 1 : 2;
      txn::CommitResult result = ReadAllAndWrite([&]() -> Task<void> {
        txn::CommitResult changed =
            co_await cluster_.worker(0, 0).Run([&](txn::Transaction& tx) -> Task<absl::Status> {
              auto read = co_await tx.Read(remote_[i], kBytes);
              if (!read.ok()) co_return read.status();
              co_return tx.OpenForWrite(remote_[i], kBytes).status();
            });
        EXPECT_TRUE(changed.committed()) << changed.status;
      });
      EXPECT_EQ(result.outcome, txn::Outcome::kAborted);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted) << result.status << " at node " << primary;
      EXPECT_TRUE(cluster_.world().RunFor(50 * kMillisecond).ok());
      EXPECT_FALSE(Asks(1) || Asks(2)) << "the room of answers that nobody waited for has come back";
    }
    EXPECT_TRUE(cluster_.DrainAndCompare().ok());
  }

  Address own_;
  std::vector<Address> remote_;
  std::vector<uint64_t> rooms_;
  bool both_at_once_ = false;
};

class ValidateAtOnceStep : public ValidateStep {
 protected:
  ValidateAtOnceStep() : ValidateStep(4, &kAtOnce) {}
  static inline const rdma::SimNetworkOptions kAtOnce = rdma::SimNetworkOptions::AtOnce();
};

class ValidateByMessageStep : public ValidateStep {
 protected:
  ValidateByMessageStep() : ValidateStep(4) {}
};

TEST_F(ValidateStep, AllPrimariesAreAskedBeforeOneIsWaitedFor) { ExpectBothAskedAtOnce(); }
TEST_F(ValidateStep, AChangeAtAnyPrimaryIsNoticed) { ExpectEachChangeNoticed(); }
TEST_F(ValidateAtOnceStep, AChangeAtAnyPrimaryIsNoticed) { ExpectEachChangeNoticed(); }
TEST_F(ValidateByMessageStep, AllPrimariesAreAskedBeforeOneIsWaitedFor) { ExpectBothAskedAtOnce(); }
TEST_F(ValidateByMessageStep, AChangeAtAnyPrimaryIsNoticed) { ExpectEachChangeNoticed(); }

// One that holds some of what it needs and waits for the rest may wait for another that does the same.
TEST_F(ValidateStep, WhoWaitsForABufferHoldsNone) {
  rdma::RegisteredPool& scratch = cluster_.worker(0, 0).coordinator().scratch();
  std::vector<std::span<std::byte>> taken;
  const auto take_all = [&] {
    for (size_t bytes = rdma::RegisteredPool::kMaxBytes; bytes >= rdma::RegisteredPool::kMinBytes;
         bytes /= 2) {
      for (auto some = scratch.Take(bytes); !some.empty(); some = scratch.Take(bytes)) taken.push_back(some);
    }
  };
  int looks = 0;
  bool ended = false;
  const auto look = [&]() -> Task<void> {
    EventLoop& loop = cluster_.worker(0, 0).loop();
    for (; looks < 20; ++looks) {
      co_await loop.SleepFor(20 * kMicrosecond);
      const auto one = scratch.Take(rdma::RegisteredPool::kMinBytes);
      EXPECT_FALSE(one.empty()) << "VALIDATE sits on the one buffer that there is, and needs two";
      if (!one.empty()) scratch.Give(one);
    }
    for (const auto some : taken) scratch.Give(some);
    ended = true;
  };
  const txn::CommitResult result = ReadAllAndWrite([&]() -> Task<void> {
    take_all();
    scratch.Give(taken.back());
    taken.pop_back();
    cluster_.worker(0, 0).loop().Spawn(look());
    co_return;
  });
  EXPECT_TRUE(result.committed()) << result.status;
  EXPECT_TRUE(ended) << "it had its buffers before they were given back";
}

// What a peer does not answer is waited for until the transaction's deadline.
TEST_F(ValidateByMessageStep, ASilentPrimaryEndsTheCommitAtItsDeadline) {
  const Nanos begun = cluster_.world().now();
  txn::CommitResult result;
  bool done = false;
  auto body = [&]() -> Task<void> {
    txn::Transaction tx(cluster_.worker(0, 0), {.deadline_ns = 50 * kMillisecond});
    EXPECT_TRUE((co_await tx.Begin()).ok());
    for (Address address : remote_) EXPECT_TRUE((co_await tx.Read(address, kBytes)).ok());
    EXPECT_TRUE((co_await tx.Read(own_, kBytes)).ok());
    EXPECT_TRUE(tx.OpenForWrite(own_, kBytes).ok());
    cluster_.world().Pause(cluster_.process(2));
    result = co_await tx.Commit();
  };
  cluster_.worker(0, 0).loop().Spawn(Then(body(), &done));
  ASSERT_TRUE(cluster_.world().RunUntil([&] { return done; }, begun + 20 * kSecond).ok());
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded) << result.status;
  EXPECT_LT(cluster_.world().now() - begun, kSecond);
  cluster_.world().Resume(cluster_.process(2));
}

TEST_F(ValidateByMessageStep, ReadSetsLargerThanAMessageGoInSeveral) {
  const size_t largest = Link(2).messages->max_record();
  for (size_t n = remote_.size(); n * sizeof(txn::ValidateEntry) <= 2 * largest; n += 20) {
    txn::CommitResult made = Commit(2, [&](txn::Transaction& tx) -> Task<absl::Status> {
      for (int i = 0; i < 20; ++i) {
        auto allocation = co_await tx.Alloc(remote_[9].region(), kBytes);
        if (!allocation.ok()) co_return allocation.status();
        remote_.push_back(allocation->address);
      }
      co_return absl::OkStatus();
    });
    ASSERT_TRUE(made.committed()) << made.status;
  }
  EXPECT_TRUE(ReadAllAndWrite([]() -> Task<void> { co_return; }).committed());
  std::swap(remote_[9], remote_.back());
  ExpectEachChangeNoticed();
}

TEST_F(ValidateByMessageStep, APrimaryThatIsGoneEndsTheCommit) {
  txn::CommitResult result = ReadAllAndWrite([&]() -> Task<void> {
    cluster_.world().Kill(cluster_.process(1));
    co_return;
  });
  EXPECT_EQ(result.outcome, txn::Outcome::kAborted);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable) << result.status;
}

// --- why an allocation fails ---

class AllocationStep : public ProtocolStep {
 protected:
  absl::Status Allocate(uint32_t node, RegionId near, uint32_t bytes) {
    return Commit(node,
                  [=](txn::Transaction& tx) -> Task<absl::Status> {
                    co_return (co_await tx.Alloc(near, bytes)).status();
                  })
        .status;
  }
};

TEST_F(AllocationStep, AStaleMappingIsNoLackOfMemory) {
  cluster::RegionMapping mapping = *cluster_.node(1).directory.Find(region_);
  std::swap(mapping.replicas[0], mapping.replicas[2]);
  mapping.config = ConfigId(11);
  cluster_.node(1).directory.Put(mapping);
  const absl::Status status = Allocate(1, region_, kBytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("node 3"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("not the primary"), absl::string_view::npos) << status;
}

// A manager that knows better than the directory, and has no region to give.
class FreshControl final : public cluster::ControlPlane {
 public:
  FreshControl(txn::Node& node, cluster::RegionMapping fresh) : node_(node), fresh_(std::move(fresh)) {}
  Task<absl::StatusOr<const cluster::RegionMapping*>> AllocateRegion(
      cluster::AllocateRegionRequest) override {
    co_return absl::DataLossError("the table of regions is damaged");
  }
  Task<absl::StatusOr<const cluster::RegionMapping*>> LookupRegion(RegionId) override {
    ++lookups;
    co_return node_.directory.Put(fresh_);
  }
  int lookups = 0;

 private:
  txn::Node& node_;
  const cluster::RegionMapping fresh_;
};

TEST_F(AllocationStep, AStaleMappingIsLookedUpAgain) {
  cluster::RegionMapping mapping = *cluster_.node(1).directory.Find(region_);
  mapping.config = ConfigId(12);
  AdvanceView(1, 12);
  FreshControl control(cluster_.node(1), mapping);
  cluster_.node(1).control = &control;
  std::swap(mapping.replicas[0], mapping.replicas[2]);
  mapping.config = ConfigId(11);
  cluster_.node(1).directory.Put(mapping);
  const absl::Status status = Allocate(1, region_, kBytes);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(control.lookups, 1);
}

TEST_F(AllocationStep, AnErrorOfThePrimaryIsNoMatterOfTryingAgain) {
  FreshControl control(cluster_.node(0), *cluster_.node(0).directory.Find(region_));
  cluster_.node(0).control = &control;
  absl::Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = Allocate(1, region_, 7000);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("is damaged"), absl::string_view::npos) << status;
  EXPECT_EQ(status.message().find("ry again"), absl::string_view::npos) << status;
}

TEST_F(AllocationStep, AFullPrimarySaysWhatIsFull) {
  storage::MemoryBudget& budget = cluster_.node(0).budget;
  ASSERT_TRUE(budget.Charge("the test", budget.limit() - budget.used() - (2 << 20)).ok());
  absl::Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = Allocate(1, region_, 7000);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("the test"), absl::string_view::npos) << "the primary's words: " << status;
  EXPECT_NE(status.message().find("Delete data"), absl::string_view::npos) << status;
}

TEST_F(AllocationStep, ABackupThatIsGoneIsNoLackOfMemory) {
  cluster_.world().Kill(cluster_.process(2));
  ASSERT_TRUE(cluster_.world().RunFor(2 * kSecond).ok());
  const absl::Status status = Allocate(1, region_, 500);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message().find("Delete data"), absl::string_view::npos) << status;
}

using ProtocolStepDeathTest = ProtocolStep;

TEST_F(ProtocolStepDeathTest, ALeaseIsWorthNothingOnceItsSlotIsTaken) {
  // Node 1 takes the very slot that node 2 believes to have leased.
  Address taken = Make(0, 1);
  storage::SlotLease lease{taken, storage::ObjectWord(), 64};
  auto take_again = [&] {
    cluster_.worker(1, 0).coordinator().GiveLease(lease, ConfigId(1));
    txn::CommitResult result;
    Run(1, [&]() -> Task<void> {
      txn::Transaction tx(cluster_.worker(1, 0), {});
      EXPECT_TRUE((co_await tx.Begin()).ok());
      auto allocation = co_await tx.Alloc(region_, kBytes);
      EXPECT_TRUE(allocation.ok());
      EXPECT_EQ(allocation->address, taken);
      result = co_await tx.Commit();
    });
    return result;
  };
  txn::CommitResult refused = take_again();
  EXPECT_EQ(refused.outcome, txn::Outcome::kAborted);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kAborted);
#ifdef FURROW_MUTATIONS
  // Without the check the slot is handed out twice, which the allocator notices as our own bug.
  testing::FLAGS_gtest_death_test_style = "fast";
  EXPECT_DEATH(
      {
        SetMutation(Mutation::kIgnoreLeaseTimestamp);
        take_again();
      },
      "check failed");
#endif
}

}  // namespace
}  // namespace furrow::sim
