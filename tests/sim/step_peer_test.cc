// Steps of the protocol on a simulated cluster of three nodes: peers that are late, cut off or write garbage.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/step_fixture.h"

namespace furrow::sim {
namespace {

TEST_F(ProtocolStep, AnAnswerThatIsHereStaysWhenTheTimeOfItsCallIsOver) {
  bool done = false;
  absl::Status finished = absl::UnknownError("not finished");
  auto body = [&]() -> Task<void> {
    txn::Worker& worker = cluster_.worker(0, 0);
    txn::Coordinator::PendingCall call(worker.coordinator());
    EXPECT_TRUE(
        (co_await worker.coordinator().StartCall(call, NodeId(2), txn::MessageType::kValidate, 0, {}, 0))
            .ok());
    co_await worker.loop().SleepFor(11 * kSecond);
    finished = co_await worker.coordinator().FinishCall(call);
  };
  cluster_.worker(0, 0).loop().Spawn(Then(body(), &done));
  ASSERT_TRUE(cluster_.world().RunUntil([&] { return done; }, cluster_.world().now() + 20 * kSecond).ok());
  EXPECT_TRUE(finished.ok()) << finished;
}

TEST_F(ProtocolStep, ALostDataLinkToAMemberIsReported) {
  std::vector<NodeId> lost[3];
  for (uint32_t i = 0; i < 3; ++i) {
    cluster_.node(i).data_link_lost = [&lost, i](NodeId peer) { lost[i].push_back(peer); };
  }
  const Address address = Make(0, 1);
  cluster_.network().Cut(NodeId(1), NodeId(3));
  cluster_.worker(0, 0).loop().Spawn([](txn::Worker& worker, Address a) -> Task<void> {
    (void)co_await worker.Run([a](txn::Transaction& tx) -> Task<absl::Status> {
      auto read = co_await tx.Read(a, kBytes);
      if (!read.ok()) co_return read.status();
      co_return tx.OpenForWrite(a, kBytes).status();
    });
  }(cluster_.worker(0, 0), address));
  ASSERT_TRUE(cluster_.world().RunFor(2 * kSecond).ok());
  ASSERT_FALSE(lost[0].empty());
  for (NodeId peer : lost[0]) EXPECT_EQ(peer, NodeId(3));
  for (NodeId peer : lost[2]) EXPECT_EQ(peer, NodeId(1));
  EXPECT_TRUE(lost[1].empty());
}

// --- a stale address ---

// Cards copy whole lines, shared memory words; where requests end inside the call reads have a path of their
// own.
class StaleAddressStep : public ProtocolStep, public testing::WithParamInterface<const char*> {
 protected:
  static SimClusterOptions Network() {
    SimClusterOptions options = Options();
    const std::string name = GetParam();
    options.network = name == "Card"           ? rdma::SimNetworkOptions::Card()
                      : name == "SharedMemory" ? rdma::SimNetworkOptions::SharedMemory()
                                               : rdma::SimNetworkOptions::AtOnce();
    return options;
  }
  StaleAddressStep() : ProtocolStep(Network()) {}

