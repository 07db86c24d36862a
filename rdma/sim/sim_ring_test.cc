// Rings over the simulated fabric: records arrive whole and in order although their pieces come in any order.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "base/mutation.h"
#include "rdma/ring/ring.h"
#include "rdma/sim/sim_network.h"

namespace furrow::rdma {
namespace {

constexpr uint32_t kCapacity = 4096;
constexpr uint32_t kMaxRecord = 512;
constexpr uint64_t kNonce = 77;

struct Side {
  Side(SimNetwork& network, uint32_t node, size_t bytes)
      : process(network.world().StartProcess(NodeId(node))),
        fabric(network.MakeFabric(process, {NodeId(node), "cluster", "secret"})),
        memory(*MemoryFile::Anonymous(bytes)),
        region(*fabric->Register(memory, Access::kReadWrite)),
        queue(*fabric->CreateCompletionQueue()),
        loop(process.clock(), queue->parker()) {
    process.Attach(loop, queue->parker());
  }
  ~Side() { process.Detach(loop); }

  SimProcess& process;
  std::unique_ptr<Fabric> fabric;
  MemoryFile memory;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> queue;
  EventLoop loop;
  std::unique_ptr<Connection> connection;
};

// Sends `count` records through a ring of a few records' size; returns what was wrong with them, if anything.
std::string Exchange(uint64_t seed, SimNetworkOptions options, int count) {
  SimWorld world(seed);
  SimNetwork network(world, options);
  // The sender's memory: the head word, then one slot for each record under way.
  constexpr size_t kSlot = 1024;
  Side sender(network, 1, 64 + 64 * kSlot);
  Side receiver(network, 2, kRingHeadBytes + kCapacity);
  std::string wrong;
  bool connected = false;
  EXPECT_TRUE(receiver.fabric
                  ->Listen("2",
                           [&](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
                             return AcceptDecision{receiver.queue.get(), ""};
                           })
                  .ok());
  sender.fabric->Connect(*sender.queue, sender.loop, "2", "", {}, kSecond,
                         [&](absl::StatusOr<std::unique_ptr<Connection>> result) {
                           sender.connection = *std::move(result);
                           connected = true;
                         });
  EXPECT_TRUE(world.RunUntil([&] { return connected; }).ok());
  Completion c;
  while (receiver.queue->Poll(std::span(&c, 1)) == 1) {
    if (c.kind == Completion::Kind::kConnected)
      receiver.connection = receiver.queue->TakeAccepted(c.connection);
  }

  RingDescriptor descriptor{receiver.region->remote_address().Plus(kRingHeadBytes), kCapacity, 0, kNonce};
  RingWriter writer(*sender.connection, descriptor, reinterpret_cast<const uint64_t*>(sender.memory.data()),
                    kMaxRecord);
  std::span<std::byte> ring = receiver.memory.bytes().subspan(0, kRingHeadBytes + kCapacity);
  auto reader = std::make_unique<RingReader>(ring, kNonce);
  HeadReturner heads(receiver.connection.get(), sender.region->remote_address(), kCapacity);

  Random random(seed);
  int sent = 0;
  int received = 0;
  auto size_of = [&](int i) {
    return 8 + static_cast<size_t>(Random(seed ^ static_cast<uint64_t>(i)).Below(400));
  };
  auto send = [&] {
    size_t size = size_of(sent);
    if (!writer.Reserve(RecordBytes(size))) return;
    std::span<std::byte> body = sender.memory.bytes().subspan(
        64 + static_cast<size_t>(sent % 64) * kSlot + sizeof(RecordHeader), size);
    std::memset(body.data(), sent & 0xff, size);
    EXPECT_TRUE(writer.Append({body, HashBody(body)}, 0, WorkRequest::Notify::kNone).ok());
    ++sent;
  };
  auto receive = [&] {
    while (auto record = reader->Next()) {
      bool whole = record->body.size() == size_of(received);
      for (std::byte b : record->body) whole &= b == static_cast<std::byte>(received & 0xff);
      if (!whole && wrong.empty()) wrong = "record " + std::to_string(received) + " is not what was sent";
      ++received;
      reader->Release(record->end);
      heads.Return(reader->released(), received == count);
    }
    if (random.OneIn(500))
      reader = std::make_unique<RingReader>(ring, kNonce);  // a restart needs only the head
  };
  // Both sides look again every microsecond, also where nothing else happens.
  std::function<void()> tick = [&] { world.After(kMicrosecond, tick); };
  tick();
  absl::Status status = world.RunUntil(
      [&] {
        if (sent < count) send();
        receive();
        return received == count || !wrong.empty();
      },
      world.now() + kSecond);
  if (!status.ok() && wrong.empty()) wrong = status.ToString();
  sender.connection.reset();
  receiver.connection.reset();
  return wrong;
}

SimNetworkOptions Bytewise() {
  SimNetworkOptions options;
  options.stall_one_in = 20;
  options.stall_ns = 100 * kMicrosecond;
  return options;
}

TEST(SimRing, RecordsArriveWholeAndInOrderWhateverTheOrderOfTheirPieces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Exchange(seed, Bytewise(), 200), "") << "seed " << seed;
    EXPECT_EQ(Exchange(seed, SimNetworkOptions::SharedMemory(), 200), "") << "seed " << seed;
    EXPECT_EQ(Exchange(seed, SimNetworkOptions::AtOnce(), 200), "") << "seed " << seed;
    EXPECT_EQ(Exchange(seed, SimNetworkOptions::Card(), 200), "") << "seed " << seed;
  }
}

#ifdef FURROW_MUTATIONS
TEST(SimRing, WithoutTheChecksumATornRecordIsTaken) {
  SetMutation(Mutation::kSkipRingChecksum);
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) wrong += !Exchange(seed, Bytewise(), 200).empty();
  SetMutation(Mutation::kNone);
  EXPECT_GT(wrong, 0);
}
#endif

}  // namespace
}  // namespace furrow::rdma
