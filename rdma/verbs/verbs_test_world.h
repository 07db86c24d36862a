// Nodes of the verbs fabric inside one process, for tests. They use the addresses of this host's RDMA
// devices, one after the other; FURROW_VERBS_ADDRESSES (separated by commas) chooses others.
// FURROW_VERBS_LOSS=1 says that the network loses packets.
#ifndef FURROW_RDMA_VERBS_VERBS_TEST_WORLD_H_
#define FURROW_RDMA_VERBS_VERBS_TEST_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "rdma/fabric_contract.h"
#include "rdma/verbs/verbs_fabric.h"

namespace furrow::rdma {

// Empty: there is no RDMA device here.
const std::vector<std::string>& VerbsTestAddresses();
// The address of the i-th node.
std::string VerbsTestAddress(size_t i);
// A new one each time: "ADDRESS:PORT" of the i-th node.
Endpoint VerbsTestEndpoint(size_t i);
// FURROW_VERBS_ROUNDS times as many rounds of tests that repeat something; 1 without it.
int VerbsTestRounds(int rounds);

class VerbsTestWorld final : public FabricWorld {
 public:
  Node AddNode(const FabricIdentity& identity) override;
  bool RunUntil(const std::function<bool()>& done) override;
  void Settle(const std::function<void()>& poll) override;
  bool Kill(const Node& node) override;
  // Told by FURROW_VERBS_LOSS=1.
  bool LosesPackets() const override;
  Fabric& fabric(size_t i) { return *members_[i]->fabric; }

 private:
  struct Member {
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<CompletionQueue> queue;
    std::unique_ptr<EventLoop> loop;
  };
  void RunLoops();
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_TEST_WORLD_H_
