// Single steps of recovery: a member dies at a chosen point of one commit, in a simulated cluster of four
// nodes. The region's copies are at nodes 1, 2 and 3 (indexes 0 to 2, primary first); node 4 (index 3)
// coordinates.
#include <gtest/gtest.h>

#include "tests/sim/step_fixture.h"
#include "txn/recovery/worker_recovery.h"

namespace furrow::sim {
namespace {

constexpr uint32_t kPrimary = 0;
constexpr uint32_t kCoordinator = 3;  // a compute member in ComputeRecoveryStep

class RecoveryStep : public ProtocolStep {
 protected:
  explicit RecoveryStep(const SimClusterOptions& options = Options()) : ProtocolStep(options) {}
  static SimClusterOptions Options() {
    SimClusterOptions options = ProtocolStep::Options();
    options.nodes = 4;
    options.recovery = true;
    return options;
  }
  void SetUp() override {
    ProtocolStep::SetUp();
    address_ = Make(0, 1);
    // Its truncation would be one more thing in the rings.
    ASSERT_TRUE(cluster_.DrainAndCompare().ok());
  }

  // Begins a commit at the coordinator, and returns while it runs.
  void StartWrite(uint8_t value) {
    auto write = [](RecoveryStep& test, uint8_t v) -> Task<void> {
      test.result_ = co_await test.cluster_.worker(kCoordinator, 0)
                         .Run([&test, v](txn::Transaction& tx) -> Task<absl::Status> {
                           ++test.attempts_;
                           auto read = co_await tx.Read(test.address_, kBytes);
                           if (!read.ok()) co_return read.status();
                           auto written = tx.OpenForWrite(test.address_, kBytes);
                           if (!written.ok()) co_return written.status();
                           (*written)[0] = std::byte{v};
                           co_return absl::OkStatus();
                         });
      test.ended_ = true;
    };
    cluster_.worker(kCoordinator, 0).loop().Spawn(write(*this, value));
  }
  // The same, once: a conflict does not make it run again.
  void StartOneWrite(uint8_t value) {
    auto write = [](RecoveryStep& test, uint8_t v) -> Task<void> {
      txn::Transaction tx(test.cluster_.worker(kCoordinator, 0), {});
      EXPECT_TRUE((co_await tx.Begin()).ok());
      EXPECT_TRUE((co_await tx.Read(test.address_, kBytes)).ok());
      (*tx.OpenForWrite(test.address_, kBytes))[0] = std::byte{v};
      test.result_ = co_await tx.Commit();
      test.ended_ = true;
    };
    cluster_.worker(kCoordinator, 0).loop().Spawn(write(*this, value));
  }
  // A COMMIT-BACKUP of one write stays on the way to node 2 while node 3, which has the other one, dies; it
  // comes when node 2 has drained its rings, and with `over` when recovery is over.
  void BackupDiesWhileTheOtherRecordIsLate(bool over) {
    StartOneWrite(2);
    RunUntil([&] { return Locked(); });
    cluster_.network().Cut(NodeId(kCoordinator + 1), NodeId(2));
    RunUntil([&] { return cluster_.worker(2, 0).mesh().PollAll(), Held(2) > 0; });
    ASSERT_TRUE(cluster_.world().RunFor(200 * kMicrosecond).ok());  // its acknowledgement
    cluster_.Kill(2);
    RunUntil([&] { return !cluster_.IsMember(2); });
    if (over) RunUntil([&] { return cluster_.Recovered(); });
    ASSERT_TRUE(cluster_.world().RunFor(10 * kMillisecond).ok());
    cluster_.network().HealAll();
    RunUntil([&] { return ended_ && cluster_.Recovered(); });
    ASSERT_TRUE(cluster_.world().RunFor(kMillisecond).ok());
    cluster_.worker(1, 0).mesh().PollAll();
  }
  void RunUntil(const std::function<bool()>& condition) {
    absl::Status status = cluster_.world().RunUntil(condition, cluster_.world().now() + 5 * kSecond);
    ASSERT_TRUE(status.ok()) << status;
  }
  size_t Held(uint32_t node) { return cluster_.worker(node, 0).participant().held_records(); }
  bool Locked() { return cluster_.node(kPrimary).locks.size() > 0; }
  // The first byte of the object, read at a node.
  int Value(uint32_t node) {
    int value = -1;
    txn::CommitResult read = Commit(node, [&](txn::Transaction& tx) -> Task<absl::Status> {
      auto bytes = co_await tx.Read(address_, kBytes);
      if (!bytes.ok()) co_return bytes.status();
      value = static_cast<int>((*bytes)[0]);
      co_return absl::OkStatus();
    });
    EXPECT_TRUE(read.committed()) << read.status;
    return value;
  }
  void KillAndRecover(uint32_t node) {
    cluster_.Kill(node);
    RunUntil([&] { return cluster_.Recovered(); });
  }

