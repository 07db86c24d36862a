// How a locality group gets its next region: ahead of need, and what happens when there is none.
#include <gtest/gtest.h>

#include <optional>

#include "tests/sim/step_fixture.h"

namespace furrow::sim {
namespace {

constexpr uint32_t kHalfBlock = 440 << 10;
constexpr int kPerRegion = 2 * 15;  // objects of that size

// Counts what the cluster's own control plane is asked for, and refuses it.
class WatchedControl final : public cluster::ControlPlane {
 public:
  explicit WatchedControl(cluster::ControlPlane& inner) : inner_(inner) {}
  Task<absl::StatusOr<const cluster::RegionMapping*>> AllocateRegion(
      cluster::AllocateRegionRequest request) override {
    ++(request.ahead ? ahead : needed);
    if (slow && !request.ahead) {
      co_await EventLoop::Current()->SleepUntil(request.deadline);
      co_return absl::DeadlineExceededError("the manager is slow");
    }
    if (request.ahead ? refuse_ahead : refuse_needed) co_return absl::ResourceExhaustedError("no room");
    co_return co_await inner_.AllocateRegion(request);
  }
  Task<absl::StatusOr<const cluster::RegionMapping*>> LookupRegion(RegionId id) override {
    return inner_.LookupRegion(id);
  }
  int ahead = 0;
  int needed = 0;
  bool refuse_ahead = false;
  bool refuse_needed = false;
  bool slow = false;

 private:
  cluster::ControlPlane& inner_;
};

class RegionStep : public ProtocolStep {
 protected:
  RegionStep() : ProtocolStep(LargerRegions()) {}
  void SetUp() override {
    ProtocolStep::SetUp();
    control_.emplace(*cluster_.node(0).control);
    cluster_.node(0).control = &*control_;
  }
  static SimClusterOptions LargerRegions() {
    SimClusterOptions options = Options();
    options.region_bytes = 16 << 20;
    return options;
  }
  // Takes objects, one every `pause`, until there is none; gives all of them back at the end.
  absl::Status Take(int objects, Nanos pause) {
    absl::Status status;
    Run(0, [&, objects, pause]() -> Task<void> {
      txn::Worker& worker = cluster_.worker(0, 0);
      txn::Transaction tx(worker, {.deadline_ns = 100 * kSecond});
      status = co_await tx.Begin();
      for (int i = 0; i < objects && status.ok(); ++i) {
        status = (co_await tx.Alloc(region_, kHalfBlock)).status();
        co_await worker.loop().SleepFor(pause);
      }
    });
    return status;
  }

  std::optional<WatchedControl> control_;
};

TEST_F(RegionStep, NobodyWaitsForARegionWhenTheGroupRanLowInTime) {
  const absl::Status status = Take(3 * kPerRegion, kMillisecond);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(control_->ahead, 2);
  EXPECT_LE(control_->ahead, 3) << "one for each region";
  EXPECT_EQ(control_->needed, 0);
}

TEST_F(RegionStep, ARefusalAheadOfNeedHarmsNobodyAndIsNotAskedForAgainAtOnce) {
  control_->refuse_ahead = true;
  const absl::Status status = Take(3 * kPerRegion, kMillisecond);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(control_->needed, 2);
  EXPECT_EQ(control_->ahead, 1);
}

TEST_F(RegionStep, AGroupThatWasRefusedAsksAgainLater) {
  control_->refuse_ahead = true;
  EXPECT_TRUE(Take(kPerRegion - 2, kMillisecond).ok());
  EXPECT_EQ(control_->ahead, 1);
  control_->refuse_ahead = false;
  ASSERT_TRUE(cluster_.world().RunFor(2 * kSecond).ok());
  EXPECT_TRUE(Take(2 * kPerRegion, kMillisecond).ok());
  EXPECT_GE(control_->ahead, 2);
  EXPECT_EQ(control_->needed, 0);
}

// Both want the same, and are asked for together.
TEST_F(RegionStep, WhoWaitsForARegionWaitsUntilItsOwnDeadline) {
  control_->refuse_ahead = control_->slow = true;
  txn::Worker& worker = cluster_.worker(0, 0);
  Nanos due[2] = {};
  Nanos ended[2] = {};
  absl::Status status[2];
  auto take = [&](int i, Nanos deadline_ns) -> Task<void> {
    txn::Transaction tx(worker, {.deadline_ns = deadline_ns});
    due[i] = worker.loop().Now() + deadline_ns;
    status[i] = co_await tx.Begin();
    while (status[i].ok()) status[i] = (co_await tx.Alloc(region_, kHalfBlock)).status();
    ended[i] = worker.loop().Now();
  };
  worker.loop().Spawn(take(0, 2 * kSecond));
  worker.loop().Spawn(take(1, 100 * kMillisecond));
  ASSERT_TRUE(
      cluster_.world()
          .RunUntil([&] { return ended[0] != 0 && ended[1] != 0; }, cluster_.world().now() + 20 * kSecond)
          .ok());
  for (int i : {0, 1}) {
    EXPECT_EQ(status[i].code(), absl::StatusCode::kDeadlineExceeded) << status[i];
    EXPECT_LT(ended[i] - due[i], 10 * kMillisecond) << "transaction " << i;
  }
  EXPECT_EQ(control_->needed, 1);
}

// Nobody else can use them before this member returns them.
TEST_F(RegionStep, SlotsThatAreLeasedTooLateAreKeptForOthers) {
  txn::Worker& worker = cluster_.worker(1, 0);
  cluster_.world().Pause(cluster_.process(0));
  Run(1, [&]() -> Task<void> {
    txn::Transaction tx(worker, {.deadline_ns = 10 * kMillisecond});
    EXPECT_TRUE((co_await tx.Begin()).ok());
    const auto made = co_await tx.Alloc(region_, kBytes);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded) << made.status();
  });
  cluster_.world().Resume(cluster_.process(0));
  ASSERT_TRUE(cluster_.world().RunFor(5 * kMillisecond).ok());
  EXPECT_FALSE(worker.coordinator().leases().Slots(region_, storage::ClassForPayload(kBytes)).empty());
}

TEST_F(RegionStep, WhereThereIsNoMemoryThereIsStillAClearError) {
  control_->refuse_ahead = control_->refuse_needed = true;
  const absl::Status status = Take(2 * kPerRegion, kMillisecond);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(control_->needed, 1);
  control_->refuse_needed = false;
  EXPECT_TRUE(Take(2 * kPerRegion, kMillisecond).ok());
}

}  // namespace
}  // namespace furrow::sim
