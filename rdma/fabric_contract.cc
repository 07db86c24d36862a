#include "rdma/fabric_contract.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"

namespace furrow::rdma {
namespace {

void Fill(std::span<std::byte> bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((seed * 131 + i * 7 + i / 251) & 0xff);
}
bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
// Memory that a peer writes is read as the fabric's contract allows: by words.
uint64_t LoadShared(std::span<std::byte> bytes) {
  return __atomic_load_n(reinterpret_cast<uint64_t*>(bytes.data()), __ATOMIC_ACQUIRE);
}

}  // namespace

void FabricContractTest::SetUp() { world_ = GetParam()(); }

void FabricContractTest::TearDown() {
  for (Peer& peer : peers_) peer.connections.clear();
  world_.reset();
}

FabricContractTest::Peer& FabricContractTest::AddPeer(uint32_t node, std::string cluster,
                                                      std::string secret) {
  Peer& peer = peers_.emplace_back();
  peer.node = world_->AddNode({NodeId(node), std::move(cluster), std::move(secret)});
  return peer;
}

void FabricContractTest::Listen(Peer& peer) {
  absl::Status status = peer.node.fabric->Listen(
      peer.node.endpoint, [&peer](const ConnectRequest& request) -> absl::StatusOr<AcceptDecision> {
        peer.said.push_back(std::string(request.private_data));
        if (!peer.refusal.ok()) return peer.refusal;
        return AcceptDecision{peer.node.queue, peer.answer};
      });
  ASSERT_TRUE(status.ok()) << status;
}

void FabricContractTest::AddTwo() {
  a_ = &AddPeer(1);
  b_ = &AddPeer(2);
  Listen(*a_);
  Listen(*b_);
}

FabricContractTest::Pair FabricContractTest::Connect(Peer& from, Peer& to, std::string private_data,
                                                     ConnectionLimits limits) {
  Pair pair;
  bool done = false;
  const size_t accepted = to.accepted.size();
  from.node.fabric->Connect(*from.node.queue, *from.node.loop, to.node.endpoint, std::move(private_data),
                            limits, 10 * kSecond,
                            [&](absl::StatusOr<std::unique_ptr<Connection>> connection) {
                              done = true;
                              pair.status = connection.status();
                              if (!connection.ok()) return;
                              pair.from = connection->get();
                              from.connections.push_back(*std::move(connection));
                            });
  EXPECT_TRUE(RunUntil([&] { return done && (!pair.status.ok() || to.accepted.size() > accepted); }));
  if (to.accepted.size() > accepted) pair.to = to.accepted.back();
  return pair;
}

absl::Status FabricContractTest::TryConnect(Peer& from, const Endpoint& endpoint) {
  absl::Status status = absl::UnknownError("not called");
  bool done = false;
  from.node.fabric->Connect(*from.node.queue, *from.node.loop, endpoint, "", {}, 10 * kSecond,
                            [&](absl::StatusOr<std::unique_ptr<Connection>> connection) {
                              done = true;
                              status = connection.status();
                              if (connection.ok()) from.connections.push_back(*std::move(connection));
                            });
  EXPECT_TRUE(RunUntil([&] { return done; }));
  return status;
}

FabricContractTest::Memory FabricContractTest::MakeMemory(Peer& peer, Access access, size_t bytes) {
  Memory memory;
  absl::StatusOr<MemoryFile> file = MemoryFile::Anonymous(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  memory.file = *std::move(file);
  absl::StatusOr<std::unique_ptr<MemoryRegion>> region = peer.node.fabric->Register(memory.file, access);
  EXPECT_TRUE(region.ok()) << region.status();
  memory.region = *std::move(region);
  return memory;
}

void FabricContractTest::PollAll() {
  Completion batch[16];
  for (Peer& peer : peers_) {
    for (size_t count = 1; count > 0;) {
      count = peer.node.queue->Poll(batch);
      for (size_t i = 0; i < count; ++i) {
        if (batch[i].kind == Completion::Kind::kConnected) {
          peer.connections.push_back(peer.node.queue->TakeAccepted(batch[i].connection));
          ASSERT_EQ(peer.connections.back().get(), batch[i].connection);
          peer.accepted.push_back(batch[i].connection);
        } else {
          peer.completions.push_back(batch[i]);
        }
      }
    }
  }
}

bool FabricContractTest::RunUntil(const std::function<bool()>& done) {
  return world_->RunUntil([&] {
    PollAll();
    return done();
  });
}

void FabricContractTest::Settle() {
  world_->Settle([this] { PollAll(); });
}

Completion FabricContractTest::Next(Peer& peer, Completion::Kind kind) {
  Completion found;
  const bool came = RunUntil([&] {
    auto it = std::find_if(peer.completions.begin(), peer.completions.end(),
                           [kind](const Completion& c) { return c.kind == kind; });
    if (it == peer.completions.end()) return false;
    found = *it;
    peer.completions.erase(it);
    return true;
  });
  EXPECT_TRUE(came) << "no completion of kind " << static_cast<int>(kind);
  return found;
}

Completion FabricContractTest::NextRequest(Peer& peer) { return Next(peer, Completion::Kind::kRequest); }

size_t FabricContractTest::Count(const Peer& peer, Completion::Kind kind) const {
  return static_cast<size_t>(std::count_if(peer.completions.begin(), peer.completions.end(),
                                           [kind](const Completion& c) { return c.kind == kind; }));
}

CompletionStatus FabricContractTest::Do(Peer& peer, Connection* connection, const WorkRequest& request) {
  absl::Status posted = connection->Post(request);
  EXPECT_TRUE(posted.ok()) << posted;
  const Completion completion = NextRequest(peer);
  EXPECT_EQ(completion.id, request.id);
  EXPECT_EQ(completion.connection, connection);
  return completion.status;
}

WorkRequest FabricContractTest::Read(std::span<std::byte> local, RemoteAddress remote, uint64_t id) {
  WorkRequest request;
  request.opcode = Opcode::kRead;
  request.local = local;
  request.remote = remote;
  request.id = id;
  return request;
}

WorkRequest FabricContractTest::Write(std::span<std::byte> local, RemoteAddress remote, uint64_t id) {
  WorkRequest request = Read(local, remote, id);
  request.opcode = Opcode::kWrite;
  return request;
}

WorkRequest FabricContractTest::Send(std::span<std::byte> local, uint64_t id) {
  WorkRequest request = Read(local, {}, id);
  request.opcode = Opcode::kSend;
  return request;
}

// --- bytes ---

TEST_P(FabricContractTest, ReadAndWriteMoveBytesOfAnySizeAndAlignment) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  Memory local = MakeMemory(*a_, Access::kNone, 1 << 18);
  Memory remote = MakeMemory(*b_, Access::kReadWrite, 1 << 17);
  uint64_t seed = 1;
  for (size_t size : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 200u, 1024u, 4097u, 65536u}) {
    for (size_t offset : {0u, 1u, 5u, 8u, 60u}) {
      std::span<std::byte> out = local.bytes().subspan(offset * 3 % 16, size);
      Fill(out, ++seed);
      Fill(remote.bytes().subspan(offset + size, 8), 99);
      ASSERT_EQ(Do(*a_, pair.from, Write(out, remote.at(offset))), CompletionStatus::kOk);
      ASSERT_TRUE(Same(out, remote.bytes().subspan(offset, size))) << size << " bytes at " << offset;
      std::vector<std::byte> behind(8);
      Fill(behind, 99);
      ASSERT_TRUE(Same(behind, remote.bytes().subspan(offset + size, 8))) << "wrote behind the end";
      std::span<std::byte> in = local.bytes().subspan(66000 + offset, size);
      Fill(in, 0);
      ASSERT_EQ(Do(*a_, pair.from, Read(in, remote.at(offset))), CompletionStatus::kOk);
      ASSERT_TRUE(Same(in, out)) << size << " bytes at " << offset;
    }
  }
}

