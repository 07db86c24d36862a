#include "rdma/mesh_contract.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/thread.h"
#include "gtest/gtest.h"
#include "rdma/ring/mesh.h"
#include "rdma/ring/mesh_test_worker.h"
#include "rdma/ring/mesh_wire.h"

namespace furrow::rdma {

using Kind = InboundRing::Kind;
using Notify = WorkRequest::Notify;
using Worker = MeshTestWorker;

MeshContractTest::Node::Node(MeshWorld& world, uint32_t id, int worker_count, uint64_t incarnation,
                             const MeshOptions& options)
    : node(id), endpoint(world.EndpointOf(node)), fabric(world.MakeFabric({node, "mesh", "secret"})) {
  MeshOptions patient = options;
  patient.connect_timeout_ns = 60 * kSecond;
  for (int i = 0; i < worker_count; ++i) {
    workers.push_back(std::make_unique<Worker>(
        *fabric, MonotonicClock(),
        WorkerIdentity{node, Incarnation(incarnation), WorkerId(static_cast<uint16_t>(i))}, patient));
  }
  absl::StatusOr<Endpoint> listening =
      fabric->Listen(endpoint, [this](const ConnectRequest& request) -> absl::StatusOr<AcceptDecision> {
        absl::StatusOr<WorkerId> worker = ConnectingWorker(request);
        if (!worker.ok()) return worker.status();
        return workers[worker->value() % workers.size()]->mesh.PrepareAccept(request);
      });
  EXPECT_TRUE(listening.ok()) << listening.status();
}

void MeshContractTest::SetUp() {
  world_ = GetParam()();
  if (world_ == nullptr) GTEST_SKIP() << "this host has no device for this provider";
}

MeshContractTest::Node& MeshContractTest::AddNode(uint32_t id, int workers, uint64_t incarnation,
                                                  const MeshOptions& options) {
  nodes_.push_back(std::make_unique<Node>(*world_, id, workers, incarnation, options));
  return *nodes_.back();
}

bool MeshContractTest::RunUntil(const std::function<bool()>& done) {
  const Nanos limit = MonotonicClock().Now() + 120 * kSecond;
  while (!done()) {
    for (auto& node : nodes_) {
      if (node == nullptr) continue;
      for (auto& worker : node->workers) worker->loop.RunOnce();
    }
    if (MonotonicClock().Now() > limit) return false;
    sched_yield();  // to the fabrics' threads
  }
  return true;
}

absl::Status MeshContractTest::Connect(Worker& worker, NodeId node, const Endpoint& endpoint) {
  std::optional<absl::Status> result;
  worker.Connect(node, endpoint, &result);
  EXPECT_TRUE(RunUntil([&] { return result.has_value(); }));
  return result.value_or(absl::UnknownError("never connected"));
}

void MeshContractTest::ConnectAll(Node& from, Node& to) {
  for (auto& worker : from.workers) {
    absl::Status status = Connect(*worker, to.node, to.endpoint);
    ASSERT_TRUE(status.ok()) << status;
  }
}

TEST_P(MeshContractTest, RecordsOfEachRingArriveInOrder) {
  Node& a = AddNode(1, 1);
  Node& b = AddNode(2, 1);
  ConnectAll(a, b);
  OutboundLink& link = *a[0].mesh.link(b.node);
  int requests = 0;
  b[0].on_record = [&](InboundRing& ring, const std::string& text) {
    if (ring.kind != Kind::kMessages) return;
    ++requests;
    ASSERT_TRUE(b[0].Put(*ring.ReplyWriter(), "re " + text).ok());
  };
  for (int i = 0; i < 500; ++i) {
    const std::string text = absl::StrCat(i, std::string(i * 13 % 700, 'x'));
    ASSERT_TRUE(RunUntil([&] { return a[0].Put(*link.log, "log " + text).ok(); }));
    ASSERT_TRUE(RunUntil([&] { return a[0].Put(*link.messages, text).ok(); }));
    ASSERT_TRUE(RunUntil([&] { return a[0].heard.size() == static_cast<size_t>(i) + 1; }));
    EXPECT_EQ(a[0].heard.back().text, "re " + text);
    EXPECT_EQ(a[0].heard.back().kind, Kind::kReplies);
  }
  ASSERT_TRUE(RunUntil([&] { return b[0].heard.size() == 1000; }));
  std::map<Kind, int> next;
  for (const Worker::Heard& heard : b[0].heard) {
    const std::string prefix = absl::StrCat(heard.kind == Kind::kLog ? "log " : "", next[heard.kind]++);
    EXPECT_EQ(heard.text.substr(0, prefix.size()), prefix);
    EXPECT_EQ(heard.from.node, a.node);
    EXPECT_EQ(heard.from.incarnation, Incarnation(1));
  }
  EXPECT_EQ(next[Kind::kLog], 500);
  EXPECT_EQ(next[Kind::kMessages], 500);
}

TEST_P(MeshContractTest, AnswerReachesTheWorkerThatAsked) {
  Node& a = AddNode(1, 3);
  Node& b = AddNode(2, 2);
  Node& c = AddNode(3, 1);
  for (Node* from : {&a, &b, &c}) {
    for (Node* to : {&a, &b, &c}) {
      if (from != to) ConnectAll(*from, *to);
    }
  }
  for (Node* node : {&a, &b, &c}) {
    for (auto& worker : node->workers) {
      Worker* self = worker.get();
      self->on_record = [self](InboundRing& ring, const std::string& text) {
        if (ring.kind == Kind::kMessages) {
          ASSERT_TRUE(
              self->Put(*ring.ReplyWriter(), absl::StrCat(text, " to w", ring.from.worker.value())).ok());
        }
      };
    }
  }
  for (Node* to : {&b, &c}) {
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          a[i].Put(*a[i].mesh.link(to->node)->messages, absl::StrCat("n", to->node.value(), ".", i)).ok());
    }
  }
  ASSERT_TRUE(RunUntil([&] { return a[0].heard.size() + a[1].heard.size() + a[2].heard.size() == 6; }));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(a[i].heard.size(), 2u);
    for (const Worker::Heard& heard : a[i].heard) {
      EXPECT_EQ(heard.text, absl::StrCat("n", heard.from.node.value(), ".", i, " to w", i));
    }
  }
  // Worker i of A ends at worker i mod 2 of B.
  EXPECT_EQ(b[0].heard.size(), 2u);
  EXPECT_EQ(b[1].heard.size(), 1u);
}

