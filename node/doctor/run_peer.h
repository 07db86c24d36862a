// The two sides of `furrow doctor`'s self-test as commands.
#ifndef FURROW_NODE_DOCTOR_RUN_PEER_H_
#define FURROW_NODE_DOCTOR_RUN_PEER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/doctor/checks.h"

namespace furrow::node {

struct PeerSettings {
  // Where the serving doctor listens: an absolute path (shared memory, one host), or host:port or a host
  // (verbs).
  std::string endpoint;
  // This host's own address on an RDMA device, for verbs. Empty: the one from which the peer is reached.
  std::string address{};
  int gid_index = -1;  // overrides the GID that the address chooses; -1: no override
  // Both doctors have the same; empty: none, anybody who reaches the endpoint may be served.
  std::string secret_file;
  bool once = false;  // serve one peer only
};

// Serves until SIGTERM or SIGINT; says so on standard output when it listens.
absl::Status ServePeers(const PeerSettings& settings);
// The findings of the self-test. An error: not even the fabric could be had here.
absl::StatusOr<std::vector<Finding>> ExaminePeer(const PeerSettings& settings);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_RUN_PEER_H_