TEST_P(FabricContractTest, BothSidesOfConnectionMayPost) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  EXPECT_EQ(pair.from->peer(), NodeId(2));
  EXPECT_EQ(pair.to->peer(), NodeId(1));
  Memory of_a = MakeMemory(*a_, Access::kReadWrite);
  Memory of_b = MakeMemory(*b_, Access::kReadWrite);
  Fill(of_b.bytes(), 5);
  ASSERT_EQ(Do(*b_, pair.to, Write(of_b.bytes(), of_a.at())), CompletionStatus::kOk);
  EXPECT_TRUE(Same(of_a.bytes(), of_b.bytes()));
}

TEST_P(FabricContractTest, InlinedBytesAreTakenBeforePostReturns) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::byte unregistered[WorkRequest::kMaxInline], expected[WorkRequest::kMaxInline];
  Fill(unregistered, 3);
  Fill(expected, 3);
  WorkRequest write = Write(unregistered, remote.at(16));
  write.inlined = true;
  ASSERT_TRUE(pair.from->Post(write).ok());
  std::memset(unregistered, 0, sizeof(unregistered));
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(expected, remote.bytes().subspan(16, sizeof(expected))));
}

TEST_P(FabricContractTest, EmptyRequestsComplete) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  EXPECT_EQ(Do(*a_, pair.from, Read({}, remote.at(8))), CompletionStatus::kOk);
  EXPECT_EQ(Do(*a_, pair.from, Write({}, remote.at(8))), CompletionStatus::kOk);
}

