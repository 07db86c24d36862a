// A host on which everything is as it should be, for tests that spoil one thing.
#ifndef FURROW_NODE_DOCTOR_DOCTOR_TEST_UTIL_H_
#define FURROW_NODE_DOCTOR_DOCTOR_TEST_UTIL_H_

#include <string>
#include <utility>
#include <vector>

#include "node/doctor/checks.h"

namespace furrow::node {

inline Plan PlanOfThreeHosts() {
  Plan plan;
  plan.listen = "10.0.0.1:4501";
  plan.directory = "/srv/furrow";
  plan.memory = uint64_t{8} << 30;
  return plan;
}

inline HostFacts GoodHost() {
  HostFacts f;
  f.name = "db1";
  f.kernel = "6.1.0";
  PortFacts port{.number = 1,
                 .state = "ACTIVE",
                 .physical_state = "LinkUp",
                 .link_layer = "Ethernet",
                 .rate = "100 Gb/sec",
                 .active_mtu = 4096,
                 .max_mtu = 4096};
  port.gids = {{0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "eth2"},
               {3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth2"}};
  port.counters = {{"out_of_sequence", 0}, {"np_cnp_sent", 12}};
  DeviceFacts device{.name = "mlx5_0",
                     .driver = "mlx5_core",
                     .transport = "InfiniBand",
                     .firmware = "16.35",
                     .numa_node = 0,
                     .character_device = "uverbs0",
                     .problem = ""};
  device.limits = DeviceLimits{262144, 32768, 1 << 24, 1 << 22, 1 << 24, uint64_t{1} << 63, 16, 4194304};
  device.ports.push_back(std::move(port));
  f.devices.push_back(std::move(device));
  f.connection_manager_device = f.infiniband_directory = true;
  f.interfaces = {{"eth2", "up", 4200, std::vector<int>{3}, std::vector<int>{3}, std::vector<int>{3}}};
  f.modules = {"ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "mlx5_ib"};
  f.processors = {0, 1, 2, 3};
  f.clock_source = "tsc";
  f.numa = {{0, {0, 1}, 0, 0}, {1, {2, 3}, 0, 0}};
  f.memory = uint64_t{64} << 30;
  f.available_memory = uint64_t{60} << 30;
  f.shmem_huge_pages = "advise";
  f.max_mappings = 65530;
  f.limits = {.locked_memory = kUnlimited,
              .locked_memory_hard = kUnlimited,
              .descriptors = 1024,
              .descriptors_hard = 1048576,
              .realtime_priority = 50};
  f.state = {"/srv/furrow", "", "ext4", uint64_t{1} << 40, uint64_t{1} << 39, true};
  f.memory_directory = {"/dev/shm", "", "tmpfs", uint64_t{32} << 30, uint64_t{32} << 30, false};
  f.listen = {{"10.0.0.1:4501", ""}};
  return f;
}

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_DOCTOR_TEST_UTIL_H_