TEST_P(MeshContractTest, OwnRecordsGoThroughTheOwnRing) {
  Node& a = AddNode(1, 1);
  OutboundLink& self = a[0].mesh.self_link();
  EXPECT_EQ(a[0].mesh.link(a.node), &self);
  ASSERT_TRUE(a[0].Put(*self.log, "mine").ok());
  EXPECT_TRUE(a[0].heard.empty());
  a[0].mesh.DeliverSelf();
  ASSERT_EQ(a[0].heard.size(), 1u);
  EXPECT_EQ(a[0].heard[0].text, "mine");
  EXPECT_TRUE(self.log->empty());
}

TEST_P(MeshContractTest, FullRingHoldsSenderUntilHeadsReturn) {
  Node& a = AddNode(1, 1);
  Node& b = AddNode(2, 1);
  ConnectAll(a, b);
  OutboundLink& link = *a[0].mesh.link(b.node);
  b[0].release = false;
  size_t sent = 0;
  while (a[0].Put(*link.log, std::string(1000, 'f')).ok()) ++sent;
  EXPECT_EQ(sent, (SmallMesh().log_ring_bytes - SmallMesh().max_log_record) / RecordBytes(1000));
  InboundRing* ring = nullptr;
  b[0].on_record = [&](InboundRing& r, const std::string&) { ring = &r; };
  ASSERT_TRUE(RunUntil([&] { return b[0].heard.size() == sent; }));
  EXPECT_FALSE(a[0].Put(*link.log, "no").ok());
  ring->reader->Release(ring->reader->read_position());
  b[0].mesh.ReturnHeads();
  ASSERT_TRUE(RunUntil([&] { return link.log->empty(); }));
  EXPECT_TRUE(a[0].Put(*link.log, "yes").ok());
  ASSERT_TRUE(RunUntil([&] { return b[0].heard.size() == sent + 1; }));
}