  Address address_;
  txn::CommitResult result_;
  int attempts_ = 0;
  bool ended_ = false;
};

TEST_F(RecoveryStep, ACoordinatorThatDiesWithItsLocksHeldHasAborted) {
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  ASSERT_EQ(Held(1) + Held(2), 0u);
  KillAndRecover(kCoordinator);
  EXPECT_FALSE(Locked());
  EXPECT_EQ(Value(1), 1);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(RecoveryStep, ACoordinatorThatDiesWithAllBackupsWrittenHasCommitted) {
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  // COMMIT-BACKUPs are written without waking anybody: the drain finds them.
  RunUntil([&] {
    return cluster_.worker(1, 0).mesh().PollAll(), cluster_.worker(2, 0).mesh().PollAll(),
           Held(1) > 0 && Held(2) > 0;
  });
  ASSERT_TRUE(Locked());
  KillAndRecover(kCoordinator);
  EXPECT_EQ(Value(1), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(RecoveryStep, APrimaryThatDiesWithTheLocksHeldIsReplacedAndTheTransactionRunsAgain) {
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  KillAndRecover(kPrimary);
  RunUntil([&] { return ended_; });
  EXPECT_TRUE(result_.committed()) << result_.status;
  EXPECT_GT(attempts_, 1);
  EXPECT_EQ(Value(2), 2);
  EXPECT_EQ(cluster_.node(1).directory.Find(region_)->primary().node, NodeId(2));
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(RecoveryStep, ACommitWhosePrimaryDiesAfterTheBackupsIsDecidedByRecovery) {
  // The primary gets the LOCK and answers it; what follows does not reach it.
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  RunUntil([&] {
    return cluster_.worker(1, 0).mesh().PollAll(), cluster_.worker(2, 0).mesh().PollAll(),
           Held(1) + Held(2) > 0;
  });
  cluster_.network().Cut(NodeId(kCoordinator + 1), NodeId(kPrimary + 1));
  KillAndRecover(kPrimary);
  RunUntil([&] { return ended_; });
  // Committed by recovery, or aborted by it and run again: in either case it says so, once.
  EXPECT_TRUE(result_.committed()) << result_.status;
  EXPECT_EQ(Value(1), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

// Which value is there when both backups have not looked at their rings before the primary is lost?
class DrainStep : public RecoveryStep {
 protected:
  int ValueAfter(Mutation mutation) {
    for (uint32_t backup : {1u, 2u}) cluster_.world().Pause(cluster_.process(backup));
    StartWrite(2);
    RunUntil([&] { return ended_; });
    EXPECT_TRUE(result_.committed()) << result_.status;
    SetMutationIfAny(mutation);
    cluster_.world().Kill(cluster_.process(kPrimary));
    cluster_.EvictAtOnce(kPrimary);
    for (uint32_t backup : {1u, 2u}) cluster_.world().Resume(cluster_.process(backup));
    RunUntil([&] { return cluster_.Recovered(); });
    return Value(1);
  }
};

TEST_F(DrainStep, TheDrainFindsWhatNobodyHasLookedAt) {
  EXPECT_EQ(ValueAfter(Mutation::kNone), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

// A COMMIT-BACKUP is acknowledged by the receiver's card, and dropped by the receiver.
TEST_F(RecoveryStep, AnAcknowledgementThatComesAfterTheChangeDoesNotCount) {
  BackupDiesWhileTheOtherRecordIsLate(/*over=*/false);
  EXPECT_EQ(result_.outcome, txn::Outcome::kAborted) << result_.status;
  EXPECT_EQ(Value(1), 1);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

#ifdef FURROW_MUTATIONS
TEST_F(DrainStep, WithoutTheDrainACommitIsLost) { EXPECT_EQ(ValueAfter(Mutation::kSkipDrain), 1); }

TEST_F(RecoveryStep, ALateAcknowledgementThatCountedWouldReportWhatIsNotThere) {
  SetMutationIfAny(Mutation::kKeepAcknowledgements);
  BackupDiesWhileTheOtherRecordIsLate(/*over=*/false);
  EXPECT_EQ(result_.outcome, txn::Outcome::kCommitted) << result_.status;
  EXPECT_EQ(Value(1), 1);
}
#endif

// Records of a compute member may come at any time: its NEED-RECOVERY, behind which none can be, is not
// waited for.
class ComputeRecoveryStep : public RecoveryStep {
 protected:
  ComputeRecoveryStep() : RecoveryStep(Options()) {}
  static SimClusterOptions Options() {
    SimClusterOptions options = RecoveryStep::Options();
    options.compute_nodes = 1;
    return options;
  }
};

TEST_F(ComputeRecoveryStep, ItIsToldWhatBecameOfItsTransaction) {
  StartOneWrite(2);
  RunUntil([&] { return Locked(); });
  RunUntil([&] {
    return cluster_.worker(1, 0).mesh().PollAll(), cluster_.worker(2, 0).mesh().PollAll(),
           Held(1) > 0 && Held(2) > 0;
  });
  KillAndRecover(kPrimary);
  RunUntil([&] { return ended_; });
  EXPECT_TRUE(result_.committed()) << result_.status;
  EXPECT_EQ(Value(1), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(ComputeRecoveryStep, ItsRecordThatComesAfterTheDrainIsDropped) {
  BackupDiesWhileTheOtherRecordIsLate(/*over=*/true);
  EXPECT_EQ(Held(1), 0u);
  for (uint8_t value = 3; value < 6; ++value) EXPECT_TRUE(Write(kCoordinator, address_, value).committed());
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
  EXPECT_EQ(cluster_.worker(1, 0).participant().malformed(), 0u);
}

// The commit is decided and reported in one configuration, and nobody but the decider hears of it: the only
// backup that had a COMMIT-BACKUP dies. In the next one the primary is alone.
class SecondRecoveryStep : public RecoveryStep {
 protected:
  int ValueAfter(Mutation mutation) {
    SetMutationIfAny(mutation);
    StartOneWrite(2);
    RunUntil([&] { return Locked(); });
    const NodeId coordinator(kCoordinator + 1);
    cluster_.network().Cut(coordinator, NodeId(3));
    RunUntil([&] { return cluster_.worker(1, 0).mesh().PollAll(), Held(1) > 0; });
    EXPECT_TRUE(cluster_.world().RunFor(200 * kMicrosecond).ok());
    cluster_.Kill(2);
    RunUntil([&] {
      return cluster_.worker(kPrimary, 0).recovery().Describe().find(", ready") != std::string::npos;
    });
    cluster_.network().Cut(coordinator, NodeId(1));
    cluster_.network().Cut(coordinator, NodeId(2));
    RunUntil([&] { return ended_; });
    EXPECT_TRUE(result_.committed()) << result_.status;
    cluster_.Kill(1);
    RunUntil([&] { return !cluster_.IsMember(1); });
    EXPECT_TRUE(cluster_.world().RunFor(5 * kMillisecond).ok());
    cluster_.network().HealAll();
    RunUntil([&] { return cluster_.Recovered(); });
    return Value(kPrimary);
  }
};

TEST_F(SecondRecoveryStep, ARegionVotesTheSameWhenTheOneWhoKnewMoreIsGone) {
  EXPECT_EQ(ValueAfter(Mutation::kNone), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

#ifdef FURROW_MUTATIONS
TEST_F(SecondRecoveryStep, APrimaryThatForgetsWhatItWasToldAbortsWhatWasReported) {
  EXPECT_EQ(ValueAfter(Mutation::kForgetWhatBackupsHaveSeen), 1);
}

TEST_F(ComputeRecoveryStep, ALateRecordThatWasTakenWouldStay) {
  SetMutationIfAny(Mutation::kSkipRejection);
  BackupDiesWhileTheOtherRecordIsLate(/*over=*/true);
  EXPECT_GT(Held(1), 0u);
}
#endif

TEST_F(RecoveryStep, ABackupThatDiesIsDoneWithout) {
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  KillAndRecover(2);
  RunUntil([&] { return ended_; });
  EXPECT_TRUE(result_.committed()) << result_.status;
  EXPECT_EQ(Value(3), 2);
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(RecoveryStep, ANewPrimaryAllocatesAndItsHistoryBeginsWithIt) {
  txn::Transaction old(cluster_.worker(kCoordinator, 0), {.read_only = true});
  Run(kCoordinator, [&]() -> Task<void> { EXPECT_TRUE((co_await old.Begin()).ok()); });
  KillAndRecover(kPrimary);
  const Address made = MakeNear(kCoordinator, region_, 7);
  EXPECT_EQ(made.region(), region_);
  EXPECT_TRUE(Write(kCoordinator, address_, 3).committed());
  // A snapshot from before follows no chain there: the history of the old primary is gone.
  Run(kCoordinator, [&]() -> Task<void> {
    EXPECT_EQ((co_await old.Read(address_, kBytes)).status().code(), absl::StatusCode::kAborted);
  });
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

TEST_F(RecoveryStep, AMemberThatIsEvictedWhileItLivesDoesNotKnowItsOutcome) {
  StartWrite(2);
  RunUntil([&] { return Locked(); });
  // One COMMIT-BACKUP stays on the way; the other one arrives.
  cluster_.network().Cut(NodeId(kCoordinator + 1), NodeId(2));
  RunUntil([&] { return cluster_.worker(2, 0).mesh().PollAll(), Held(2) > 0; });
  cluster_.Evict(kCoordinator);
  RunUntil([&] { return ended_ && cluster_.Recovered(); });
  EXPECT_EQ(result_.outcome, txn::Outcome::kUnknown) << result_.status;
  EXPECT_FALSE(Locked());
  EXPECT_EQ(Value(1), 2);  // every region has a record of COMMIT-BACKUP or LOCK: it has committed
  EXPECT_EQ(cluster_.DrainAndCompare(), absl::OkStatus());
}

}  // namespace
}  // namespace furrow::sim
