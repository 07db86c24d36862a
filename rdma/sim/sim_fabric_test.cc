#include "rdma/sim/sim_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_file.h"
#include "base/store_point.h"
#include "rdma/sim/sim_network.h"

namespace furrow::rdma {
namespace {

constexpr size_t kMemory = 1 << 16;

// A node with memory of its own, registered for everything, and one queue that the test polls.
struct Host {
  Host(SimNetwork& network, uint32_t node)
      : process(network.world().StartProcess(NodeId(node))),
        fabric(network.MakeFabric(process, {NodeId(node), "cluster", "secret"})),
        memory(*MemoryFile::Anonymous(kMemory)),
        region(*fabric->Register(memory, Access::kReadWrite)),
        queue(*fabric->CreateCompletionQueue()),
        loop(process.clock(), queue->parker()) {
    process.Attach(loop, queue->parker());
    EXPECT_TRUE(fabric
                    ->Listen(std::to_string(node),
                             [this](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
                               return AcceptDecision{queue.get(), "hello"};
                             })
                    .ok());
  }
  ~Host() {
    connections.clear();
    process.Detach(loop);
  }
  uint64_t* words() { return reinterpret_cast<uint64_t*>(memory.data()); }
  std::span<std::byte> At(size_t offset, size_t bytes) { return memory.bytes().subspan(offset, bytes); }
  RemoteAddress Remote(size_t offset) { return region->remote_address().Plus(offset); }

  // Moves what the queue has to `seen`; takes accepted connections.
  void Poll() {
    Completion c;
    while (queue->Poll(std::span(&c, 1)) == 1) {
      if (c.kind == Completion::Kind::kConnected) connections.push_back(queue->TakeAccepted(c.connection));
      seen.push_back(c);
    }
  }
  size_t Count(Completion::Kind kind) {
    return std::count_if(seen.begin(), seen.end(), [&](const Completion& c) { return c.kind == kind; });
  }

  SimProcess& process;
  std::unique_ptr<Fabric> fabric;
  MemoryFile memory;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> queue;
  EventLoop loop;
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<Completion> seen;
};

struct Bench {
  explicit Bench(uint64_t seed, SimNetworkOptions options = {})
      : world(seed), network(world, options), a(network, 1), b(network, 2), c(network, 3) {}

  Connection& Connect(Host& from, Host& to, ConnectionLimits limits = {}) {
    bool done = false;
    from.fabric->Connect(*from.queue, from.loop, std::to_string(to.process.node().value()), "from", limits,
                         kSecond, [&](absl::StatusOr<std::unique_ptr<Connection>> result) {
                           EXPECT_TRUE(result.ok()) << result.status();
                           from.connections.push_back(*std::move(result));
                           done = true;
                         });
    EXPECT_TRUE(world.RunUntil([&] { return done; }).ok());
    return *from.connections.back();
  }
  absl::Status Until(std::function<bool()> done, Nanos ns = kSecond) {
    return world.RunUntil(
        [&] {
          for (Host* host : {&a, &b, &c}) host->Poll();
          return done();
        },
        world.now() + ns);
  }

