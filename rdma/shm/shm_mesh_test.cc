#include <memory>

#include "rdma/mesh_contract.h"
#include "rdma/shm/shm_fabric.h"
#include "rdma/shm/shm_test_world.h"

namespace furrow::rdma {
namespace {

class ShmMeshWorld final : public MeshWorld {
 public:
  std::unique_ptr<Fabric> MakeFabric(const FabricIdentity& identity) override {
    return *MakeShmFabric({.identity = identity});
  }
  Endpoint EndpointOf(NodeId node) override { return ShmEndpoint(directory_.path(), node); }
  void Kill(Fabric& fabric) override { KillShmFabric(fabric); }
  uint64_t rounds() const override { return 400; }

 private:
  SocketDirectory directory_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Shm, MeshContractTest,
                         testing::Values(MeshWorldFactory([] { return std::make_unique<ShmMeshWorld>(); })));

}  // namespace furrow::rdma
