#include "rdma/fabric_contract.h"
#include "rdma/verbs/verbs_test_world.h"

namespace furrow::rdma {

INSTANTIATE_TEST_SUITE_P(Verbs, FabricContractTest,
                         testing::Values(FabricWorldFactory([]() -> std::unique_ptr<FabricWorld> {
                           if (VerbsTestAddresses().empty()) return nullptr;
                           return std::make_unique<VerbsTestWorld>();
                         })));

}  // namespace furrow::rdma
