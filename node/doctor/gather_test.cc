#include "node/doctor/gather.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/doctor/root_files.h"

namespace furrow::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GatherTest : public ::testing::Test {
 protected:
  GatherTest() {
    char name[] = "/tmp/furrow-doctor-test-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~GatherTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void WriteDevice() {
    const std::string port = "/sys/class/infiniband/mlx5_0/ports/1";
    Write("/sys/class/infiniband/mlx5_0/node_type", "1: CA");
    Write("/sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000");
    Write("/sys/class/infiniband/mlx5_0/device/numa_node", "1");
    std::filesystem::create_symlink("../../../bus/pci/drivers/mlx5_core",
                                    root_ + "/sys/class/infiniband/mlx5_0/device/driver");
    Write("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
    Write("/dev/infiniband/uverbs0", "");
    Write("/dev/infiniband/rdma_cm", "");
    Write(port + "/state", "4: ACTIVE");
    Write(port + "/phys_state", "5: LinkUp");
    Write(port + "/link_layer", "Ethernet");
    Write(port + "/rate", "100 Gb/sec (4X EDR)");
    Write(port + "/sm_lid", "0x1f");
    Write(port + "/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0000");
    Write(port + "/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001");
    Write(port + "/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0002");
    Write(port + "/gid_attrs/types/2", "IB/RoCE v1");
    Write(port + "/gid_attrs/types/10", "RoCE v2");
    Write(port + "/gid_attrs/ndevs/10", "eth2");
    Write(port + "/counters/symbol_error", "0");
    Write(port + "/hw_counters/out_of_sequence", "17");
    Write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "106");
    Write("/sys/class/net/eth2/operstate", "up");
    Write("/sys/class/net/eth2/mtu", "4200");
    for (int i = 0; i < 8; ++i) {
      Write("/sys/class/net/eth2/ecn/roce_np/enable/" + std::to_string(i), i == 3 ? "1" : "0");
      Write("/sys/class/net/eth2/ecn/roce_rp/enable/" + std::to_string(i), "0");
    }
  }

  std::string root_;
};

TEST_F(GatherTest, EmptyRootIsAHostOfWhichNothingIsKnown) {
  const HostFacts facts = GatherFiles(root_);
  EXPECT_THAT(facts.devices, IsEmpty());
  EXPECT_THAT(facts.processors, IsEmpty());
  EXPECT_EQ(facts.memory, 0u);
  EXPECT_EQ(facts.cgroup.memory, kUnlimited);
  EXPECT_FALSE(facts.connection_manager_device);
  EXPECT_FALSE(facts.container);
}

TEST_F(GatherTest, DeviceWithItsPortGidsAndCounters) {
  WriteDevice();
  const HostFacts facts = GatherFiles(root_);
  ASSERT_EQ(facts.devices.size(), 1u);
  const DeviceFacts& device = facts.devices[0];
  EXPECT_EQ(device.name, "mlx5_0");
  EXPECT_EQ(device.driver, "mlx5_core");
  EXPECT_EQ(device.transport, "InfiniBand");
  EXPECT_EQ(device.firmware, "16.35.2000");
  EXPECT_EQ(device.numa_node, 1);
  EXPECT_EQ(device.character_device, "uverbs0");
  EXPECT_EQ(device.problem, "");
  ASSERT_EQ(device.ports.size(), 1u);
  const PortFacts& port = device.ports[0];
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.physical_state, "LinkUp");
  EXPECT_EQ(port.subnet_manager_lid, 0x1fu);
  ASSERT_EQ(port.gids.size(), 2u) << "the one without an interface's half is not in use";
  EXPECT_EQ(port.gids[0].index, 2);
  EXPECT_EQ(port.gids[1].index, 10) << "sorted by number";
  EXPECT_EQ(port.gids[1].type, "RoCE v2");
  EXPECT_EQ(port.gids[1].interface, "eth2");
  EXPECT_EQ(port.counters.at("out_of_sequence"), 17u);
  EXPECT_EQ(port.counters.at("symbol_error"), 0u);
  EXPECT_EQ(port.default_tos, 106);
  EXPECT_TRUE(facts.connection_manager_device);
}

