// The contract suite of the ring mesh: the same tests over every provider whose nodes live in real time.
// A provider adds ${FURROW_MESH_CONTRACT} to its test's sources and instantiates MeshContractTest, as for
// rdma/fabric_contract.h. Nodes of several workers live in one process.
#ifndef FURROW_RDMA_MESH_CONTRACT_H_
#define FURROW_RDMA_MESH_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "rdma/fabric.h"
#include "rdma/ring/mesh.h"
#include "rdma/ring/mesh_test_worker.h"

namespace furrow::rdma {

class MeshWorld {
 public:
  virtual ~MeshWorld() = default;
  virtual std::unique_ptr<Fabric> MakeFabric(const FabricIdentity& identity) = 0;
  // The same for each life of a node.
  virtual Endpoint EndpointOf(NodeId node) = 0;
  // The fabric's process dies as by SIGKILL.
  virtual void Kill(Fabric& fabric) = 0;
  // Of nodes that come and go.
  virtual uint64_t rounds() const = 0;
};
// Null: this host has no device for the provider, and the tests are skipped.
using MeshWorldFactory = std::function<std::unique_ptr<MeshWorld>()>;

class MeshContractTest : public testing::TestWithParam<MeshWorldFactory> {
 protected:
  struct Node {
    Node(MeshWorld& world, uint32_t id, int worker_count, uint64_t incarnation, const MeshOptions& options);
    MeshTestWorker& operator[](size_t i) { return *workers[i]; }

    NodeId node;
    Endpoint endpoint;
    std::unique_ptr<Fabric> fabric;
    std::vector<std::unique_ptr<MeshTestWorker>> workers;
  };
  void SetUp() override;
  Node& AddNode(uint32_t id, int workers, uint64_t incarnation = 1, const MeshOptions& options = SmallMesh());
  bool RunUntil(const std::function<bool()>& done);
  absl::Status Connect(MeshTestWorker& worker, NodeId node, const Endpoint& endpoint);
  void ConnectAll(Node& from, Node& to);

  std::unique_ptr<MeshWorld> world_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_MESH_CONTRACT_H_
