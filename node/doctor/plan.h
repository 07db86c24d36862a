// Plan: the cluster that an operator means to run on this host, as the flags of `furrow doctor` say, and what
// it needs of the host.
#ifndef FURROW_NODE_DOCTOR_PLAN_H_
#define FURROW_NODE_DOCTOR_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "node/doctor/host_facts.h"

namespace furrow::node {

struct Plan {
  uint64_t nodes = 3;       // storage members of the cluster
  uint64_t nodes_here = 0;  // of them on this host; 0: all if `listen` is a loopback address, else 1
  uint64_t compute = 1;     // compute members of the cluster
  uint64_t workers = 1;     // of each member
  uint64_t memory = uint64_t{1} << 30;  // bytes, of each node
  uint64_t region_size = uint64_t{64} << 20;
  bool huge_pages = false;
  std::string fabric = "auto";  // auto, verbs, shm
  std::string listen = "127.0.0.1:0";
  std::string directory;  // empty: not asked about
  std::string memory_directory = "/dev/shm";

  uint64_t NodesHere() const;
  bool OneHost() const { return NodesHere() >= nodes; }
  std::string Host() const;  // of `listen`, without brackets
};

// InvalidArgument: one sentence.
absl::Status Validate(const Plan& plan);

// What the members on this host need of an RDMA device and of the kernel. Upper bounds.
struct Needs {
  uint64_t queue_pairs = 0;
  uint64_t completion_queues = 0;
  uint64_t memory_regions = 0;
  uint64_t requests_per_queue_pair = 0;
  uint64_t entries_per_completion_queue = 0;
  uint64_t reads_in_all = 0;
  uint64_t locked_memory = 0;  // of one process
  uint64_t descriptors = 0;    // of one process
  uint64_t mappings = 0;       // of one process
};
Needs NeedsOf(const Plan& plan);

// The GID of an address, in the kernel's way of writing (GidFacts::address). Empty: it is no address.
std::string GidOf(const std::string& host);

// Which fabric members of this plan take here, and why in half a sentence: "auto" means verbs where a device
// has the address of `listen`, else shm, which serves one host only.
struct FabricChoice {
  bool verbs = false;
  std::string why;
};
FabricChoice ChooseFabric(const HostFacts& facts, const Plan& plan);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_PLAN_H_
