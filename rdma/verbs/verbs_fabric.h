// The verbs provider of rdma::Fabric: libibverbs and librdmacm, on InfiniBand and RoCE cards and on
// Soft-RoCE. docs/internals/fabric.md describes how it works.
//
// - Endpoints are "host:port"; VerbsOptions::address chooses the device.
// - READ and WRITE are the device's; the target's CPU does nothing, and may be stopped.
// - A SEND that meets no posted receive fails at once.
// - read_piece_bytes() is 64 on cards, 8 on Soft-RoCE, whose copies are the CPU's.
#ifndef FURROW_RDMA_VERBS_VERBS_FABRIC_H_
#define FURROW_RDMA_VERBS_VERBS_FABRIC_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "rdma/fabric.h"
#include "rdma/verbs/verbs_options.h"

namespace furrow::rdma {

// Opens the device and starts the fabric's thread. InvalidArgument (a setting, the address), Unavailable (no
// RDMA here, no such device, its port is down), PermissionDenied.
absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(VerbsOptions options);

// What a verbs fabric uses of its device, and what went wrong so far.
struct VerbsUse {
  uint64_t queue_pairs = 0;
  uint64_t sessions = 0;
  uint64_t manager_ids = 0;  // of the connection manager: sessions and connections
  uint64_t registrations = 0;
  uint64_t failures = 0;  // connections of which a request has failed
  uint64_t flushed = 0;   // requests behind those
};
VerbsUse UseOf(const Fabric& verbs_fabric);

// Lets a fabric made by MakeVerbsFabric() look to its peers as if its process had been killed. The owners of
// its queues do nothing meanwhile. For tests.
void KillVerbsFabric(Fabric& fabric);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_FABRIC_H_
