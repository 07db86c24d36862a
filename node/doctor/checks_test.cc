#include "node/doctor/checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/doctor/doctor_test_util.h"

namespace furrow::node {
namespace {

using ::testing::HasSubstr;

class ChecksTest : public ::testing::Test {
 protected:
  // The findings of `level`, one a line: "check: found -> advice".
  std::string All(Level level) {
    std::string text;
    for (const Finding& f : Examine(facts_, plan_)) {
      if (f.level != level) continue;
      text += f.check + ": " + f.found + (f.advice.empty() ? "" : " -> " + f.advice) + "\n";
    }
    return text;
  }
  std::string Errors() { return All(Level::kError); }
  std::string Warnings() { return All(Level::kWarning); }
  std::string Oks() { return All(Level::kOk); }
  DeviceFacts& device() { return facts_.devices[0]; }
  PortFacts& port() { return facts_.devices[0].ports[0]; }
  void PlanOneHost() {
    plan_ = Plan{};
    plan_.memory = uint64_t{1} << 30;
  }
  void TakeDevicesAway() {
    facts_.devices.clear();
    facts_.modules.clear();
    facts_.connection_manager_device = facts_.infiniband_directory = false;
  }

  HostFacts facts_ = GoodHost();
  Plan plan_ = PlanOfThreeHosts();
};

TEST_F(ChecksTest, GoodHostHasNothingToDo) {
  EXPECT_EQ(Errors(), "");
  EXPECT_EQ(Warnings(), "");
  EXPECT_THAT(Oks(), HasSubstr("rdma.gids: mlx5_0 port 1: GID 3 is 10.0.0.1 (RoCE v2, eth2): what --listen"));
}

TEST_F(ChecksTest, OneHostNeedsNoDevice) {
  TakeDevicesAway();
  PlanOneHost();
  EXPECT_EQ(Errors(), "");
  EXPECT_EQ(Warnings(), "");
  EXPECT_THAT(Oks(), HasSubstr("shared memory (shm)"));
}

TEST_F(ChecksTest, AutoTakesVerbsWhereADeviceHasTheAddress) {
  plan_.nodes_here = plan_.nodes;
  EXPECT_TRUE(ChooseFabric(facts_, plan_).verbs);
  EXPECT_THAT(ChooseFabric(facts_, plan_).why, HasSubstr("the RDMA device mlx5_0 has 10.0.0.1"));
  plan_.listen = "10.0.0.9:1";
  EXPECT_FALSE(ChooseFabric(facts_, plan_).verbs);
  plan_.nodes_here = 1;
  EXPECT_TRUE(ChooseFabric(facts_, plan_).verbs) << "shared memory does not reach other hosts";
  plan_.fabric = "shm";
  EXPECT_FALSE(ChooseFabric(facts_, plan_).verbs);
}

TEST_F(ChecksTest, SharedMemoryDoesNotReachOtherHosts) {
  plan_.fabric = "shm";
  EXPECT_THAT(
      Errors(),
      HasSubstr("shared memory (--fabric shm) reaches no other host, and the plan has 2 nodes on others"));
}

TEST_F(ChecksTest, SeveralHostsNeedADevice) {
  TakeDevicesAway();
  EXPECT_THAT(Errors(), HasSubstr("rdma.devices: there is no RDMA device, and this plan needs one"));
  EXPECT_THAT(Errors(), HasSubstr("the kernel module ib_uverbs is not loaded -> modprobe ib_uverbs"));
  facts_.container = true;
  EXPECT_THAT(Errors(), HasSubstr("--device=/dev/infiniband"));
}

TEST_F(ChecksTest, DeviceThatMayNotBeOpenedIsNamedWithTheReason) {
  device().problem = "/dev/infiniband/uverbs0: Permission denied";
  EXPECT_THAT(Errors(), HasSubstr("mlx5_0: mlx5_core, InfiniBand, firmware 16.35; it cannot be used: /dev"));
  facts_.devices.push_back(GoodHost().devices[0]);
  facts_.devices[1].name = "mlx5_1";
  EXPECT_EQ(Errors(), "") << "another one can be used";
  EXPECT_THAT(Warnings(), HasSubstr("mlx5_0"));
}

TEST_F(ChecksTest, SoftwareAndIwarpDevicesAreSaid) {
  device().driver = "";
  EXPECT_THAT(Warnings(), HasSubstr("a software device is for tests"));
  device().driver = "iw_cxgb4";
  device().transport = "iWARP";
  EXPECT_THAT(Warnings(),
              HasSubstr("iw_cxgb4, iWARP, firmware 16.35 -> Furrow has run on no iWARP card yet"));
  // Its GIDs are no addresses.
  for (PortFacts& port : device().ports) port.gids.clear();
  EXPECT_EQ(Errors(), "");
}

TEST_F(ChecksTest, ConnectionManagerMustBeThere) {
  facts_.connection_manager_device = false;
  EXPECT_THAT(Errors(), HasSubstr("/dev/infiniband/rdma_cm cannot be opened"));
}

TEST_F(ChecksTest, LinkThatIsDown) {
  port().state = "DOWN";
  EXPECT_THAT(Errors(), HasSubstr("rdma.ports: mlx5_0 port 1: DOWN"));
  port().state = "INIT";
  port().link_layer = "InfiniBand";
  EXPECT_THAT(Errors(), HasSubstr("opensm"));
}

TEST_F(ChecksTest, AddressThatNoDeviceHasIsAnErrorThatNamesTheOthers) {
  plan_.listen = "10.0.0.2:4501";
  EXPECT_THAT(Errors(),
              HasSubstr("no RDMA device has the address of --listen, 10.0.0.2 -> listen at one of"));
  EXPECT_THAT(Errors(), HasSubstr("10.0.0.1"));
  port().link_layer = "InfiniBand";
  EXPECT_EQ(Errors(), "");
}

TEST_F(ChecksTest, GidOfRoceVersionOneIsSaid) {
  port().gids[1].type = "IB/RoCE v1";
  EXPECT_THAT(Warnings(), HasSubstr("10.0.0.1 has a GID of RoCE v1 only"));
}

TEST_F(ChecksTest, GidOfAnIpv6Address) {
  port().gids[1].address = "fd00:0000:0000:0000:0000:0000:0000:0007";
  plan_.listen = "[fd00::7]:4501";
  EXPECT_EQ(Errors(), "");
  EXPECT_THAT(Oks(), HasSubstr("GID 3 is fd00::7"));
}

TEST_F(ChecksTest, SmallPacketsAreSaid) {
  port().active_mtu = 1024;
  EXPECT_THAT(Warnings(), HasSubstr("packets carry up to 1024 bytes, the device could 4096 -> set the MTU"));
}

TEST_F(ChecksTest, PlanLargerThanTheDevice) {
  device().limits->queue_pairs = 10;
  device().limits->memory_regions = 100;
  device().limits->requests_per_queue_pair = 512;
  EXPECT_THAT(Errors(), HasSubstr("mlx5_0: the plan needs 18 queue pairs of 10"));
  EXPECT_THAT(Errors(), HasSubstr("memory regions of 100 -> plan larger regions"));
  EXPECT_THAT(Errors(), HasSubstr("1088 requests per queue pair of 512"));
  plan_.nodes = 30;
  device().limits->entries_per_completion_queue = 32767;
  EXPECT_THAT(Errors(), HasSubstr("65280 entries of a completion queue of 32767 -> plan fewer members"));
  plan_.nodes = 3;
  device().limits = GoodHost().devices[0].limits;
  device().limits->reads_in_all = 100;
  EXPECT_THAT(Warnings(), HasSubstr("100 READs may be under way in all"));
}

TEST_F(ChecksTest, WhatIsAskedOfADeviceGrowsWithWorkersAndMembers) {
  const Needs small = NeedsOf(plan_);
  plan_.workers = 4;
  plan_.nodes = 6;
  const Needs large = NeedsOf(plan_);
  // 5 peers and a compute member; 4 connections each way, 2 for leases, 2 for sessions.
  EXPECT_EQ(large.queue_pairs, 6u * 12);
  EXPECT_GT(large.memory_regions, small.memory_regions);
  EXPECT_EQ(large.locked_memory, plan_.memory);
}

TEST_F(ChecksTest, FlowControlAndEcn) {
  facts_.interfaces[0].flow_control = std::vector<int>{};
  facts_.interfaces[0].ecn_sender = std::vector<int>{};
  EXPECT_THAT(Warnings(), HasSubstr("PFC is on for no priority"));
  EXPECT_THAT(Warnings(), HasSubstr("for priority 3 as receiver and none as sender -> write 1"));
  facts_.interfaces[0].flow_control.reset();
  facts_.interfaces[0].ecn_sender.reset();
  EXPECT_THAT(Warnings(),
              HasSubstr("whether PFC is on cannot be read here -> look with \"dcb pfc show dev eth2"));
  EXPECT_THAT(Warnings(), HasSubstr("whether ECN (DCQCN) is on cannot be read here"));
  port().link_layer = "InfiniBand";
  EXPECT_EQ(Warnings(), "");
}

TEST_F(ChecksTest, LossesAreShownAndEcnThatNeverMarksIsNamed) {
  port().counters["out_of_sequence"] = 7;
  EXPECT_THAT(Warnings(), HasSubstr("out_of_sequence 7 -> run this again"));
  port().counters["np_cnp_sent"] = 0;
  EXPECT_THAT(Warnings(), HasSubstr("no packet was ever marked by ECN -> ECN is not at work"));
  port().counters.clear();
  EXPECT_THAT(Warnings(), HasSubstr("counters cannot be read here"));
}

TEST_F(ChecksTest, DeviceOfAnotherSocket) {
  facts_.processors = {2, 3};
  EXPECT_THAT(Warnings(), HasSubstr("numactl --cpunodebind=0"));
  device().numa_node = -1;
  EXPECT_THAT(Warnings(), HasSubstr("does not say to which NUMA node"));
}

TEST_F(ChecksTest, LockedMemoryNamesLimitNeedAndTheLineToWrite) {
  facts_.limits.locked_memory = 8 << 20;
  EXPECT_THAT(Errors(), HasSubstr("a process may lock 8 MB (ulimit -l), and a node registers 8 GB"));
  EXPECT_THAT(Errors(), HasSubstr("LimitMEMLOCK=infinity"));
  facts_.capabilities = 1 << 14;
  EXPECT_EQ(Errors(), "");
  facts_.capabilities = 0;
  PlanOneHost();
  EXPECT_EQ(Errors(), "") << "shared memory locks none";
}

TEST_F(ChecksTest, MemoryThatIsNotThere) {
  plan_.memory = uint64_t{62} << 30;
  facts_.memory_directory.free_bytes = uint64_t{70} << 30;
  EXPECT_EQ(Errors(), "");
  EXPECT_THAT(Warnings(), HasSubstr("memory.size: 1 node of 62 GB; this host has 64 GB, 60 GB of it free"));
  plan_.memory = uint64_t{65} << 30;
  EXPECT_THAT(Errors(), HasSubstr("give --memory less"));
}

TEST_F(ChecksTest, SwapMattersWhereMemoryIsNotLocked) {
  facts_.swap = 1 << 30;
  EXPECT_EQ(Warnings(), "");
  PlanOneHost();
  EXPECT_THAT(Warnings(), HasSubstr("swapoff"));
}

TEST_F(ChecksTest, MemoryDirectoryTooSmallOrNoMemory) {
  facts_.memory_directory.free_bytes = 64 << 20;
  EXPECT_THAT(Errors(), HasSubstr("mount -o remount,size=8256M /dev/shm"));
  facts_.container = true;
  EXPECT_THAT(Errors(), HasSubstr("--shm-size=8256m"));
  facts_.memory_directory.file_system = "ext4";
  EXPECT_THAT(Errors(), HasSubstr("must lie in memory"));
  facts_.memory_directory.problem = "No such file or directory";
  EXPECT_THAT(Errors(), HasSubstr("/dev/shm: No such file or directory"));
}

TEST_F(ChecksTest, HugePages) {
  plan_.huge_pages = true;
  EXPECT_EQ(Warnings(), "");
  facts_.shmem_huge_pages = "never";
  EXPECT_THAT(Warnings(), HasSubstr("echo advise >"));
  facts_.memory_directory.file_system = "hugetlbfs";
  facts_.huge_pages = 100;
  facts_.free_huge_pages = 90;
  EXPECT_THAT(Errors(), HasSubstr("90 free pages of 2 MB (NUMA node 0: 0, NUMA node 1: 0), 4096 needed"));
  EXPECT_THAT(Errors(), HasSubstr("vm.nr_hugepages=4106"));
}

TEST_F(ChecksTest, MappingsAndDescriptors) {
  facts_.max_mappings = 100;
  facts_.limits.descriptors_hard = 100;
  EXPECT_THAT(Errors(), HasSubstr("sysctl -w vm.max_map_count="));
  EXPECT_THAT(Errors(), HasSubstr("LimitNOFILE="));
}

TEST_F(ChecksTest, ProcessorsByAffinityAndByControlGroup) {
  facts_.cgroup.processors = 1.5;
  EXPECT_THAT(Warnings(),
              HasSubstr("4 processors, 1.5 by the limit of its control group; the plan has 1 workers"));
  facts_.cgroup.processors = 0;
  plan_.workers = 4;
  EXPECT_THAT(Warnings(), HasSubstr("fewer workers"));
  facts_.governor = "powersave";
  EXPECT_THAT(Warnings(), HasSubstr("cpupower"));
}

TEST_F(ChecksTest, RealtimeRights) {
  facts_.limits.realtime_priority = 0;
  EXPECT_THAT(Warnings(), HasSubstr("LimitRTPRIO"));
  facts_.capabilities = 1 << 23;
  EXPECT_EQ(Warnings(), "");
  facts_.cgroup.realtime_runtime_us = 0;
  EXPECT_THAT(Warnings(), HasSubstr("cpu.rt_runtime_us is 0"));
}

TEST_F(ChecksTest, SlowClock) {
  facts_.clock_source = "hpet";
  EXPECT_THAT(Warnings(), HasSubstr("time comes from hpet"));
  facts_.clock_source = "";
  EXPECT_THAT(Warnings(), HasSubstr("cannot be read"));
}

TEST_F(ChecksTest, ControlGroupTooSmall) {
  facts_.cgroup.memory = uint64_t{8} << 30;
  facts_.cgroup.memory_used = 1 << 20;
  facts_.cgroup.processes = 32;
  EXPECT_THAT(Errors(), HasSubstr("may have 8 GB of memory and uses 1 MB; the plan takes 8 GB here"));
  EXPECT_THAT(Errors(), HasSubstr("may have 32 threads, the plan about 65 -> raise"));
}

TEST_F(ChecksTest, StateDirectory) {
  facts_.state.direct_io = false;
  EXPECT_THAT(Warnings(), HasSubstr("refuses O_DIRECT"));
  facts_.state.free_bytes = uint64_t{1} << 30;
  EXPECT_THAT(Warnings(), HasSubstr("about twice --memory"));
  facts_.state.file_system = "tmpfs";
  EXPECT_THAT(Warnings(), HasSubstr("a local disk"));
  facts_.state.free_bytes = 1 << 20;
  EXPECT_THAT(Errors(), HasSubstr("free some"));
  facts_.state.problem = "No such file or directory";
  EXPECT_THAT(Errors(), HasSubstr("mkdir -p"));
}

TEST_F(ChecksTest, PortThatIsTaken) {
  facts_.listen[0].problem = "Address already in use";
  EXPECT_THAT(Errors(), HasSubstr("10.0.0.1:4501: Address already in use -> give --listen"));
}

TEST_F(ChecksTest, WarningsAndErrorsSayWhatToDo) {
  facts_ = HostFacts{};
  facts_.listen = {{"10.0.0.1:4501", "Cannot assign requested address"}};
  for (const Finding& f : Examine(facts_, plan_))
    EXPECT_EQ(f.advice.empty(), f.level == Level::kOk) << f.found;
  EXPECT_NE(Errors(), "");
}

TEST_F(ChecksTest, PlansThatMakeNoSense) {
  const auto message = [](Plan plan) { return std::string(Validate(plan).message()); };
  EXPECT_EQ(message(plan_), "");
  Plan plan = plan_;
  plan.nodes_here = 4;
  EXPECT_THAT(message(plan), HasSubstr("--nodes-here"));
  plan = plan_;
  plan.fabric = "tcp";
  EXPECT_THAT(message(plan), HasSubstr("auto, verbs or shm"));
  plan = plan_;
  plan.listen = "10.0.0.1";
  EXPECT_THAT(message(plan), HasSubstr("no host:port"));
  plan = plan_;
  plan.region_size = plan.memory * 2;
  EXPECT_THAT(message(plan), HasSubstr("--region-size"));
  plan = plan_;
  plan.workers = 0;
  EXPECT_THAT(message(plan), HasSubstr("--workers"));
}

}  // namespace
}  // namespace furrow::node
