// The fixture of tests of single steps of the protocol: a simulated cluster of three nodes with a region.
#ifndef FURROW_TESTS_SIM_STEP_FIXTURE_H_
#define FURROW_TESTS_SIM_STEP_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/mutation.h"
#include "tests/sim/sim_cluster.h"
#include "txn/coordinator.h"
#include "txn/participant.h"

namespace furrow::sim {

inline constexpr uint32_t kBytes = 40;

class ProtocolStep : public testing::Test {
 protected:
  explicit ProtocolStep(const SimClusterOptions& options = Options()) : cluster_(7, options) {}
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    absl::StatusOr<RegionId> region = cluster_.AddRegion(0);
    ASSERT_TRUE(region.ok());
    region_ = *region;
  }
  void TearDown() override { SetMutationIfAny(Mutation::kNone); }

  static SimClusterOptions Options() {
    SimClusterOptions options;
    options.exact_clocks = true;
    options.world.clocks.max_offset = 0;
    options.world.clocks.max_drift_ppb = 0;
    options.network.peer_timeout_min = 200 * kMillisecond;
    options.network.peer_timeout_max = 300 * kMillisecond;
    return options;
  }
  static void SetMutationIfAny(Mutation mutation) {
#ifdef FURROW_MUTATIONS
    SetMutation(mutation);
#endif
  }

  // The node learns of a newer configuration with the same members: mappings of it may follow.
  void AdvanceView(uint32_t node, uint64_t config) {
    const cluster::ClusterView& view = *cluster_.node(node).current_view();
    cluster_.node(node).SetView(
        std::make_shared<const cluster::ClusterView>(ConfigId(config), view.manager(), view.members()));
  }

  // Runs a task on a node's worker until it has ended.
  void Run(uint32_t node, std::function<Task<void>()> body) {
    bool done = false;
    cluster_.worker(node, 0).loop().Spawn(Then(body(), &done));
    absl::Status status =
        cluster_.world().RunUntil([&] { return done; }, cluster_.world().now() + 5 * kSecond);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static Task<void> Then(Task<void> task, bool* done) {
    co_await task;
    *done = true;
  }
  // Commits one transaction.
  txn::CommitResult Commit(uint32_t node, txn::Worker::Body body) {
    txn::CommitResult result;
    Run(node, [&]() -> Task<void> { result = co_await cluster_.worker(node, 0).Run(body); });
    return result;
  }
  Address Make(uint32_t node, uint8_t value) { return MakeNear(node, region_, value); }
  Address MakeNear(uint32_t node, RegionId region, uint8_t value) {
    Address address;
    txn::CommitResult made = Commit(node, [&](txn::Transaction& tx) -> Task<absl::Status> {
      auto allocation = co_await tx.Alloc(region, kBytes);
      if (!allocation.ok()) co_return allocation.status();
      allocation->payload[0] = std::byte{value};
      address = allocation->address;
      co_return absl::OkStatus();
    });
    EXPECT_TRUE(made.committed()) << made.status.ToString();
    return address;
  }
  txn::CommitResult Write(uint32_t node, Address address, uint8_t value) {
    return Commit(node, [=](txn::Transaction& tx) -> Task<absl::Status> {
      auto read = co_await tx.Read(address, kBytes);
      if (!read.ok()) co_return read.status();
      auto write = tx.OpenForWrite(address, kBytes);
      if (!write.ok()) co_return write.status();
      (*write)[0] = std::byte{value};
      co_return absl::OkStatus();
    });
  }

  SimCluster cluster_;
  RegionId region_;
};

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_STEP_FIXTURE_H_