TEST_F(GatherTest, InterfaceShowsForWhichPrioritiesEcnIsOn) {
  WriteDevice();
  Write("/sys/class/net/eth0/mtu", "1500");
  const HostFacts facts = GatherFiles(root_);
  ASSERT_EQ(facts.interfaces.size(), 2u);
  EXPECT_EQ(facts.interfaces[0].mtu, 1500u);
  EXPECT_FALSE(facts.interfaces[0].ecn_receiver.has_value());
  EXPECT_EQ(facts.interfaces[1].ecn_receiver, std::vector<int>{3});
  EXPECT_EQ(facts.interfaces[1].ecn_sender, std::vector<int>{});
}

TEST_F(GatherTest, DeviceWithoutACharacterDeviceSaysSo) {
  WriteDevice();
  std::filesystem::remove(root_ + "/dev/infiniband/uverbs0");
  EXPECT_THAT(GatherFiles(root_).devices[0].problem, HasSubstr("/dev/infiniband/uverbs0: No such file"));
  std::filesystem::remove_all(root_ + "/sys/class/infiniband_verbs");
  EXPECT_THAT(GatherFiles(root_).devices[0].problem, HasSubstr("ib_uverbs"));
}

TEST_F(GatherTest, Processes) {
  Write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         8388608              unlimited            bytes     \n"
        "Max open files            1024                 524288               files     \n"
        "Max realtime priority     7                    7");
  Write("/proc/self/status", "Name:\tfurrow\nCapEff:\t0000000000804000\nCpus_allowed_list:\t0-2,8\nx:\t1");
  const HostFacts facts = GatherFiles(root_);
  EXPECT_EQ(facts.limits.locked_memory, 8388608u);
  EXPECT_EQ(facts.limits.locked_memory_hard, kUnlimited);
  EXPECT_EQ(facts.limits.descriptors, 1024u);
  EXPECT_EQ(facts.limits.descriptors_hard, 524288u);
  EXPECT_EQ(facts.limits.realtime_priority, 7u);
  EXPECT_EQ(facts.capabilities, 0x804000u);
  EXPECT_THAT(facts.processors, ElementsAre(0, 1, 2, 8));
}

TEST_F(GatherTest, Memory) {
  Write("/proc/meminfo", "MemTotal:       1024 kB\nMemAvailable:    512 kB\nSwapTotal:       0 kB");
  Write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "12");
  Write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "5");
  Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force");
  Write("/proc/sys/vm/max_map_count", "65530");
  Write("/sys/devices/system/node/node1/cpulist", "4-5");
  Write("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3");
  Write("/sys/devices/system/node/online", "0-1");
  const HostFacts facts = GatherFiles(root_);
  EXPECT_EQ(facts.memory, 1024u * 1024);
  EXPECT_EQ(facts.available_memory, 512u * 1024);
  EXPECT_EQ(facts.huge_pages, 12u);
  EXPECT_EQ(facts.free_huge_pages, 5u);
  EXPECT_EQ(facts.shmem_huge_pages, "advise");
  EXPECT_EQ(facts.max_mappings, 65530u);
  ASSERT_EQ(facts.numa.size(), 1u);
  EXPECT_EQ(facts.numa[0].node, 1);
  EXPECT_THAT(facts.numa[0].processors, ElementsAre(4, 5));
  EXPECT_EQ(facts.numa[0].free_huge_pages, 3u);
}

