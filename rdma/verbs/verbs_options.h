// What an operator can set of the verbs provider. docs/internals/fabric.md gives the reasons of the defaults.
#ifndef FURROW_RDMA_VERBS_VERBS_OPTIONS_H_
#define FURROW_RDMA_VERBS_VERBS_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

struct VerbsOptions {
  FabricIdentity identity;
  // An IP address of this host, without a port. It chooses the device, the port and the GID.
  std::string address;
  // Overrides the GID that `address` chooses, for READ, WRITE and SEND; -1: no override.
  int gid_index = -1;

  // Of connections, and of urgent ones (ConnectionLimits::urgent: leases). The traffic class is the IPv6 or
  // IPv4 byte that switches sort packets by (DSCP * 4 + ECN); the service level is InfiniBand's virtual lane
  // and the priority of RoCE frames, 0..7.
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t urgent_traffic_class = 0;
  uint8_t urgent_service_level = 0;

  // A request is sent again `retry_count` times (0..6; 7 would mean for ever on some devices), each after
  // 4.096 us * 2^ack_timeout (1..31), then its peer counts as gone: 0.5 s with the defaults. Sessions, which
  // carry no data, are more patient: all connections to a peer end with them.
  uint8_t retry_count = 6;
  uint8_t ack_timeout = 14;
  uint8_t session_ack_timeout = 16;
  // How long a sender pauses that found no receive posted: InfiniBand's encoding, 12 is 0.64 ms (0 would be
  // 0.66 s); and how often it tries again (0..7, 7: for ever). Connections never meet that: see
  // notify_credits.
  uint8_t min_rnr_timer = 12;
  uint8_t rnr_retry_count = 6;

  uint32_t max_mtu = 4096;        // bytes: 256, 512, 1024, 2048 or 4096; the devices may have less
  uint8_t read_depth = 16;        // READs of a connection under way at the peer's device, at most
  uint32_t notify_credits = 128;  // notifications of a connection that the target has not polled; 2..4096

  const Clock* clock = &MonotonicClock();  // outlives the fabric
};

// InvalidArgument with the setting, its value and what it may be.
absl::Status CheckVerbsOptions(const VerbsOptions& options);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_OPTIONS_H_
