#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "node/doctor/checks.h"

namespace furrow::node {
namespace {

constexpr char kContainerAdvice[] =
    "start the container with --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 "
    "--network=host (Kubernetes: an RDMA device plug-in, and IPC_LOCK in securityContext.capabilities)";

bool Usable(const DeviceFacts& device) { return device.problem.empty(); }

bool AnyUsable(const HostFacts& facts) {
  return std::any_of(facts.devices.begin(), facts.devices.end(), Usable);
}

std::string PortName(const DeviceFacts& device, const PortFacts& port) {
  return absl::StrCat(device.name, " port ", port.number);
}

// The address of a GID, as people write it.
std::string AddressOf(const std::string& gid) {
  unsigned char bytes[16];
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, gid.c_str(), bytes) != 1) return gid;
  const bool mapped = absl::StartsWith(gid, "0000:0000:0000:0000:0000:ffff:");
  inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? bytes + 12 : bytes, text, sizeof(text));
  return text;
}

}  // namespace

void CheckDevices(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const FabricChoice fabric = ChooseFabric(facts, plan);
  if (!fabric.verbs && !plan.OneHost()) {
    findings->Error(absl::StrCat("shared memory (--fabric shm) reaches no other host, and the plan has ",
                                 plan.nodes - plan.NodesHere(), " nodes on others"),
                    "--fabric verbs, or all nodes on this host");
  }
  if (facts.devices.empty() && !fabric.verbs) {
    findings->Ok(
        "there is no RDMA device. Members on this host use shared memory (shm), and a cluster on one host "
        "needs "
        "nothing else");
    return;
  }
  if (facts.devices.empty()) {
    findings->Error(
        absl::StrCat("there is no RDMA device, and this plan needs one (", fabric.why, ")"),
        facts.container
            ? kContainerAdvice
            : "install the card's driver (lspci and dmesg show whether the kernel sees the card), "
              "or plan for one host: --nodes-here equal to --nodes");
    return;
  }
  const bool fatal = fabric.verbs && !AnyUsable(facts);
  for (const DeviceFacts& device : facts.devices) {
    const std::string what =
        absl::StrCat(device.name, ": ", device.driver.empty() ? "software" : device.driver, ", ",
                     device.transport, device.firmware.empty() ? "" : ", firmware ", device.firmware);
    const auto cannot = [&](const std::string& why, const std::string& advice) {
      const std::string found = absl::StrCat(what, "; it cannot be used: ", why);
      fatal ? findings->Error(found, advice) : findings->Warning(found, advice);
    };
    if (!Usable(device)) {
      cannot(device.problem, facts.container
                                 ? kContainerAdvice
                                 : "load the modules ib_uverbs and rdma_ucm, and let the user of Furrow "
                                   "read and write /dev/infiniband/* (a udev rule, or the group rdma)");
    } else if (device.driver.empty() && fabric.verbs) {
      findings->Warning(what, "a software device is for tests: it takes the processor for every packet");
    } else if (device.transport == "iWARP" && fabric.verbs) {
      findings->Warning(what,
                        "Furrow has run on no iWARP card yet: read what differs in docs/rdma.md, and try");
    } else {
      findings->Ok(what);
    }
  }
}

void CheckPorts(const HostFacts& facts, const Plan& plan, Findings* findings) {
  bool active = false;
  for (const DeviceFacts& device : facts.devices)
    for (const PortFacts& port : device.ports) active |= Usable(device) && port.state == "ACTIVE";
  const bool fatal = ChooseFabric(facts, plan).verbs && !active;
  for (const DeviceFacts& device : facts.devices) {
    for (const PortFacts& port : device.ports) {
      const std::string found = absl::StrCat(PortName(device, port), ": ", port.state, ", ",
                                             port.physical_state, ", ", port.link_layer, ", ", port.rate);
      if (port.state == "ACTIVE") {
        findings->Ok(found);
        continue;
      }
      const bool no_manager = port.link_layer == "InfiniBand" && port.state == "INIT";
      const std::string advice =
          no_manager ? "no subnet manager has set the port up: start opensm on a host or in the switch"
                     : "connect the cable, or set the network interface of the device up (ip link set IF up)";
      fatal ? findings->Error(found, advice) : findings->Warning(found, advice);
    }
  }
}

