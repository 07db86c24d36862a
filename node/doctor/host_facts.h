// HostFacts: what the doctor knows of a host. Gathered once (gather_*.h), then judged by pure functions
// (checks.h), so that a test can make up any host. What could not be read is unset or empty, never guessed.
#ifndef FURROW_NODE_DOCTOR_HOST_FACTS_H_
#define FURROW_NODE_DOCTOR_HOST_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace furrow::node {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct GidFacts {
  int index = 0;
  std::string address{};    // as the kernel writes it: eight groups of four hexadecimal digits
  std::string type{};       // "IB/RoCE v1", "RoCE v2"
  std::string interface{};  // network interface it belongs to
};

struct PortFacts {
  int number = 1;
  std::string state{};           // "ACTIVE", "DOWN", "INIT"
  std::string physical_state{};  // "LinkUp", "Disabled", "Polling"
  std::string link_layer{};      // "Ethernet", "InfiniBand"
  std::string rate{};            // "100 Gb/sec (4X EDR)"
  uint32_t subnet_manager_lid = 0;
  uint32_t active_mtu = 0;  // bytes; 0: unknown
  uint32_t max_mtu = 0;
  std::vector<GidFacts> gids{};                // those in use
  std::map<std::string, uint64_t> counters{};  // of counters/ and hw_counters/
  std::optional<int> default_tos{};            // type of service of rdma_cm's connections, from configfs
};

// What a device says that it can do at most.
struct DeviceLimits {
  uint64_t queue_pairs = 0;
  uint64_t requests_per_queue_pair = 0;
  uint64_t completion_queues = 0;
  uint64_t entries_per_completion_queue = 0;
  uint64_t memory_regions = 0;
  uint64_t memory_region_bytes = 0;
  uint64_t reads_per_queue_pair = 0;
  uint64_t reads_in_all = 0;
};

struct DeviceFacts {
  std::string name{};
  std::string driver{};     // "mlx5_core"; empty: a software device
  std::string transport{};  // "InfiniBand" (RoCE, too), "iWARP"
  std::string firmware{};
  int numa_node = -1;              // -1: the host does not say
  std::string character_device{};  // "uverbs0"
  std::string problem{};           // why it cannot be used; empty: it can
  std::optional<DeviceLimits> limits{};
  std::vector<PortFacts> ports{};
};

struct InterfaceFacts {
  std::string name{};
  std::string state{};  // "up", "down", "unknown"
  uint32_t mtu = 0;
  // Priorities 0..7 with flow control (PFC), and for which the card takes part in ECN as receiver
  // (notification point) and sender (reaction point); unset: the driver does not show it in /sys.
  std::optional<std::vector<int>> flow_control{};
  std::optional<std::vector<int>> ecn_receiver{};
  std::optional<std::vector<int>> ecn_sender{};
};

struct NumaFacts {
  int node = 0;
  std::vector<int> processors{};
  uint64_t huge_pages = 0;  // of 2 MB, reserved
  uint64_t free_huge_pages = 0;
};

struct LimitFacts {  // of this process; soft and hard
  uint64_t locked_memory = 0, locked_memory_hard = 0;
  uint64_t descriptors = 0, descriptors_hard = 0;
  uint64_t realtime_priority = 0;
};

struct CgroupFacts {  // the tightest on the way to the root; kUnlimited: none
  uint64_t memory = kUnlimited;
  uint64_t memory_used = 0;
  double processors = 0;  // 0: no limit
  uint64_t processes = kUnlimited;
  std::optional<int64_t> realtime_runtime_us{};  // cgroup v1 only: 0 forbids real-time threads
};

struct PlaceFacts {
  std::string path{};
  std::string problem{};      // why it cannot be used; empty: it can
  std::string file_system{};  // "ext4", "xfs", "tmpfs"
  uint64_t bytes = 0;
  uint64_t free_bytes = 0;
  bool direct_io = false;  // O_DIRECT is accepted
};

struct ListenFacts {
  std::string address{};  // host:port
  std::string problem{};  // empty: free
};

struct HostFacts {
  std::string name{};
  std::string kernel{};
  bool container = false;

  std::vector<DeviceFacts> devices{};
  bool connection_manager_device = false;  // /dev/infiniband/rdma_cm can be opened
  bool infiniband_directory = false;       // /dev/infiniband
  std::vector<InterfaceFacts> interfaces{};
  std::vector<std::string> modules{};  // loaded or built in, of those that matter

  std::vector<int> processors{};  // on which this process may run
  std::string governor{};         // "performance"; empty: no frequency scaling to be seen
  std::string clock_source{};
  std::vector<NumaFacts> numa{};

  uint64_t memory = 0;
  uint64_t available_memory = 0;
  uint64_t swap = 0;
  uint64_t huge_pages = 0;  // of 2 MB
  uint64_t free_huge_pages = 0;
  std::string shmem_huge_pages{};  // transparent huge pages of tmpfs: "never", "advise", ...
  uint64_t max_mappings = 0;       // vm.max_map_count

  LimitFacts limits{};
  uint64_t capabilities = 0;  // effective
  CgroupFacts cgroup{};

  PlaceFacts state{};  // where a node keeps what is on disk
  PlaceFacts memory_directory{};
  std::vector<ListenFacts> listen{};
};

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_HOST_FACTS_H_
