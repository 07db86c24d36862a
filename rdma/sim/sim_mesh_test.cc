// The ring mesh over the simulated fabric: what remains of peers that come and go.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/ring/mesh_test_worker.h"
#include "rdma/sim/sim_network.h"

namespace furrow::rdma {
namespace {

using Kind = InboundRing::Kind;

// A node of one worker.
struct MeshNode {
  MeshNode(SimNetwork& network, uint32_t id, uint64_t incarnation, RingAccount& account)
      : process(network.world().StartProcess(NodeId(id))),
        endpoint(absl::StrCat(id)),
        fabric(network.MakeFabric(process, {NodeId(id), "cluster", "secret"})),
        worker(*fabric, process.clock(), {NodeId(id), Incarnation(incarnation), WorkerId(0)},
               Options(account)) {
    process.Attach(worker.loop, worker.queue->parker());
    EXPECT_TRUE(
        fabric->Listen(endpoint, [this](const ConnectRequest& request) { return Accept(request); }).ok());
    worker.on_record = [this](InboundRing& ring, const std::string& text) {
      if (ring.kind == Kind::kMessages) EXPECT_TRUE(worker.Put(*ring.ReplyWriter(), text).ok());
    };
  }
  ~MeshNode() { process.Detach(worker.loop); }

  static MeshOptions Options(RingAccount& account) {
    MeshOptions options = SmallMesh();
    options.connect_timeout_ns = 20 * kMillisecond;
    account.Serve(options);
    return options;
  }
  absl::StatusOr<AcceptDecision> Accept(const ConnectRequest& request) {
    if (refuses) return absl::FailedPreconditionError("not now");
    return worker.mesh.PrepareAccept(request);
  }