  // What a reader on another node gets at the second line of an object, as if it were one.
  absl::Status ReadInside(std::function<void(std::span<std::byte> payload)> fill) {
    bool lost = false;
    cluster_.node(1).data_link_lost = [&](NodeId) { lost = true; };
    Address inside;
    EXPECT_TRUE(Commit(0, [&](txn::Transaction& tx) -> Task<absl::Status> {
                  auto allocation = co_await tx.Alloc(region_, 200);
                  if (!allocation.ok()) co_return allocation.status();
                  fill(allocation->payload);
                  inside = Address(allocation->address.region(), allocation->address.offset() + 64);
                  co_return absl::OkStatus();
                }).committed());
    absl::Status seen;
    Run(1, [&]() -> Task<void> {
      txn::Transaction tx(cluster_.worker(1, 0), {.read_only = true});
      EXPECT_TRUE((co_await tx.Begin()).ok());
      seen = (co_await tx.Read(inside, kBytes)).status();
    });
    EXPECT_FALSE(lost);
    const Address other = Make(0, 1);
    EXPECT_TRUE(Write(1, other, 2).committed()) << "the connection still serves";
    return seen;
  }
  // Payload bytes that are taken for the highest byte of word 0, and for the highest of the pointer.
  static constexpr size_t kWord0 = 53;
  static constexpr size_t kPointer = 57;
};
INSTANTIATE_TEST_SUITE_P(Networks, StaleAddressStep, testing::Values("Card", "SharedMemory", "AtOnce"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StaleAddressStep, NewerThanTheReaderWithAPointerOutOfTheArena) {
  const absl::Status seen = ReadInside([](std::span<std::byte> payload) {
    payload[kWord0] = std::byte{0x7f};
    payload[kPointer] = std::byte{64};
  });
  EXPECT_TRUE(absl::IsInvalidArgument(seen)) << seen;
}

TEST_P(StaleAddressStep, NewerThanTheReaderWithoutAPointer) {
  const absl::Status seen =
      ReadInside([](std::span<std::byte> payload) { payload[kWord0] = std::byte{0x7f}; });
  EXPECT_TRUE(absl::IsInvalidArgument(seen)) << seen;
}

TEST_P(StaleAddressStep, LockedForEver) {
  const absl::Status seen =
      ReadInside([](std::span<std::byte> payload) { payload[kWord0] = std::byte{0x80}; });
  EXPECT_TRUE(absl::IsInvalidArgument(seen)) << seen;
}

// --- a peer that writes garbage ---

class GarbageStep : public ProtocolStep {
 protected:
  // Node 2 writes a record of its own into its log ring at node 0.
  void Send(txn::LogType type, uint64_t local, std::vector<uint64_t> truncate = {}) {
    txn::LogHeader header{};
    header.type = type;
    header.format = txn::kRecordFormat;
    header.truncate_count = static_cast<uint16_t>(truncate.size());
    header.config = 1;
    header.local = local;
    header.node = 3;
    rdma::RingMesh& mesh = cluster_.worker(2, 0).mesh();
    absl::StatusOr<std::span<std::byte>> body = mesh.StageRecord(sizeof header + 8 * truncate.size());
    ASSERT_TRUE(body.ok());
    std::memcpy(body->data(), &header, sizeof header);
    std::memcpy(body->data() + sizeof header, truncate.data(), 8 * truncate.size());
    rdma::RingWriter& log = *mesh.link(NodeId(1))->log;
    ASSERT_TRUE(log.Reserve(rdma::RecordBytes(body->size())));
    ASSERT_TRUE(log.Append({*body, rdma::HashBody(*body)}, 0, rdma::WorkRequest::Notify::kWake).ok());
    ASSERT_TRUE(cluster_.world().RunFor(10 * kMillisecond).ok());
    mesh.ReleaseStaged(*body);
  }
  txn::Participant& participant() { return cluster_.worker(0, 0).participant(); }
  // What node 0 keeps of node 2 once that is gone.
  rdma::RingMesh::Counts LeftOver() {
    cluster_.world().Kill(cluster_.process(2));
    EXPECT_TRUE(cluster_.world().RunFor(2 * kSecond).ok());
    return cluster_.worker(0, 0).mesh().counts();
  }
  static constexpr rdma::RingMesh::Counts kNothing{.links = 1, .accepted = 1};
};

TEST_F(GarbageStep, AnAbortOfId0EndsTheRing) {
  Send(txn::LogType::kAbort, 0);
  EXPECT_EQ(participant().malformed(), 1u);
  EXPECT_EQ(participant().held_records(), 0u);
  EXPECT_EQ(LeftOver(), kNothing);
}

TEST_F(GarbageStep, ATruncationOfId0EndsTheRing) {
  Send(txn::LogType::kTruncate, 0, {7, 0});
  EXPECT_EQ(participant().malformed(), 1u);
  EXPECT_EQ(participant().held_records(), 0u);
  EXPECT_EQ(LeftOver(), kNothing);
}

TEST_F(GarbageStep, TheRingOfAMalformedRecordIsFreedWithItsPeer) {
  Send(static_cast<txn::LogType>(99), 1);
  EXPECT_EQ(participant().malformed(), 1u);
  EXPECT_EQ(LeftOver(), kNothing);
}

TEST_F(GarbageStep, TheRingOfAnUntimelyRecordIsFreedWithItsPeer) {
  Send(txn::LogType::kCommitPrimary, 5);
  EXPECT_EQ(participant().malformed(), 1u);
  EXPECT_EQ(LeftOver(), kNothing);
}

TEST_F(GarbageStep, WhatWasHeldBeforeAMalformedRecordStays) {
  Send(txn::LogType::kLock, 1);
  EXPECT_EQ(participant().malformed(), 0u);
  EXPECT_EQ(participant().held_records(), 1u);
  Send(static_cast<txn::LogType>(99), 2);
  EXPECT_EQ(participant().malformed(), 1u);
  EXPECT_GE(participant().held_records(), 1u);
  EXPECT_EQ(LeftOver(), (rdma::RingMesh::Counts{.links = 1, .accepted = 2})) << "recovery asks for it";
}

}  // namespace
}  // namespace furrow::sim
