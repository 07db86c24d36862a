// The contract suite of fabrics: the guarantees of rdma/fabric.h as tests that run unchanged against every
// provider. A provider links fabric_contract.cc into its test and instantiates:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, FabricContractTest, testing::Values(FabricWorldFactory(...)));
//
// The suite is one thread: it polls the queues itself, and the world lets time pass for everything else.
#ifndef FURROW_RDMA_FABRIC_CONTRACT_H_
#define FURROW_RDMA_FABRIC_CONTRACT_H_

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/memory_file.h"
#include "gtest/gtest.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

// Nodes of one kind of fabric.
class FabricWorld {
 public:
  struct Node {
    Fabric* fabric = nullptr;
    CompletionQueue* queue = nullptr;  // the only one of its fabric
    EventLoop* loop = nullptr;         // parks on the queue; the suite attaches nothing to it
    Endpoint endpoint;                 // where it may listen
  };
  virtual ~FabricWorld() = default;
  virtual Node AddNode(const FabricIdentity& identity) = 0;
  // Lets things happen, and asks `done` again and again, until it is true. False: it gave up after a generous
  // time.
  virtual bool RunUntil(const std::function<bool()>& done) = 0;
  // Lets everything happen that is going to happen without anybody's doing; for what must not happen.
  virtual void Settle(const std::function<void()>& poll) = 0;
  // The node's process dies as by SIGKILL; objects of its fabric stay valid and idle. False: not possible
  // here.
  virtual bool Kill(const Node& node) = 0;
  // The network loses packets: the word that a request was refused may be lost for good.
  virtual bool LosesPackets() const { return false; }
};

// Null: this host has no device for the provider, and the tests are skipped.
using FabricWorldFactory = std::function<std::unique_ptr<FabricWorld>()>;

class FabricContractTest : public testing::TestWithParam<FabricWorldFactory> {
 protected:
  // A node, with all that its queue has yielded and that no test has taken yet.
  struct Peer {
    FabricWorld::Node node;
    std::deque<Completion> completions;
    std::vector<std::unique_ptr<Connection>> connections;  // opened or accepted
    std::vector<Connection*> accepted;                     // in the order of kConnected
    std::string answer = "accepted";                       // private data of its acceptor
    absl::Status refusal;                                  // what its acceptor says, if not OK
    std::vector<std::string> said;                         // private data that its acceptor has seen
  };
  struct Memory {
    MemoryFile file;
    std::unique_ptr<MemoryRegion> region;
    std::span<std::byte> bytes() const { return file.bytes(); }
    RemoteAddress at(uint64_t offset = 0) const { return region->remote_address().Plus(offset); }
  };
  struct Pair {
    Connection* from = nullptr;  // null: it was not opened, see status
    Connection* to = nullptr;
    absl::Status status;
  };

  void SetUp() override;
  void TearDown() override;
  Peer& AddPeer(uint32_t node, std::string cluster = "contract", std::string secret = "the secret");
  // Nodes 1 and 2, listening.
  void AddTwo();
  void Listen(Peer& peer);
  Pair Connect(Peer& from, Peer& to, std::string private_data = "", ConnectionLimits limits = {});
  absl::Status TryConnect(Peer& from, const Endpoint& endpoint);
  Memory MakeMemory(Peer& peer, Access access, size_t bytes = 4096);

  // Moves what the queues yield into completions; accepted connections are taken.
  void PollAll();
  bool RunUntil(const std::function<bool()>& done);
  void Settle();
  // The next completion of a request; fails the test if none comes.
  Completion NextRequest(Peer& peer);
  Completion Next(Peer& peer, Completion::Kind kind);
  size_t Count(const Peer& peer, Completion::Kind kind) const;
  // How a request ends that the peer's side refuses: kRemoteAccess; kPeerGone if that word was lost.
  bool IsRefusal(CompletionStatus status) const {
    return status == CompletionStatus::kRemoteAccess ||
           (status == CompletionStatus::kPeerGone && world_->LosesPackets());
  }
  // Posts one request and gives the status of its completion.
  CompletionStatus Do(Peer& peer, Connection* connection, const WorkRequest& request);

  static WorkRequest Read(std::span<std::byte> local, RemoteAddress remote, uint64_t id = 1);
  static WorkRequest Write(std::span<std::byte> local, RemoteAddress remote, uint64_t id = 1);
  static WorkRequest Send(std::span<std::byte> local, uint64_t id = 1);

  std::unique_ptr<FabricWorld> world_;
  std::deque<Peer> peers_;
  Peer* a_ = nullptr;
  Peer* b_ = nullptr;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_FABRIC_CONTRACT_H_
