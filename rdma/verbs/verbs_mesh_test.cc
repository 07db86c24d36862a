#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rdma/mesh_contract.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_world.h"

namespace furrow::rdma {
namespace {

class VerbsMeshWorld final : public MeshWorld {
 public:
  std::unique_ptr<Fabric> MakeFabric(const FabricIdentity& identity) override {
    auto fabric = MakeVerbsFabric({.identity = identity, .address = VerbsTestAddress(identity.node.value())});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    FURROW_CHECK(fabric.ok());
    return *std::move(fabric);
  }
  Endpoint EndpointOf(NodeId node) override {
    return absl::StrCat(VerbsTestAddress(node.value()), ":", 30'000 + node.value());
  }
  void Kill(Fabric& fabric) override { KillVerbsFabric(fabric); }
  uint64_t rounds() const override { return static_cast<uint64_t>(VerbsTestRounds(12)); }
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Verbs, MeshContractTest,
                         testing::Values(MeshWorldFactory([]() -> std::unique_ptr<MeshWorld> {
                           if (VerbsTestAddresses().empty()) return nullptr;
                           return std::make_unique<VerbsMeshWorld>();
                         })));

}  // namespace furrow::rdma