TEST_F(GatherTest, TightestControlGroupOfTheOnesAboveHolds) {
  Write("/proc/self/cgroup", "0::/system.slice/furrow.service");
  Write("/sys/fs/cgroup/system.slice/furrow.service/memory.max", "max");
  Write("/sys/fs/cgroup/system.slice/furrow.service/cpu.max", "400000 100000");
  Write("/sys/fs/cgroup/system.slice/furrow.service/pids.max", "100");
  Write("/sys/fs/cgroup/system.slice/memory.max", "1000000");
  Write("/sys/fs/cgroup/system.slice/memory.current", "500");
  Write("/sys/fs/cgroup/system.slice/cpu.max", "150000 100000");
  Write("/sys/fs/cgroup/system.slice/pids.max", "max");
  const CgroupFacts group = GatherFiles(root_).cgroup;
  EXPECT_EQ(group.memory, 1000000u);
  EXPECT_EQ(group.memory_used, 500u);
  EXPECT_EQ(group.processors, 1.5);
  EXPECT_EQ(group.processes, 100u);
}

TEST_F(GatherTest, ControlGroupsOfVersionOne) {
  Write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:pids:/docker/abc");
  Write("/proc/1/cgroup", "5:memory:/docker/abc");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  Write("/sys/fs/cgroup/cpu/cpu.rt_runtime_us", "0");
  Write("/sys/fs/cgroup/pids/docker/abc/pids.max", "64");
  const HostFacts facts = GatherFiles(root_);
  EXPECT_TRUE(facts.container);
  EXPECT_EQ(facts.cgroup.memory, 2000000u) << "the group's path is that of the host";
  EXPECT_EQ(facts.cgroup.processors, 0.5);
  EXPECT_EQ(facts.cgroup.realtime_runtime_us, 0);
  EXPECT_EQ(facts.cgroup.processes, 64u);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(GatherFiles(root_).cgroup.memory, kUnlimited);
}

TEST_F(GatherTest, FilesThatMakeNoSenseAreUnknown) {
  WriteDevice();
  Write("/sys/class/infiniband/mlx5_0/device/numa_node", "-1");
  Write("/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "no number");
  Write("/sys/class/infiniband/mlx5_0/ports/1/gids/2", "short");
  Write("/proc/self/cgroup", "nonsense\n\n0:");
  Write("/proc/self/status", "Cpus_allowed_list:\t3-x,7,9-8,-2");
  Write("/proc/meminfo", "MemTotal:");
  const HostFacts facts = GatherFiles(root_);
  EXPECT_EQ(facts.devices[0].numa_node, -1);
  EXPECT_EQ(facts.devices[0].ports[0].counters.count("symbol_error"), 0u);
  EXPECT_EQ(facts.devices[0].ports[0].gids.size(), 1u);
  EXPECT_THAT(facts.processors, ElementsAre(7));
  EXPECT_EQ(facts.memory, 0u);
}

TEST_F(GatherTest, PlacesAreTriedAndLeftAsTheyWere) {
  Plan plan;
  plan.directory = root_;
  plan.memory_directory = "/nowhere";
  HostFacts facts;
  TryPlaces(plan, &facts);
  EXPECT_EQ(facts.state.problem, "");
  EXPECT_GT(facts.state.bytes, 0u);
  EXPECT_THAT(facts.state.file_system, testing::Not(IsEmpty()));
  EXPECT_THAT(RootFiles(root_).List(""), IsEmpty());
  EXPECT_THAT(facts.memory_directory.problem, HasSubstr("No such file"));
  ASSERT_EQ(facts.listen.size(), 1u);
  EXPECT_EQ(facts.listen[0].problem, "");
  plan.directory = "/proc";
  TryPlaces(plan, &facts);
  EXPECT_THAT(facts.state.problem, HasSubstr("cannot make a file in it"));
}

TEST_F(GatherTest, AddressOfAnotherHostIsSaid) {
  Plan plan;
  plan.listen = "192.0.2.1:0";
  HostFacts facts;
  TryPlaces(plan, &facts);
  EXPECT_THAT(facts.listen[0].problem, HasSubstr("Cannot assign"));
}

}  // namespace
}  // namespace furrow::node