void CheckGids(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const std::string wanted = GidOf(plan.Host());
  std::vector<std::string> others;
  bool found = false, version1 = false, infiniband = false, iwarp = false;
  for (const DeviceFacts& device : facts.devices) {
    for (const PortFacts& port : device.ports) {
      infiniband |= port.link_layer == "InfiniBand" && port.state == "ACTIVE";
      iwarp |= device.transport == "iWARP" && port.state == "ACTIVE";
      for (const GidFacts& gid : port.gids) {
        const std::string line =
            absl::StrCat(PortName(device, port), ": GID ", gid.index, " is ", AddressOf(gid.address), " (",
                         gid.type, ", ", gid.interface, ")");
        const bool version2 = gid.type == "RoCE v2";
        if (gid.address == wanted && version2) {
          found = true;
          findings->Ok(line + ": what --listen chooses");
          continue;
        }
        version1 |= gid.address == wanted;
        findings->Ok(line);
        if (version2) others.push_back(AddressOf(gid.address));
      }
    }
  }
  if (found || facts.devices.empty() || !ChooseFabric(facts, plan).verbs) return;
  if (infiniband) {
    findings->Ok(absl::StrCat("an InfiniBand port needs no GID for ", plan.Host(),
                              ": the address must be that of its IPoIB interface"));
  } else if (iwarp) {
    findings->Ok(absl::StrCat("an iWARP port needs no GID for ", plan.Host(),
                              ": the address must be that of its network interface"));
  } else if (version1) {
    findings->Warning(absl::StrCat(plan.Host(), " has a GID of RoCE v1 only"),
                      "packets of v1 pass no router, and peers must use the same version: enable RoCE v2 "
                      "(docs/rdma.md)");
  } else {
    findings->Error(
        absl::StrCat("no RDMA device has the address of --listen, ", plan.Host()),
        others.empty() ? "give the network interface of the device an address (ip addr add), and listen there"
                       : absl::StrCat("listen at one of ", absl::StrJoin(others, ", ")));
  }
}

void CheckMtu(const HostFacts& facts, const Plan& plan, Findings* findings) {
  for (const DeviceFacts& device : facts.devices) {
    for (const PortFacts& port : device.ports) {
      if (port.active_mtu == 0 || port.state != "ACTIVE") continue;
      const std::string found = absl::StrCat(PortName(device, port), ": packets carry up to ",
                                             port.active_mtu, " bytes, the device could ", port.max_mtu);
      if (port.active_mtu >= std::min<uint32_t>(port.max_mtu, 4096)) {
        findings->Ok(found);
      } else if (port.link_layer == "Ethernet") {
        findings->Warning(found,
                          "set the MTU of the network interface to 4200 or more on every host and switch");
      } else {
        findings->Warning(found, "let the subnet manager allow 4096 (opensm: mtu=5 in partitions.conf)");
      }
    }
  }
}

void CheckCapacity(const HostFacts& facts, const Plan& plan, Findings* findings) {
  if (!ChooseFabric(facts, plan).verbs) return;
  const Needs needs = NeedsOf(plan);
  for (const DeviceFacts& device : facts.devices) {
    if (!device.limits.has_value()) continue;
    const DeviceLimits& has = *device.limits;
    std::vector<std::string> enough;
    const auto compare = [&](const char* what, uint64_t need, uint64_t limit, const char* advice) {
      const std::string words = absl::StrCat(need, " ", what, " of ", limit);
      if (need <= limit) {
        enough.push_back(words);
      } else {
        findings->Error(absl::StrCat(device.name, ": the plan needs ", words), advice);
      }
    };
    constexpr char kFewer[] = "plan fewer workers or nodes per device, or set the driver's limits higher";
    compare("queue pairs", needs.queue_pairs, has.queue_pairs, kFewer);
    compare("completion queues", needs.completion_queues, has.completion_queues, kFewer);
    compare("entries of a completion queue", needs.entries_per_completion_queue,
            has.entries_per_completion_queue, "plan fewer members: the connections of a worker share one");
    compare("memory regions", needs.memory_regions, has.memory_regions,
            "plan larger regions (--region-size) or fewer workers");
    compare("requests per queue pair", needs.requests_per_queue_pair, has.requests_per_queue_pair,
            "this device is too small for Furrow");
    compare("bytes per memory region", plan.region_size, has.memory_region_bytes,
            "plan smaller regions (--region-size)");
    if (!enough.empty()) findings->Ok(absl::StrCat(device.name, ": ", absl::StrJoin(enough, ", ")));
    if (needs.reads_in_all > has.reads_in_all) {
      findings->Warning(
          absl::StrCat(device.name, ": ", has.reads_in_all, " READs may be under way in all, and ",
                       needs.queue_pairs, " queue pairs of the full depth would have ", needs.reads_in_all),
          "nothing fails, but READs queue up at the peers: plan fewer workers per device");
    }
  }
}

void CheckDeviceNuma(const HostFacts& facts, const Plan& plan, Findings* findings) {
  if (facts.numa.size() < 2) return;
  for (const DeviceFacts& device : facts.devices) {
    if (device.driver.empty()) continue;
    const auto at = std::find_if(facts.numa.begin(), facts.numa.end(),
                                 [&](const NumaFacts& n) { return n.node == device.numa_node; });
    if (at == facts.numa.end()) {
      findings->Warning(absl::StrCat(device.name, ": the host does not say to which NUMA node it belongs"),
                        "look at the board's manual, and bind Furrow to the processors of that socket");
      continue;
    }
    const bool near = std::any_of(facts.processors.begin(), facts.processors.end(), [&](int cpu) {
      return std::find(at->processors.begin(), at->processors.end(), cpu) != at->processors.end();
    });
    const std::string found = absl::StrCat(device.name, " belongs to NUMA node ", device.numa_node);
    if (near) {
      findings->Ok(found);
    } else {
      findings->Warning(found + ", none of whose processors this process may use",
                        absl::StrCat("start Furrow with numactl --cpunodebind=", device.numa_node,
                                     " --membind=", device.numa_node, ", if that node has memory enough"));
    }
  }
}

}  // namespace furrow::node