// --- order and completions ---

TEST_P(FabricContractTest, RequestsCompleteOnceAndInOrderOfPosting) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::vector<WorkRequest> requests;
  for (uint64_t i = 1; i <= 100; ++i) {
    std::span<std::byte> bytes = local.bytes().subspan(i * 8, i % 3 == 0 ? 2000 : 8);
    requests.push_back(i % 2 == 0 ? Read(bytes, remote.at(i)) : Write(bytes, remote.at(i)));
    requests.back().id = i;
    requests.back().signaled = i % 5 != 0;
  }
  // In batches of growing size.
  for (size_t at = 0, size = 1; at < requests.size(); at += size, ++size) {
    size = std::min(size, requests.size() - at);
    ASSERT_TRUE(pair.from->Post(std::span(requests).subspan(at, size)).ok());
  }
  for (uint64_t i = 1; i <= 100; ++i) {
    if (i % 5 == 0) continue;
    const Completion completion = NextRequest(*a_);
    EXPECT_EQ(completion.id, i);
    EXPECT_EQ(completion.status, CompletionStatus::kOk);
  }
  Settle();
  EXPECT_EQ(Count(*a_, Completion::Kind::kRequest), 0u);
  EXPECT_TRUE(b_->completions.empty());
}

TEST_P(FabricContractTest, WritesOfOneConnectionBecomeVisibleInOrder) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone, 1 << 16);
  Memory remote = MakeMemory(*b_, Access::kWrite, 1 << 16);
  for (uint64_t round = 1; round <= 30; ++round) {
    std::span<std::byte> body = local.bytes().subspan(64, 1000);
    std::span<std::byte> flag = local.bytes().subspan(0, 8);
    Fill(body, round);
    std::memcpy(flag.data(), &round, 8);
    WorkRequest requests[2] = {Write(body, remote.at(64)), Write(flag, remote.at(0), round)};
    requests[0].signaled = false;
    ASSERT_TRUE(pair.from->Post(requests).ok());
    bool in_order = true;
    ASSERT_TRUE(RunUntil([&] {
      if (LoadShared(remote.bytes()) != round) return false;
      in_order = Same(body, remote.bytes().subspan(64, 1000));
      return true;
    }));
    ASSERT_TRUE(in_order);
    NextRequest(*a_);
  }
}

TEST_P(FabricContractTest, ReadBehindWriteSeesItsBytes) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes().first(512), 17);
  WorkRequest requests[2] = {Write(local.bytes().first(512), remote.at()),
                             Read(local.bytes().subspan(1024, 512), remote.at(), 2)};
  ASSERT_TRUE(pair.from->Post(requests).ok());
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(local.bytes().first(512), local.bytes().subspan(1024, 512)));
}

TEST_P(FabricContractTest, FullConnectionTakesNothingOfBatchThatDoesNotFit) {
  AddTwo();
  Pair pair = Connect(*a_, *b_, "", {.max_requests = 8});
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes(), 1);
  std::vector<WorkRequest> nine(9, Write(local.bytes().first(8), remote.at(2048)));
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(nine)));
  for (uint64_t i = 1; i <= 6; ++i)
    ASSERT_TRUE(pair.from->Post(Read(local.bytes().first(8), remote.at(), i)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(std::span(nine).first(3))));
  ASSERT_TRUE(pair.from->Post(std::span(nine).first(2)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(std::span(nine).first(1))));
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(NextRequest(*a_).id, i);
  NextRequest(*a_);
  NextRequest(*a_);
  // Room again.
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at(), 77)), CompletionStatus::kOk);
}