TEST_P(MeshContractTest, SilentRecordsWaitForPollAll) {
  Node& a = AddNode(1, 1);
  Node& b = AddNode(2, 1);
  ConnectAll(a, b);
  // The acceptor may hear of the connection later than its initiator, and looks at the rings then.
  ASSERT_TRUE(a[0].Put(*a[0].mesh.link(b.node)->log, "loud").ok());
  ASSERT_TRUE(RunUntil([&] { return b[0].heard.size() == 1; }));
  b[0].heard.clear();
  ASSERT_TRUE(RunUntil([&] { return !b[0].mesh.Poll(); }));
  ASSERT_TRUE(a[0].Put(*a[0].mesh.link(b.node)->log, "silent", Notify::kNone).ok());
  OutboundLink& link = *a[0].mesh.link(b.node);
  ASSERT_TRUE(RunUntil([&] { return link.connection->idle(); }));
  EXPECT_FALSE(b[0].mesh.Poll());
  EXPECT_TRUE(b[0].heard.empty());
  EXPECT_TRUE(b[0].mesh.PollAll());
  ASSERT_EQ(b[0].heard.size(), 1u);
  EXPECT_EQ(b[0].heard[0].text, "silent");
}

TEST_P(MeshContractTest, RecordsOfDeadPeerComeBeforeItsEnd) {
  Node& a = AddNode(1, 1);
  Node& b = AddNode(2, 1);
  ConnectAll(a, b);
  ConnectAll(b, a);
  OutboundLink& link = *a[0].mesh.link(b.node);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a[0].Put(*link.log, absl::StrCat(i), Notify::kNone).ok());
  ASSERT_TRUE(RunUntil([&] { return link.connection->idle(); }));
  world_->Kill(*a.fabric);
  size_t heard_at_end = 0;
  ASSERT_TRUE(RunUntil([&] {
    if (b[0].closed.size() == 1 && heard_at_end == 0) heard_at_end = b[0].heard.size();
    return b[0].closed.size() == 3 && b[0].lost.size() == 1;
  }));
  EXPECT_EQ(b[0].heard.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(b[0].heard[i].text, absl::StrCat(i));
  EXPECT_EQ(b[0].lost[0], a.node);
  EXPECT_TRUE(b[0].mesh.link(a.node)->gone);
}

TEST_P(MeshContractTest, RestartedPeerGetsNewLink) {
  Node& a = AddNode(1, 1);
  AddNode(2, 1);
  ConnectAll(a, *nodes_[1]);
  OutboundLink* old = a[0].mesh.link(NodeId(2));
  nodes_[1].reset();
  ASSERT_TRUE(RunUntil([&] { return a[0].lost.size() == 1; }));
  EXPECT_TRUE(old->gone);
  Node& again = AddNode(2, 1, /*incarnation=*/2);
  ConnectAll(a, again);
  OutboundLink* link = a[0].mesh.link(NodeId(2));
  EXPECT_NE(link, old);
  EXPECT_FALSE(link->gone);
  ASSERT_TRUE(a[0].Put(*link->messages, "hello again").ok());
  ASSERT_TRUE(RunUntil([&] { return again[0].heard.size() == 1; }));
  EXPECT_TRUE(Connect(a[0], again.node, again.endpoint).ok());
  EXPECT_EQ(a[0].mesh.link(NodeId(2)), link);
}