  SimWorld world;
  SimNetwork network;
  Host a, b, c;
};

WorkRequest Write(Host& from, size_t offset, size_t bytes, RemoteAddress to, uint64_t id) {
  WorkRequest w;
  w.opcode = Opcode::kWrite;
  w.local = from.At(offset, bytes);
  w.remote = to;
  w.id = id;
  return w;
}

WorkRequest Read(Host& to, size_t offset, size_t bytes, RemoteAddress from, uint64_t id) {
  WorkRequest w = Write(to, offset, bytes, from, id);
  w.opcode = Opcode::kRead;
  return w;
}

TEST(SimFabric, SameSeedGivesTheSameDigest) {
  auto run = [](uint64_t seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    for (int i = 0; i < 20; ++i) {
      bench.a.words()[i] = i;
      EXPECT_TRUE(ab.Post(Write(bench.a, 0, 800, bench.b.Remote(i * 800), 1)).ok());
      EXPECT_TRUE(ab.Post(Read(bench.a, 4096, 800, bench.b.Remote(i * 800), 2)).ok());
    }
    EXPECT_TRUE(bench.Until([&] { return bench.a.seen.size() == 40; }).ok());
    return bench.world.digest();
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(run(seed), run(seed)) << "seed " << seed;
    EXPECT_NE(run(seed), run(seed + 1)) << "seed " << seed;
  }
}

TEST(SimFabric, AWriteBecomesVisibleInPiecesInAnyOrder) {
  std::set<std::vector<size_t>> orders;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    for (int i = 0; i < 8; ++i) bench.a.words()[i] = 7;
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 64, bench.b.Remote(0), 1)).ok());
    std::vector<size_t> states;  // bit sets of the words that have arrived
    ASSERT_TRUE(bench
                    .Until([&] {
                      size_t bits = 0;
                      for (int i = 0; i < 8; ++i) bits |= (bench.b.words()[i] == 7) << i;
                      if (states.empty() || states.back() != bits) states.push_back(bits);
                      return bench.a.Count(Completion::Kind::kRequest) == 1;
                    })
                    .ok());
    EXPECT_EQ(states.back(), 255u);
    orders.insert(states);
  }
  EXPECT_GT(orders.size(), 15u);
}

TEST(SimFabric, AReadSeesStoresThatFallBetweenItsPieces) {
  int torn = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    uint64_t round = 0;
    ASSERT_TRUE(ab.Post(Read(bench.a, 0, 512, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(bench
                    .Until([&] {
                      for (int i = 0; i < 64; ++i) bench.b.words()[i] = round;
                      ++round;
                      return bench.a.Count(Completion::Kind::kRequest) == 1;
                    })
                    .ok());
    torn += std::adjacent_find(bench.a.words(), bench.a.words() + 64, std::not_equal_to<>()) !=
            bench.a.words() + 64;
  }
  EXPECT_GT(torn, 10);
}

#ifdef FURROW_MUTATIONS
TEST(SimFabric, PiecesOfAReadFallBetweenTwoStoresOfOneStep) {
  int torn = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimNetworkOptions options;
    options.spread = 10 * kMicrosecond;
    Bench bench(seed, options);
    Connection& ab = bench.Connect(bench.a, bench.b);
    ASSERT_TRUE(ab.Post(Read(bench.a, 0, 512, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(bench.Until([&] { return bench.network.transfers() == 1; }).ok());
    // One step of b's loop replaces all; whatever the READ had not fetched before is fetched in its midst.
    bench.b.loop.Post([&] {
      for (int i = 0; i < 64; ++i) {
        bench.b.words()[i] = 1;
        StorePoint();
      }
      for (int i = 0; i < 64; ++i) bench.b.words()[i] = 2;  // without points: no READ sees a part of these
    });
    ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 1; }).ok());
    torn += std::find(bench.a.words(), bench.a.words() + 64, 1u) != bench.a.words() + 64;
  }
  EXPECT_GT(torn, 5);
}
#endif

TEST(SimFabric, WritesOfOneConnectionBecomeVisibleInOrder) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    for (size_t i = 0; i < 16; ++i) {
      std::fill_n(bench.a.words() + i * 16, 16, i + 1);
      ASSERT_TRUE(ab.Post(Write(bench.a, i * 128, 128, bench.b.Remote(i * 128), i + 1)).ok());
    }
    ASSERT_TRUE(bench
                    .Until([&] {
                      bool gap = false;
                      for (size_t i = 0; i < 16 * 16; ++i) {
                        bool there = bench.b.words()[i] != 0;
                        // Behind a WRITE that is not complete nothing of a later one may be there.
                        if (i % 16 == 0 && gap) {
                          for (size_t j = i; j < 16 * 16; ++j)
                            EXPECT_EQ(bench.b.words()[j], 0u) << "seed " << seed;
                          break;
                        }
                        gap |= !there;
                      }
                      return bench.a.Count(Completion::Kind::kRequest) == 16;
                    })
                    .ok());
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(bench.a.seen[i].id, i + 1);
  }
}