// --- protection ---

TEST_P(FabricContractTest, RefusedRequestsChangeNothing) {
  AddTwo();
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory both = MakeMemory(*b_, Access::kReadWrite);
  Memory readable = MakeMemory(*b_, Access::kRead);
  Memory writable = MakeMemory(*b_, Access::kWrite);
  Memory hidden = MakeMemory(*b_, Access::kNone);
  Fill(local.bytes(), 9);
  const std::vector<std::byte> before(local.bytes().begin(), local.bytes().end());
  std::span<std::byte> word = local.bytes().first(64);
  const RemoteAddress at = both.at();
  const RemoteAddress wrong_key{at.address, RemoteKey(at.key.value() ^ 0x10000)};
  const RemoteAddress other_slot{at.address, RemoteKey(at.key.value() ^ 0x7ff)};
  const uint64_t end = both.bytes().size();
  const std::vector<std::pair<std::string, WorkRequest>> cases = {
      {"read with a wrong key", Read(word, wrong_key)},
      {"write with a wrong key", Write(word, wrong_key)},
      {"write with a key that was never given", Write(word, other_slot)},
      {"read behind the end", Read(word, both.at(end))},
      {"read across the end", Read(word, both.at(end - 63))},
      {"write across the end", Write(word, both.at(end - 63))},
      {"read before the start", Read(word, both.at(static_cast<uint64_t>(-8)))},
      {"write whose end wraps around", Write(word, {static_cast<uint64_t>(-16), at.key})},
      {"read without the right", Read(word, writable.at())},
      {"write without the right", Write(word, readable.at())},
      {"read of memory for local use", Read(word, hidden.at())},
      {"write of memory for local use", Write(word, hidden.at())},
  };
  for (const auto& [what, request] : cases) {
    SCOPED_TRACE(what);
    Pair pair = Connect(*a_, *b_);
    ASSERT_TRUE(pair.status.ok()) << pair.status;
    EXPECT_FALSE(pair.from->failed());
    EXPECT_EQ(Do(*a_, pair.from, request), CompletionStatus::kRemoteAccess);
    EXPECT_TRUE(pair.from->failed());
    // There is no way back.
    EXPECT_EQ(Do(*a_, pair.from, Read(word, both.at())), CompletionStatus::kFlushed);
  }
  EXPECT_TRUE(Same(before, local.bytes()));
  for (Memory* memory : {&both, &readable, &writable, &hidden}) EXPECT_TRUE(AllZero(memory->bytes()));
}

TEST_P(FabricContractTest, LocalBuffersMustBeRegistered) {
  AddTwo();
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::vector<std::byte> unregistered(64, std::byte{1});
  const std::span<std::byte> across(local.bytes().data() + local.bytes().size() - 8, 64);
  for (std::span<std::byte> buffer : {std::span(unregistered), across}) {
    for (WorkRequest request : {Read(buffer, remote.at()), Write(buffer, remote.at()), Send(buffer)}) {
      Pair pair = Connect(*a_, *b_);
      EXPECT_EQ(Do(*a_, pair.from, request), CompletionStatus::kLocalProtection);
    }
  }
  Pair pair = Connect(*a_, *b_);
  local.region.reset();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())),
            CompletionStatus::kLocalProtection);
  EXPECT_TRUE(AllZero(remote.bytes()));
}

TEST_P(FabricContractTest, RegionDeregisteredUnderPeerRefuses) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory stays = MakeMemory(*b_, Access::kReadWrite);
  Memory goes = MakeMemory(*b_, Access::kReadWrite);
  const RemoteAddress old = goes.at();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(64), old)), CompletionStatus::kOk);
  goes.region.reset();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(64), stays.at())), CompletionStatus::kOk);
  EXPECT_EQ(Do(*a_, pair.from, Write(local.bytes().first(64), old)), CompletionStatus::kRemoteAccess);
  EXPECT_TRUE(AllZero(goes.bytes()));
  // Registered again it has another key.
  goes.region = *b_->node.fabric->Register(goes.file, Access::kReadWrite);
  EXPECT_NE(goes.at().key, old.key);
  Pair again = Connect(*a_, *b_);
  EXPECT_EQ(Do(*a_, again.from, Write(local.bytes().first(64), goes.at())), CompletionStatus::kOk);
}