// Over and over: a node comes, connects both ways, talks, and leaves or is killed.
TEST_P(MeshContractTest, NodesThatComeAndGoLeaveNothingBehind) {
  RingAccount account;
  MeshOptions options = SmallMesh();
  account.Serve(options);
  Node& a = AddNode(1, 1, 1, options);
  a[0].on_record = [&a](InboundRing& ring, const std::string& text) {
    if (ring.kind == Kind::kMessages) ASSERT_TRUE(a[0].Put(*ring.ReplyWriter(), text).ok());
  };
  const RingAccount::Use before = account.use();
  for (uint64_t i = 1; i <= world_->rounds(); ++i) {
    AddNode(2, 1, i);
    Node& b = *nodes_.back();
    ConnectAll(b, a);
    ConnectAll(a, b);
    ASSERT_TRUE(b[0].Put(*b[0].mesh.link(a.node)->log, "record").ok());
    ASSERT_TRUE(b[0].Put(*b[0].mesh.link(a.node)->messages, "question").ok());
    ASSERT_TRUE(a[0].Put(*a[0].mesh.link(b.node)->log, "record").ok());
    ASSERT_TRUE(RunUntil([&] { return b[0].heard.size() == 2; }));
    if (i % 4 == 0) world_->Kill(*b.fabric);
    const size_t closed = 3 * i;
    if (i % 4 != 0) nodes_.pop_back();
    ASSERT_TRUE(RunUntil([&] { return a[0].closed.size() == closed && a[0].lost.size() == i; }));
    if (i % 4 == 0) nodes_.pop_back();
    ASSERT_TRUE(RunUntil([&] {
      a[0].mesh.Collect();
      return a[0].mesh.counts() == RingMesh::Counts();
    })) << "after "
        << i << " cycles";
    ASSERT_EQ(account.use(), before) << "after " << i << " cycles";
    EXPECT_EQ(a[0].mesh.link(NodeId(2)), nullptr);
  }
}

// A process may keep an address for as long as it likes: behind it is the memory of one connection, and
// nothing once that is over.
TEST_P(MeshContractTest, HeadWordOfFormerPeerIsGoneWithItsConnection) {
  Node& b = AddNode(2, 1);
  std::unique_ptr<Fabric> fabric = world_->MakeFabric({NodeId(1), "mesh", "secret"});
  std::unique_ptr<CompletionQueue> queue = *fabric->CreateCompletionQueue();
  EventLoop loop(MonotonicClock(), queue->parker());
  const auto connect = [&](uint64_t nonce) {
    std::unique_ptr<Connection> connection;
    bool done = false;
    fabric->Connect(*queue, loop, b.endpoint, RequestOf(1, nonce), {}, 60 * kSecond,
                    [&](absl::StatusOr<std::unique_ptr<Connection>> result) {
                      EXPECT_TRUE(result.ok()) << result.status();
                      if (result.ok()) connection = *std::move(result);
                      done = true;
                    });
    EXPECT_TRUE(RunUntil([&] {
      loop.RunOnce();
      return done;
    }));
    return connection;
  };
  const auto write_word = [&](Connection& over, RemoteAddress word) {
    uint64_t value = 4711;
    WorkRequest request;
    request.opcode = Opcode::kWrite;
    request.inlined = true;
    request.local = std::as_writable_bytes(std::span(&value, 1));
    request.remote = word;
    EXPECT_TRUE(over.Post(request).ok());
    Completion completion;
    EXPECT_TRUE(RunUntil([&] {
      return queue->Poll(std::span(&completion, 1)) == 1 && completion.kind == Completion::Kind::kRequest;
    }));
    return completion.status;
  };
  std::unique_ptr<Connection> first = connect(1);
  const MeshAnswer old = *UnpackAnswer(first->peer_private_data());
  ASSERT_TRUE(RunUntil([&] { return b[0].mesh.counts().accepted == 1; }));
  EXPECT_EQ(old.reply_head.key, old.messages.key)
      << "the word lies behind the ring that the same peer writes";
  EXPECT_EQ(write_word(*first, FromWire(old.reply_head)), CompletionStatus::kOk);
  first.reset();
  ASSERT_TRUE(RunUntil([&] { return b[0].closed.size() == 2; }));
  ASSERT_TRUE(RunUntil([&] {
    b[0].mesh.Collect();
    return b[0].mesh.counts().accepted == 0;
  }));
  std::unique_ptr<Connection> second = connect(2);
  const MeshAnswer now = *UnpackAnswer(second->peer_private_data());
  EXPECT_NE(now.reply_head.key, old.reply_head.key);
  // The word that it was refused may be lost.
  EXPECT_THAT(write_word(*second, FromWire(old.reply_head)),
              testing::AnyOf(CompletionStatus::kRemoteAccess, CompletionStatus::kPeerGone));
}