  SimProcess& process;
  const Endpoint endpoint;
  std::unique_ptr<Fabric> fabric;
  MeshTestWorker worker;
  bool refuses = false;
};

class SimMeshTest : public testing::TestWithParam<int> {
 protected:
  static SimNetworkOptions Kind(int kind) {
    if (kind == 1) return SimNetworkOptions::SharedMemory();
    if (kind == 2) return SimNetworkOptions::AtOnce();
    if (kind == 3) return SimNetworkOptions::Card();
    return {};
  }
  SimMeshTest() : world_(static_cast<uint64_t>(GetParam()) + 1), network_(world_, Kind(GetParam())) {
    Tick();
  }
  // Both sides look again every so often, also where nothing else happens.
  void Tick() {
    world_.After(10 * kMicrosecond, [this] { Tick(); });
  }
  void RunUntil(const std::function<bool()>& done) {
    const absl::Status status = world_.RunUntil(done, world_.now() + 10 * kSecond);
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status Connect(MeshNode& from, NodeId node, const Endpoint& endpoint) {
    std::optional<absl::Status> result;
    from.worker.Connect(node, endpoint, &result);
    RunUntil([&] { return result.has_value(); });
    return result.value_or(absl::UnknownError("never connected"));
  }
  absl::Status Connect(MeshNode& from, MeshNode& to) { return Connect(from, to.process.node(), to.endpoint); }
  // Lets time pass in which the node's timers fire.
  void Collect(MeshNode& node, const std::function<bool()>& done) {
    RunUntil([&] {
      node.worker.mesh.Collect();
      return done();
    });
  }

  SimWorld world_;
  SimNetwork network_;
  RingAccount account_;
};

TEST_P(SimMeshTest, ThousandsOfPeersLeaveNothingBehind) {
  MeshNode home(network_, 1, 1, account_);
  const RingAccount::Use before = account_.use();
  size_t closed = 0;
  size_t lost = 0;
  for (uint64_t i = 0; i < 1200; ++i) {
    SCOPED_TRACE(absl::StrCat("cycle ", i));
    RingAccount own;
    auto peer = std::make_unique<MeshNode>(network_, 2 + static_cast<uint32_t>(i % 3), i + 1, own);
    SimProcess& process = peer->process;
    ASSERT_TRUE(Connect(*peer, home).ok());
    closed += 2;
    const bool both_ways = i % 2 == 0;
    if (both_ways) {
      ASSERT_TRUE(Connect(home, *peer).ok());
      closed += 1;
      lost += 1;
    }
    OutboundLink& link = *peer->worker.mesh.link(NodeId(1));
    ASSERT_TRUE(peer->worker.Put(*link.log, "record").ok());
    ASSERT_TRUE(peer->worker.Put(*link.messages, "question").ok());
    RunUntil([&] { return !peer->worker.heard.empty(); });
    // Killed in the middle of something, or gone in good order.
    if (i % 3 == 0) {
      (void)peer->worker.Put(*link.log, "the last words");
      world_.Kill(process);
    }
    peer.reset();
    if (i % 3 != 0) world_.Kill(process);
    EXPECT_EQ(own.use().files, 2u) << "all but its staging";
    Collect(home, [&] {
      return home.worker.closed.size() == closed && home.worker.lost.size() == lost &&
             home.worker.mesh.counts() == RingMesh::Counts();
    });
    ASSERT_EQ(account_.use(), before);
    if (HasFatalFailure()) return;
    home.worker.heard.clear();
  }
  EXPECT_EQ(closed, home.worker.closed.size());
}

TEST_P(SimMeshTest, AttemptsThatFailGiveTheirMemoryBack) {
  MeshNode a(network_, 1, 1, account_);
  MeshNode b(network_, 2, 1, account_);
  const RingAccount::Use before = account_.use();
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(absl::IsUnavailable(Connect(a, NodeId(3), "3")));
    EXPECT_TRUE(absl::IsFailedPrecondition(Connect(a, NodeId(3), b.endpoint))) << "another node answers";
    b.refuses = true;
    EXPECT_TRUE(absl::IsFailedPrecondition(Connect(a, b)));
    b.refuses = false;
    network_.Cut(NodeId(1), NodeId(2));
    EXPECT_TRUE(absl::IsDeadlineExceeded(Connect(a, b)));
    network_.HealAll();
  }
  const auto nothing = [&](MeshNode& node) { return node.worker.mesh.counts() == RingMesh::Counts(); };
  Collect(a, [&] { return nothing(a); });
  Collect(b, [&] { return nothing(b); });
  EXPECT_EQ(account_.use(), before);
}

TEST_P(SimMeshTest, PreparedAcceptWhoseConnectionNeverComesIsDiscarded) {
  MeshNode b(network_, 2, 1, account_);
  const RingAccount::Use before = account_.use();
  for (uint64_t nonce = 1; nonce <= 10; ++nonce) {
    ASSERT_TRUE(b.worker.mesh.PrepareAccept({NodeId(7), RequestOf(7, nonce)}).ok());
  }
  EXPECT_EQ(b.worker.mesh.counts().pending, 1u) << "the last attempt of a worker replaces the earlier ones";
  for (uint32_t node = 8; node < 20; ++node) {
    ASSERT_TRUE(b.worker.mesh.PrepareAccept({NodeId(node), RequestOf(node, 1)}).ok());
  }
  EXPECT_EQ(b.worker.mesh.counts().pending, 13u);
  b.worker.mesh.Collect();
  EXPECT_EQ(b.worker.mesh.counts().pending, 13u) << "its time is not over";
  Collect(b, [&] { return b.worker.mesh.counts().pending == 0; });
  EXPECT_EQ(account_.use(), before);
}

TEST_P(SimMeshTest, PinnedLinkAndHeldRecordsOutliveTheirPeer) {
  MeshNode home(network_, 1, 1, account_);
  auto peer = std::make_unique<MeshNode>(network_, 2, 1, account_);
  SimProcess& process = peer->process;
  ASSERT_TRUE(Connect(*peer, home).ok());
  ASSERT_TRUE(Connect(home, *peer).ok());
  home.worker.release = false;
  InboundRing* ring = nullptr;
  home.worker.on_record = [&](InboundRing& r, const std::string&) { ring = &r; };
  ASSERT_TRUE(peer->worker.Put(*peer->worker.mesh.link(NodeId(1))->log, "held").ok());
  RunUntil([&] { return ring != nullptr; });
  Pinned<OutboundLink> link = home.worker.mesh.link(NodeId(2));
  ASSERT_TRUE(home.worker.Put(*link->log, "unread").ok());
  const uint64_t room = link->log->free_bytes();
  peer.reset();
  world_.Kill(process);
  Collect(home, [&] { return home.worker.closed.size() == 3; });
  home.worker.mesh.Collect();
  EXPECT_EQ(home.worker.mesh.counts().links, 1u);
  EXPECT_EQ(home.worker.mesh.counts().accepted, 1u);
  EXPECT_TRUE(link->gone);
  EXPECT_EQ(link->log->free_bytes(), room) << "the head word is gone, the writer is not";
  EXPECT_EQ(ring->reader->held(), ring->reader->read_position() - ring->reader->released());
  link = nullptr;
  ring->reader->Release(ring->reader->read_position());
  Collect(home, [&] { return home.worker.mesh.counts() == RingMesh::Counts(); });
}

TEST_P(SimMeshTest, HandlersMayLookAtLinksWhileCollectLosesOne) {
  MeshNode home(network_, 1, 1, account_);
  MeshNode gone(network_, 2, 1, account_);
  MeshNode stays(network_, 3, 1, account_);
  MeshNode given_up(network_, 4, 1, account_);
  for (MeshNode* node : {&gone, &stays, &given_up}) ASSERT_TRUE(Connect(home, *node).ok());
  world_.Kill(gone.process);
  RunUntil([&] { return home.worker.lost.size() == 1; });
  home.worker.mesh.link(NodeId(4))->gone = true;
  int looked = 0;
  home.worker.on_closed = [&](InboundRing&) {
    EXPECT_NE(home.worker.mesh.link(NodeId(3)), nullptr);
    EXPECT_EQ(home.worker.mesh.link(NodeId(7)), nullptr);
    ++looked;
  };
  Collect(home, [&] { return home.worker.mesh.counts().links == 1; });
  EXPECT_EQ(looked, 1);
}

// A request's end is never lost with its connection.
TEST_P(SimMeshTest, ConnectionWithUnfinishedRequestsIsKept) {
  for (int i = 0; i < 50; ++i) {
    MeshNode home(network_, 1, 1, account_);
    MeshNode peer(network_, 2, 1, account_);
    ASSERT_TRUE(Connect(home, peer).ok());
    struct Ended : Operation {
      Ended() : Operation([](Operation* self, CompletionStatus) { ++static_cast<Ended*>(self)->count; }) {}
      int count = 0;
    } ended;
    home.worker.on_lost = [&ended](OutboundLink& link) {
      uint64_t word = 0;
      WorkRequest request;
      request.opcode = Opcode::kWrite;
      request.inlined = true;
      request.local = std::as_writable_bytes(std::span(&word, 1));
      request.id = ended.id();
      for (int posted = 0; posted < 3; ++posted) EXPECT_TRUE(link.connection->Post(request).ok());
    };
    world_.Kill(peer.process);
    Collect(home, [&] { return home.worker.mesh.counts().links == 0; });
    EXPECT_EQ(ended.count, 3);
    world_.Kill(home.process);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SimMeshTest, testing::Range(0, 4));

}  // namespace
}  // namespace furrow::rdma
