// The fixture. The tests: fabric_contract_data.cc, fabric_contract_peers.cc.
#include "rdma/fabric_contract.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"

namespace furrow::rdma {

void FabricContractTest::SetUp() {
  world_ = GetParam()();
  if (world_ == nullptr) GTEST_SKIP() << "this host has no device for this provider";
}

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
  absl::StatusOr<Endpoint> listening = peer.node.fabric->Listen(
      peer.node.endpoint, [&peer](const ConnectRequest& request) -> absl::StatusOr<AcceptDecision> {
        peer.said.push_back(std::string(request.private_data));
        if (!peer.refusal.ok()) return peer.refusal;
        return AcceptDecision{peer.node.queue, peer.answer};
      });
  ASSERT_TRUE(listening.ok()) << listening.status();
  peer.node.endpoint = *listening;
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
                            limits, 60 * kSecond,
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
  from.node.fabric->Connect(*from.node.queue, *from.node.loop, endpoint, "", {}, 60 * kSecond,
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

}  // namespace furrow::rdma