TEST_P(FabricContractTest, RegionsComeAndGoWhileConnected) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  for (uint64_t round = 1; round <= 50; ++round) {
    Memory remote = MakeMemory(*b_, round % 2 == 0 ? Access::kWrite : Access::kReadWrite);
    Fill(local.bytes().first(256), round);
    ASSERT_EQ(Do(*a_, pair.from, Write(local.bytes().first(256), remote.at(64))), CompletionStatus::kOk);
    ASSERT_TRUE(Same(local.bytes().first(256), remote.bytes().subspan(64, 256)));
  }
}

// --- errors ---

TEST_P(FabricContractTest, RequestsBehindFailureAreFlushed) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes(), 4);
  std::span<std::byte> word = local.bytes().first(8);
  std::vector<WorkRequest> requests = {Write(word, remote.at(0), 1),
                                       Write(word, remote.at(remote.bytes().size()), 2),
                                       Write(word, remote.at(64), 3), Write(word, remote.at(128), 4)};
  requests[1].signaled = false;  // fails, so it completes all the same
  requests[2].signaled = false;
  ASSERT_TRUE(pair.from->Post(requests).ok());
  const std::vector<CompletionStatus> expected = {CompletionStatus::kOk, CompletionStatus::kRemoteAccess,
                                                  CompletionStatus::kFlushed, CompletionStatus::kFlushed};
  for (uint64_t i = 0; i < 4; ++i) {
    const Completion completion = NextRequest(*a_);
    EXPECT_EQ(completion.id, i + 1);
    EXPECT_EQ(completion.status, expected[i]) << ToString(completion.status);
  }
  Settle();
  EXPECT_EQ(Count(*a_, Completion::Kind::kRequest), 0u);
  EXPECT_TRUE(Same(word, remote.bytes().first(8)));
  EXPECT_TRUE(AllZero(remote.bytes().subspan(8)));
}

TEST_P(FabricContractTest, FailureStaysWithinItsConnection) {
  AddTwo();
  Pair bad = Connect(*a_, *b_);
  Pair good = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  EXPECT_EQ(Do(*a_, bad.from, Read(local.bytes().first(8), remote.at(1 << 20))),
            CompletionStatus::kRemoteAccess);
  EXPECT_EQ(Do(*a_, good.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  EXPECT_FALSE(good.from->failed());
}

TEST_P(FabricContractTest, RequestsToDeadProcessFail) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Pair other = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  ASSERT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  if (!world_->Kill(b_->node)) GTEST_SKIP() << "this world cannot kill";
  // Bounded time: at most until the provider has learnt of it.
  CompletionStatus status = CompletionStatus::kOk;
  ASSERT_TRUE(RunUntil([&] {
    if (Count(*a_, Completion::Kind::kRequest) > 0) status = NextRequest(*a_).status;
    if (status != CompletionStatus::kOk) return true;
    // An endless stream of posts would be no bounded time in simulation.
    return Count(*a_, Completion::Kind::kDisconnected) == 2;
  }));
  if (status == CompletionStatus::kOk) status = Do(*a_, pair.from, Read(local.bytes().first(8), remote.at()));
  EXPECT_EQ(status, CompletionStatus::kPeerGone) << ToString(status);
  EXPECT_TRUE(pair.from->failed());
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kFlushed);
  Settle();
  std::vector<Connection*> lost;
  for (const Completion& c : a_->completions) {
    if (c.kind == Completion::Kind::kDisconnected) lost.push_back(c.connection);
  }
  std::sort(lost.begin(), lost.end());
  std::vector<Connection*> expected = {pair.from, other.from};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(lost, expected);
}

TEST_P(FabricContractTest, DestroyedConnectionDisconnectsPeerOnce) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*b_, Access::kNone);
  Memory remote = MakeMemory(*a_, Access::kReadWrite);
  ASSERT_EQ(Do(*b_, pair.to, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  a_->connections.clear();
  EXPECT_EQ(Next(*b_, Completion::Kind::kDisconnected).connection, pair.to);
  EXPECT_EQ(Do(*b_, pair.to, Read(local.bytes().first(8), remote.at())), CompletionStatus::kPeerGone);
  Settle();
  EXPECT_TRUE(a_->completions.empty());
  EXPECT_TRUE(b_->completions.empty());
}

TEST_P(FabricContractTest, DestroyedConnectionDropsItsCompletions) {
  AddTwo();
  Pair first = Connect(*a_, *b_);
  Pair second = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(first.from->Post(Read(local.bytes().first(8), remote.at(), i)).ok());
    ASSERT_TRUE(second.from->Post(Read(local.bytes().first(8), remote.at(), 10 + i)).ok());
  }
  std::erase_if(a_->connections, [&](const auto& c) { return c.get() == first.from; });
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(NextRequest(*a_).id, 10 + i);
  Settle();
  EXPECT_TRUE(a_->completions.empty());
}

