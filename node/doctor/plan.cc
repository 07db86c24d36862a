#include "node/doctor/plan.h"

#include <arpa/inet.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/member_fabric.h"

namespace furrow::node {
namespace {

constexpr uint64_t kMaxNodes = 1000;
constexpr uint64_t kMaxWorkers = 256;
// rdma/fabric.h: requests of one connection under way, and receives.
constexpr uint64_t kRequests = 1024 + 64;
constexpr uint64_t kReadDepth = 16;

// An InfiniBand port's GIDs are no addresses of IP: its network interface is not in these facts, so any
// address that is not loopback may be its.
bool MayHave(const DeviceFacts& device, const std::string& gid) {
  if (!device.problem.empty() || gid.empty()) return false;
  for (const PortFacts& port : device.ports) {
    if (port.state != "ACTIVE") continue;
    if (port.link_layer == "InfiniBand") return true;
    for (const GidFacts& has : port.gids)
      if (has.address == gid) return true;
  }
  return false;
}

}  // namespace

std::string GidOf(const std::string& host) {
  unsigned char bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (inet_pton(AF_INET, host.c_str(), bytes + 12) != 1 && inet_pton(AF_INET6, host.c_str(), bytes) != 1)
    return "";
  std::vector<std::string> groups;
  for (int i = 0; i < 16; i += 2) groups.push_back(absl::StrFormat("%02x%02x", bytes[i], bytes[i + 1]));
  return absl::StrJoin(groups, ":");
}

uint64_t Plan::NodesHere() const {
  if (nodes_here > 0) return std::min(nodes_here, nodes);
  return client::IsLoopback(Host()) ? nodes : 1;
}

std::string Plan::Host() const { return client::HostOf(listen); }

absl::Status Validate(const Plan& plan) {
  const auto wrong = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (plan.nodes < 1 || plan.nodes > kMaxNodes) return wrong("--nodes must be 1 to 1000");
  if (plan.nodes_here > plan.nodes) return wrong("--nodes-here cannot be more than --nodes");
  if (plan.workers < 1 || plan.workers > kMaxWorkers) return wrong("--workers must be 1 to 256");
  if (plan.compute > kMaxNodes) return wrong("--compute must be 0 to 1000");
  if (plan.memory < (uint64_t{1} << 20)) return wrong("--memory must be 1M or more");
  if (plan.region_size < (uint64_t{1} << 20) || plan.region_size > plan.memory)
    return wrong("--region-size must be 1M or more, and no more than --memory");
  if (plan.fabric != "auto" && plan.fabric != "verbs" && plan.fabric != "shm")
    return wrong(absl::StrCat("--fabric is auto, verbs or shm, not \"", plan.fabric, "\""));
  const size_t colon = plan.listen.rfind(':');
  uint64_t port;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(plan.listen.substr(colon + 1), &port) ||
      port > 65535) {
    return wrong(absl::StrCat("--listen: \"", plan.listen, "\" is no host:port"));
  }
  if (plan.memory_directory.empty()) return wrong("--memory-dir must name a directory");
  return absl::OkStatus();
}

Needs NeedsOf(const Plan& plan) {
  // A worker opens a connection to every storage member, and every worker of every other member opens one to
  // this node; two more for leases and two for sessions with each peer.
  const uint64_t peers = plan.nodes - 1 + plan.compute;
  const uint64_t connections = peers * (2 * plan.workers + 4);
  Needs needs;
  needs.queue_pairs = plan.NodesHere() * connections;
  // A worker's connections share its two completion queues (rdma/verbs); so do those for leases.
  needs.completion_queues = plan.NodesHere() * (2 * (plan.workers + 1) + 4 * peers);
  needs.entries_per_completion_queue = 2 * peers * kRequests;
  // Regions; three rings, a head word and receives of each connection; old versions, staging and buffers of
  // each worker.
  const uint64_t regions = plan.memory / plan.region_size + 5 * connections + 16 * plan.workers;
  needs.memory_regions = plan.NodesHere() * regions;
  needs.requests_per_queue_pair = kRequests;
  needs.reads_in_all = plan.NodesHere() * connections * kReadDepth;
  needs.locked_memory = plan.memory;
  needs.descriptors = 2 * regions + 4 * connections + 256;
  needs.mappings = 2 * regions + 8 * connections + 1024;
  return needs;
}

FabricChoice ChooseFabric(const HostFacts& facts, const Plan& plan) {
  if (plan.fabric == "verbs") return {true, "--fabric verbs"};
  if (plan.fabric == "shm") return {false, "--fabric shm"};
  if (!plan.OneHost()) return {true, "the nodes are on several hosts"};
  // What a member would be told of this host's devices.
  client::MemberOptions options;
  options.listen = plan.listen;
  std::vector<client::RdmaDevice> devices;
  for (const DeviceFacts& device : facts.devices) {
    if (MayHave(device, GidOf(plan.Host()))) devices.push_back({device.name, true, {plan.Host()}});
  }
  const absl::StatusOr<client::FabricChoice> choice = client::ChooseFabric(options, devices);
  if (choice.ok() && choice->name == "verbs") return {true, choice->why};
  return {false, "all nodes are on this host"};
}

}  // namespace furrow::node
