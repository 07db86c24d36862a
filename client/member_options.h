// MemberOptions: everything that can be set about a member of a cluster, storage or compute.
#ifndef FURROW_CLIENT_MEMBER_OPTIONS_H_
#define FURROW_CLIENT_MEMBER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/ids.h"

namespace furrow::client {

// Of a member whose fabric is "verbs". docs/rdma.md explains them.
struct RdmaOptions {
  // The IP address of this host that chooses the device, the port and the GID. Empty: that of `listen`; where
  // that is a loopback address, the one by which this host reaches the cluster's manager.
  std::string address{};
  static constexpr uint64_t kAnyGid = UINT64_MAX;
  uint64_t gid_index = kAnyGid;  // overrides the GID that the address chooses; 0 to 255
  // The byte by which switches sort packets (DSCP * 4 + ECN), and the lane or priority 0..7: of all data, and
  // of the connections that carry leases.
  uint64_t traffic_class = 0;
  uint64_t service_level = 0;
  uint64_t lease_traffic_class = 0;
  uint64_t lease_service_level = 0;
  // A packet is sent again `retry_count` times (0..6), each after 4.096 us * 2^ack_timeout (1..31), before
  // the peer counts as unreachable.
  uint64_t retry_count = 6;
  uint64_t ack_timeout = 16;
  uint64_t max_mtu = 4096;   // bytes: 256, 512, 1024, 2048 or 4096
  uint64_t read_depth = 16;  // READs of a connection under way; 1 to 128
};

struct MemberOptions {
  // A storage member hosts regions; a compute member only runs transactions.
  bool storage = false;
  // Storage: 1 to 1000, never used before in this cluster. Compute: 0, the cluster gives one.
  uint32_t id = 0;

  // The cluster to join: its directory (with the files "cluster" and "secret"), or host:port of a member.
  // Empty (storage only): be the first member of a new cluster.
  std::string cluster{};
  // A storage member's own directory; it must exist, and no other member may use it.
  std::string directory{};
  // Where the first member keeps the configuration and writes "cluster" and "secret"; it holds no cluster
  // yet. Empty: `directory`.
  std::string cluster_directory{};
  // The file with the cluster's secret. Empty: "secret" in the cluster's directory.
  std::string secret_file{};
  // How long to wait for a cluster that has not all its storage members yet, or does not answer.
  Nanos join_timeout_ns = 10 * kSecond;
  // Also for one at whose address nobody listens yet, as when all members are started at once. Otherwise
  // that is Unavailable at once.
  bool wait_for_cluster = false;

  // Control plane: host:port of this host; port 0: any free one.
  std::string listen = "127.0.0.1:0";
  // Members of one failure domain may be lost together: copies of a region go to different ones. Empty: its
  // own.
  std::string failure_domain{};
  // What members reach each other's memory by. "shm": shared memory, all members on one host. "verbs": RDMA
  // through libibverbs: InfiniBand, RoCE or Soft-RoCE. "auto": the founder takes verbs if an RDMA device has
  // its address, else shm, and says so in its log; a member that joins takes its cluster's.
  std::string fabric = "auto";
  RdmaOptions rdma{};
  // Unix sockets of the fabric shm lie here; made (0700) if it is not there. Empty: $XDG_RUNTIME_DIR/furrow
  // or /tmp/furrow-UID.
  std::string socket_directory{};
  // Memory files lie in a directory of their own in here: tmpfs or huge pages.
  std::string memory_root = "/dev/shm";

  uint16_t workers = 1;
  // All of this member's memory for Furrow: regions, rings, old versions, buffers.
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t old_version_bytes = uint64_t{64} << 20;  // storage; of memory_bytes
  bool huge_pages = false;

  // Of a new cluster; a member that joins takes the cluster's.
  uint32_t replicas = 3;
  uint64_t region_bytes = uint64_t{64} << 20;
  // How long any member may be silent (stopped, hanging, without a processor) before it is lost; it is
  // noticed within 1.2 times that. 10 ms to an hour; below a second the host should grant a real-time
  // priority and memory that stays (docs/operations.md).
  Nanos lease_ns = 5 * kSecond;
  // How often, at least, this member renews its lease within it: 2 to 100.
  uint64_t lease_renewals = 4;

  // Per pair of sending worker and receiving member; powers of two.
  uint32_t log_ring_bytes = 4 << 20;
  uint32_t message_ring_bytes = 256 << 10;

  IdlePolicy idle{};
  // For tests on one host, whose members otherwise share its clock: this member's clock is off by `offset`
  // and kept in step by samples; each time interval is wider by `uncertainty` on both sides.
  Nanos clock_offset_ns = 0;
  Nanos clock_uncertainty_ns = 0;

  // Called once when the cluster ends under this member: a member was lost (not in good order), or somebody
  // stopped it. On a thread of Furrow's: it must not block, nor call the member. May be null.
  std::function<void(bool in_good_order, const std::string& why)> on_end{};
};

// InvalidArgument names the option and what is allowed.
absl::Status Validate(const MemberOptions& options);

// Messages of the library name options as "MemberOptions::workers". For a program whose users know them by
// other names, its flags: pairs of a member's name and what takes its place, {"workers", "--workers"}. What
// is not among them stays.
using OptionNames = std::vector<std::pair<std::string, std::string>>;
std::string WithOptionNames(const std::string& message, const OptionNames& names);

}  // namespace furrow::client

#endif  // FURROW_CLIENT_MEMBER_OPTIONS_H_