TEST(SimFabric, RequestsOfDifferentConnectionsOvertakeEachOther) {
  int overtaken = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Bench bench(seed);
    Connection& ac = bench.Connect(bench.a, bench.c);
    Connection& bc = bench.Connect(bench.b, bench.c);
    ASSERT_TRUE(ac.Post(Write(bench.a, 0, 8, bench.c.Remote(0), 1)).ok());
    ASSERT_TRUE(bc.Post(Write(bench.b, 0, 8, bench.c.Remote(8), 2)).ok());
    bench.a.words()[0] = bench.b.words()[0] = 1;
    ASSERT_TRUE(bench.Until([&] { return bench.c.words()[0] + bench.c.words()[1] == 1; }).ok());
    overtaken += bench.c.words()[1] == 1;
  }
  EXPECT_GT(overtaken, 5);
  EXPECT_LT(overtaken, 35);
}

TEST(SimFabric, AKilledNodeMayLeaveAPartOfAWrite) {
  int whole = 0, part = 0, none = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    std::fill_n(bench.a.words(), 64, 1);
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 512, bench.b.Remote(0), 1)).ok());
    Nanos delay = bench.world.NewRandom().Between(0, 4'000);
    ASSERT_TRUE(bench.world.RunFor(delay).ok());
    bench.world.Kill(bench.a.process);
    std::fill_n(bench.a.words(), 64, 99);  // memory of the dead is not looked at
    ASSERT_TRUE(bench.Until([&] { return bench.b.Count(Completion::Kind::kDisconnected) == 1; }).ok());
    int there = static_cast<int>(std::count(bench.b.words(), bench.b.words() + 64, 1));
    EXPECT_EQ(std::count(bench.b.words(), bench.b.words() + 64, 99), 0);
    (there == 64 ? whole : there == 0 ? none : part)++;
  }
  EXPECT_GT(whole, 3);
  EXPECT_GT(part, 3);
  EXPECT_GT(none, 3);
}

TEST(SimFabric, RequestsToADeadNodeFailAsPeerGoneInBoundedTime) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    bench.world.Kill(bench.b.process);
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 64, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(ab.Post(Read(bench.a, 0, 64, bench.b.Remote(0), 2)).ok());
    ASSERT_TRUE(bench.Until([&] { return bench.a.seen.size() == 3; }, 4 * kMillisecond).ok());
    EXPECT_EQ(bench.a.seen[0].status, CompletionStatus::kPeerGone);
    EXPECT_EQ(bench.a.seen[1].status, CompletionStatus::kFlushed);
    EXPECT_EQ(bench.a.seen[2].kind, Completion::Kind::kDisconnected);
    EXPECT_TRUE(ab.failed());
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 64, bench.b.Remote(0), 3)).ok());
    ASSERT_TRUE(bench.Until([&] { return bench.a.seen.size() == 4; }, kMillisecond).ok());
    EXPECT_EQ(bench.a.seen[3].status, CompletionStatus::kFlushed);
  }
}

TEST(SimFabric, AnIdleConnectionToADeadNodeIsReportedOnce) {
  Bench bench(3);
  bench.Connect(bench.a, bench.b);
  bench.world.Kill(bench.b.process);
  ASSERT_TRUE(
      bench.Until([&] { return bench.a.Count(Completion::Kind::kDisconnected) == 1; }, 4 * kMillisecond)
          .ok());
  ASSERT_TRUE(bench.world.RunFor(20 * kMillisecond).ok());
  bench.a.Poll();
  EXPECT_EQ(bench.a.Count(Completion::Kind::kDisconnected), 1u);
}

TEST(SimFabric, MemoryOfAPausedNodeCanBeReadAndWritten) {
  Bench bench(1);
  Connection& ab = bench.Connect(bench.a, bench.b);
  bench.world.Pause(bench.b.process);
  bench.a.words()[0] = 5;
  ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
  ASSERT_TRUE(ab.Post(Read(bench.a, 8, 8, bench.b.Remote(0), 2)).ok());
  ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 2; }).ok());
  EXPECT_EQ(bench.a.words()[1], 5u);
}