// --- connecting ---

TEST_P(FabricContractTest, ManyConnectionsAreIndependent) {
  AddTwo();
  constexpr size_t kConnections = 100;
  Memory local = MakeMemory(*a_, Access::kNone, kConnections * 64);
  Memory remote = MakeMemory(*b_, Access::kReadWrite, kConnections * 64);
  Fill(local.bytes(), 12);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < kConnections; ++i) {
    pairs.push_back(Connect(*a_, *b_, std::to_string(i), {.max_requests = 16, .max_receives = 4}));
    ASSERT_TRUE(pairs.back().status.ok()) << pairs.back().status;
    ASSERT_EQ(pairs.back().to->peer_private_data(), std::to_string(i));
  }
  for (size_t i = 0; i < kConnections; ++i) {
    WorkRequest write = Write(local.bytes().subspan(i * 64, 64), remote.at(i * 64), i);
    write.notify = WorkRequest::Notify::kWake;
    write.channel = static_cast<uint8_t>(i % 64);
    ASSERT_TRUE(pairs[i].from->Post(write).ok());
  }
  for (size_t i = 0; i < kConnections; ++i) EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(local.bytes().first(kConnections * 64), remote.bytes().first(kConnections * 64)));
  for (size_t i = 0; i < kConnections; ++i) {
    const Completion completion = Next(*b_, Completion::Kind::kNotified);
    auto it = std::find_if(pairs.begin(), pairs.end(),
                           [&](const Pair& p) { return p.to == completion.connection; });
    ASSERT_NE(it, pairs.end());
    EXPECT_EQ(completion.channel, (it - pairs.begin()) % 64);
  }
}

TEST_P(FabricContractTest, PrivateDataTravelsBothWays) {
  AddTwo();
  b_->answer = std::string(Fabric::kMaxPrivateData, '\0');
  b_->answer[0] = 'x';
  const std::string said(Fabric::kMaxPrivateData, 'y');
  Pair pair = Connect(*a_, *b_, said);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  EXPECT_EQ(b_->said, std::vector<std::string>{said});
  EXPECT_EQ(pair.from->peer_private_data(), b_->answer);
  EXPECT_EQ(pair.to->peer_private_data(), said);
  EXPECT_TRUE(absl::IsInvalidArgument(Connect(*a_, *b_, said + "z").status));
}

TEST_P(FabricContractTest, RefusalOfAcceptorComesWithItsSentence) {
  AddTwo();
  b_->refusal = absl::ResourceExhaustedError("node 2 takes no more workers");
  const absl::Status status = TryConnect(*a_, b_->node.endpoint);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("takes no more workers"), std::string::npos) << status;
  b_->refusal = absl::OkStatus();
  EXPECT_TRUE(TryConnect(*a_, b_->node.endpoint).ok());
}

TEST_P(FabricContractTest, StrangersAreRefused) {
  AddTwo();
  Peer& wrong_secret = AddPeer(3, "contract", "a guess");
  Peer& wrong_cluster = AddPeer(4, "other", "the secret");
  Listen(wrong_secret);
  EXPECT_TRUE(absl::IsPermissionDenied(TryConnect(wrong_secret, b_->node.endpoint)));
  EXPECT_TRUE(absl::IsPermissionDenied(TryConnect(*a_, wrong_secret.node.endpoint)));
  EXPECT_TRUE(absl::IsFailedPrecondition(TryConnect(wrong_cluster, b_->node.endpoint)));
  EXPECT_TRUE(b_->said.empty());
  EXPECT_TRUE(wrong_secret.said.empty());
  EXPECT_TRUE(TryConnect(*a_, b_->node.endpoint).ok());
}

TEST_P(FabricContractTest, NobodyThereIsUnavailable) {
  a_ = &AddPeer(1);
  Peer& silent = AddPeer(2);
  EXPECT_TRUE(absl::IsUnavailable(TryConnect(*a_, silent.node.endpoint)));
  Listen(silent);
  EXPECT_TRUE(TryConnect(*a_, silent.node.endpoint).ok());
}