TEST_P(MeshContractTest, AnotherNodeAtTheEndpointIsRefused) {
  Node& a = AddNode(1, 1);
  Node& b = AddNode(2, 1);
  const absl::Status status = Connect(a[0], NodeId(7), b.endpoint);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(a[0].mesh.link(NodeId(7)), nullptr);
}

TEST_P(MeshContractTest, StagedRoomIsRecycledAndBounded) {
  Node& a = AddNode(1, 1);
  for (int i = 0; i < 1000; ++i) {
    absl::StatusOr<std::span<std::byte>> body = a[0].mesh.StageRecord(1900);
    ASSERT_TRUE(body.ok()) << body.status();
    a[0].mesh.ReleaseStaged(*body);
  }
  std::vector<std::span<std::byte>> held;
  absl::Status status;
  while (status.ok()) {
    absl::StatusOr<std::span<std::byte>> body = a[0].mesh.StageRecord(1900);
    status = body.status();
    if (body.ok()) held.push_back(*body);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(held.size(), 16u);
  a[0].mesh.ReleaseStaged(held.back());
  EXPECT_TRUE(a[0].mesh.StageRecord(1900).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(a[0].mesh.StageRecord(16 << 20).status()));
}

// Workers on threads of their own, parking when idle: under ThreadSanitizer this judges the memory orders.
TEST_P(MeshContractTest, WorkersOnThreadsExchangeMessages) {
  constexpr int kMessages = 500;
  // An answer may come long before the ends of the WRITEs that asked for it, which bodies wait for: on a busy
  // machine by many messages.
  MeshOptions options = SmallMesh();
  options.staging_bytes = 1 << 20;
  Node& a = AddNode(1, 2, 1, options);
  Node& b = AddNode(2, 2, 1, options);
  ConnectAll(a, b);
  for (auto& worker : b.workers) {
    Worker* self = worker.get();
    self->on_record = [self](InboundRing& ring, const std::string& text) {
      if (ring.kind == Kind::kMessages) ASSERT_TRUE(self->Put(*ring.ReplyWriter(), text).ok());
    };
  }
  std::atomic<int> finished{0};
  for (auto& worker : a.workers) {
    Worker* self = worker.get();
    OutboundLink* link = self->mesh.link(b.node);
    auto next = std::make_shared<int>(0);
    const auto ask = [self, link, next] {
      const std::string text = absl::StrCat(*next, std::string(*next * 7 % 300, 'm'));
      absl::Status put = self->Put(*link->log, "log " + text, Notify::kQuiet);
      if (put.ok()) put = self->Put(*link->messages, text);
      ASSERT_TRUE(put.ok()) << put << " at message " << *next << ", " << link->log->free_bytes() << " and "
                            << link->messages->free_bytes() << " bytes free";
    };
    self->on_record = [self, next, ask, &finished](InboundRing&, const std::string& text) {
      ASSERT_EQ(text, absl::StrCat(*next, std::string(*next * 7 % 300, 'm')));
      self->heard.clear();
      if (++*next == kMessages) {
        ++finished;
      } else {
        ask();
      }
    };
    ask();
  }
  std::vector<Thread> threads;
  for (Node* node : {&a, &b}) {
    for (auto& worker : node->workers) {
      threads.emplace_back(ThreadOptions{.name = "worker"}, [w = worker.get()] { w->loop.Run(); });
    }
  }
  const Nanos limit = MonotonicClock().Now() + 60 * kSecond;
  while (finished < 2 && MonotonicClock().Now() < limit)
    SleepThreadUntil(MonotonicClock().Now() + kMillisecond);
  for (Node* node : {&a, &b}) {
    for (auto& worker : node->workers) worker->loop.Stop();
  }
  threads.clear();
  EXPECT_EQ(finished, 2);
  // Late, and not lost.
  ASSERT_TRUE(RunUntil([&] {
    return std::all_of(a.workers.begin(), a.workers.end(),
                       [&](auto& worker) { return worker->mesh.link(b.node)->connection->idle(); });
  }));
  for (auto& worker : b.workers) EXPECT_EQ(worker->heard.size(), 2u * kMessages);
}

}  // namespace furrow::rdma