TEST(SimFabric, CopiesByTheInitiatorsCpuStopWhileItIsPaused) {
  bool stopped_half_way = false;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Bench bench(seed, SimNetworkOptions::SharedMemory());
    Connection& ab = bench.Connect(bench.a, bench.b);
    std::fill_n(bench.a.words(), 64, 1);
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 512, bench.b.Remote(0), 1)).ok());
    Nanos delay = bench.world.NewRandom().Between(50, 800);
    ASSERT_TRUE(bench.world.RunFor(delay).ok());
    bench.world.Pause(bench.a.process);
    ASSERT_TRUE(bench.world.RunFor(50 * kMillisecond).ok());
    auto there = std::count(bench.b.words(), bench.b.words() + 64, 1);
    stopped_half_way |= there > 0 && there < 64;
    bench.world.Resume(bench.a.process);
    ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 1; }).ok());
    EXPECT_EQ(std::count(bench.b.words(), bench.b.words() + 64, 1), 64);
  }
  EXPECT_TRUE(stopped_half_way);
}

TEST(SimFabric, ACutLinkStallsRequestsAndAHealedOneLetsThemPass) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    bench.network.Cut(NodeId(1), NodeId(2));
    bench.a.words()[0] = 5;
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(bench.world.RunFor(500 * kMicrosecond).ok());
    EXPECT_EQ(bench.b.words()[0], 0u);
    bench.network.Heal(NodeId(1), NodeId(2));
    ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 1; }).ok());
    EXPECT_EQ(bench.a.seen[0].status, CompletionStatus::kOk);
    EXPECT_EQ(bench.b.words()[0], 5u);
  }
}

TEST(SimFabric, OnlyAContinuousCutEndsAConnection) {
  Bench bench(2);
  Connection& ab = bench.Connect(bench.a, bench.b);
  for (int i = 0; i < 50; ++i) {
    bench.network.Cut(NodeId(1), NodeId(2));
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(bench.world.RunFor(900 * kMicrosecond).ok());
    bench.network.Heal(NodeId(1), NodeId(2));
    ASSERT_TRUE(bench.world.RunFor(100 * kMicrosecond).ok());
  }
  bench.a.Poll();
  EXPECT_EQ(bench.a.Count(Completion::Kind::kRequest), 50u);
  EXPECT_FALSE(ab.failed());
}

TEST(SimFabric, ACutOfTheWayBackFailsTheRequestThoughItTookEffect) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    bench.network.Cut(NodeId(2), NodeId(1));
    bench.a.words()[0] = 5;
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(
        bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 1; }, 4 * kMillisecond).ok());
    EXPECT_EQ(bench.a.seen[0].status, CompletionStatus::kPeerGone);
    EXPECT_EQ(bench.b.words()[0], 5u);
  }
}

TEST(SimFabric, NothingArrivesAfterTheFailureOfARequestThatWaitedForACutLink) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Bench bench(seed);
    Connection& ab = bench.Connect(bench.a, bench.b);
    bench.network.Partition({{NodeId(1)}, {NodeId(2), NodeId(3)}});
    bench.a.words()[0] = 5;
    ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
    ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 1; }).ok());
    EXPECT_EQ(bench.a.seen[0].status, CompletionStatus::kPeerGone);
    bench.network.HealAll();
    ASSERT_TRUE(bench.world.RunFor(10 * kMillisecond).ok());
    EXPECT_EQ(bench.b.words()[0], 0u);
  }
}

// What a parked worker sees of quiet and of waking notifications.
struct NotedPoller final : Poller {
  explicit NotedPoller(CompletionQueue& q) : queue(q) {}
  bool Poll() override {
    Completion c[8];
    size_t got = queue.Poll(c);
    noted += got;
    return got > 0;
  }
  CompletionQueue& queue;
  size_t noted = 0;
};