// --- notifications ---

TEST_P(FabricContractTest, NotificationComesAfterBytes) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kWrite);
  for (uint8_t channel = 0; channel < 64; ++channel) {
    Fill(local.bytes().first(512), channel + 1);
    WorkRequest write = Write(local.bytes().first(512), remote.at());
    write.notify = channel % 2 == 0 ? WorkRequest::Notify::kWake : WorkRequest::Notify::kQuiet;
    write.channel = channel;
    ASSERT_TRUE(pair.from->Post(write).ok());
    bool whole = false;
    ASSERT_TRUE(RunUntil([&] {
      if (Count(*b_, Completion::Kind::kNotified) == 0) return false;
      whole = Same(local.bytes().first(512), remote.bytes().first(512));
      return true;
    }));
    EXPECT_TRUE(whole);
    const Completion completion = Next(*b_, Completion::Kind::kNotified);
    EXPECT_EQ(completion.channel, channel);
    EXPECT_EQ(completion.connection, pair.to);
    NextRequest(*a_);
  }
}

TEST_P(FabricContractTest, NotificationsMayMergeButAreNotLost) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kWrite);
  std::vector<WorkRequest> writes;
  for (uint64_t i = 0; i < 30; ++i) {
    WorkRequest write = Write(local.bytes().first(8), remote.at(i * 8), i);
    write.notify = WorkRequest::Notify::kQuiet;
    write.channel = static_cast<uint8_t>(i % 3);
    writes.push_back(write);
  }
  ASSERT_TRUE(pair.from->Post(writes).ok());
  Settle();
  size_t of_channel[3] = {};
  for (const Completion& c : b_->completions) {
    ASSERT_EQ(c.kind, Completion::Kind::kNotified);
    ASSERT_LT(c.channel, 3);
    ++of_channel[c.channel];
  }
  for (size_t count : of_channel) {
    EXPECT_GE(count, 1u);
    EXPECT_LE(count, 10u);
  }
}

// --- SEND ---

TEST_P(FabricContractTest, SendsFillPostedReceivesInOrder) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory out = MakeMemory(*a_, Access::kNone);
  Memory in = MakeMemory(*b_, Access::kNone, 1 << 16);
  uint64_t sent = 0, received = 0;
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 10; ++i) {
      const uint64_t id = sent + i;
      ASSERT_TRUE(
          pair.to->PostReceive(id, in.bytes().subspan(id % 60 * Fabric::kMaxSend, Fabric::kMaxSend)).ok());
    }
    Settle();
    for (uint64_t i = 0; i < 10; ++i, ++sent) {
      std::span<std::byte> bytes = out.bytes().first(1 + sent * 37 % Fabric::kMaxSend);
      Fill(bytes, sent);
      ASSERT_EQ(Do(*a_, pair.from, Send(bytes, sent)), CompletionStatus::kOk);
    }
    for (int i = 0; i < 10; ++i, ++received) {
      const Completion completion = Next(*b_, Completion::Kind::kReceived);
      EXPECT_EQ(completion.id, received);
      EXPECT_EQ(completion.connection, pair.to);
      ASSERT_EQ(completion.bytes, 1 + received * 37 % Fabric::kMaxSend);
      std::vector<std::byte> expected(completion.bytes);
      Fill(expected, received);
      EXPECT_TRUE(Same(expected, in.bytes().subspan(received % 60 * Fabric::kMaxSend, completion.bytes)));
    }
  }
}

TEST_P(FabricContractTest, SendWithoutReceiveFails) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory out = MakeMemory(*a_, Access::kNone);
  EXPECT_EQ(Do(*a_, pair.from, Send(out.bytes().first(8))), CompletionStatus::kReceiverNotReady);
  EXPECT_TRUE(pair.from->failed());
}

TEST_P(FabricContractTest, ReceivesAreBounded) {
  AddTwo();
  Pair pair = Connect(*a_, *b_, "", {.max_requests = 16, .max_receives = 3});
  Memory in = MakeMemory(*b_, Access::kNone);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(pair.to->PostReceive(i, in.bytes().first(64)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.to->PostReceive(3, in.bytes().first(64))));
}

}  // namespace furrow::rdma
