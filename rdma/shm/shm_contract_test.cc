#include "rdma/fabric_contract.h"
#include "rdma/shm/shm_test_world.h"

namespace furrow::rdma {

INSTANTIATE_TEST_SUITE_P(Shm, FabricContractTest, testing::Values(FabricWorldFactory([] {
                           return std::make_unique<ShmTestWorld>();
                         })));

}  // namespace furrow::rdma