TEST(SimFabric, AQuietNotificationDoesNotRunAParkedLoopAndAWakingOneDoes) {
  Bench bench(9);
  Connection& ab = bench.Connect(bench.a, bench.b);
  ASSERT_TRUE(bench.Until([&] { return bench.b.Count(Completion::Kind::kConnected) == 1; }).ok());
  NotedPoller poller(*bench.b.queue);
  bench.b.loop.AddPoller(&poller);
  ASSERT_TRUE(bench.world.RunFor(kMillisecond).ok());  // b has long stopped spinning
  WorkRequest quiet = Write(bench.a, 0, 8, bench.b.Remote(0), 1);
  quiet.notify = WorkRequest::Notify::kQuiet;
  quiet.channel = 3;
  ASSERT_TRUE(ab.Post(quiet).ok());
  ASSERT_TRUE(bench.world.RunFor(kMillisecond).ok());
  EXPECT_EQ(poller.noted, 0u);
  WorkRequest waking = quiet;
  waking.notify = WorkRequest::Notify::kWake;
  waking.channel = 4;
  ASSERT_TRUE(ab.Post(waking).ok());
  ASSERT_TRUE(bench.world.RunFor(kMillisecond).ok());
  EXPECT_EQ(poller.noted, 2u);
  bench.b.loop.RemovePoller(&poller);
}

TEST(SimFabric, ConnectingToAPausedNodeWaitsForItOrForTheDeadline) {
  for (bool resume : {true, false}) {
    Bench bench(4);
    bench.world.Pause(bench.b.process);
    absl::StatusCode code = absl::StatusCode::kUnknown;
    bench.a.fabric->Connect(
        *bench.a.queue, bench.a.loop, "2", "", {}, 50 * kMillisecond,
        [&](absl::StatusOr<std::unique_ptr<Connection>> result) { code = result.status().code(); });
    ASSERT_TRUE(bench.world.RunFor(10 * kMillisecond).ok());
    EXPECT_EQ(code, absl::StatusCode::kUnknown);
    if (resume) bench.world.Resume(bench.b.process);
    ASSERT_TRUE(bench.Until([&] { return code != absl::StatusCode::kUnknown; }).ok());
    EXPECT_EQ(code, resume ? absl::StatusCode::kOk : absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(SimFabric, InTheAtOnceModeReadAndWriteEndInsidePost) {
  Bench bench(7, SimNetworkOptions::AtOnce());
  Connection& ab = bench.Connect(bench.a, bench.b);
  EXPECT_TRUE(ab.completes_at_once());
  bench.a.words()[0] = 5;
  ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(64), 1)).ok());
  EXPECT_EQ(bench.b.words()[8], 5u);
  ASSERT_TRUE(ab.Post(Read(bench.a, 8, 8, bench.b.Remote(64), 2)).ok());
  EXPECT_EQ(bench.a.words()[1], 5u);
  bench.a.Poll();
  ASSERT_EQ(bench.a.seen.size(), 2u);
  EXPECT_EQ(bench.a.seen[1].id, 2u);
  ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, {1, RemoteKey(1)}, 3)).ok());
  bench.a.Poll();
  ASSERT_EQ(bench.a.seen.size(), 3u);
  EXPECT_EQ(bench.a.seen[2].status, CompletionStatus::kRemoteAccess);
  EXPECT_TRUE(ab.failed());
}

TEST(SimFabric, ACardSendsNoMoreMessagesThanItsRate) {
  SimNetworkOptions options = SimNetworkOptions::Card();
  options.messages_per_second = 1'000'000;
  Bench bench(6, options);
  Connection& ab = bench.Connect(bench.a, bench.b);
  Nanos before = bench.world.now();
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(ab.Post(Write(bench.a, 0, 8, bench.b.Remote(0), 1)).ok());
  ASSERT_TRUE(bench.Until([&] { return bench.a.Count(Completion::Kind::kRequest) == 500; }).ok());
  EXPECT_GE(bench.world.now() - before, 500 * kMicrosecond);
}

TEST(SimFabric, AProcessThatRestartsListensAgain) {
  Bench bench(8);
  bench.Connect(bench.a, bench.b);
  bench.world.Kill(bench.b.process);
  Host again(bench.network, 2);
  bool done = false;
  bench.c.fabric->Connect(*bench.c.queue, bench.c.loop, "2", "", {}, kSecond,
                          [&](absl::StatusOr<std::unique_ptr<Connection>> result) {
                            ASSERT_TRUE(result.ok()) << result.status();
                            bench.c.connections.push_back(*std::move(result));
                            done = true;
                          });
  ASSERT_TRUE(bench.Until([&] { return done; }).ok());
  again.Poll();
  EXPECT_EQ(again.Count(Completion::Kind::kConnected), 1u);
}

}  // namespace
}  // namespace furrow::rdma
