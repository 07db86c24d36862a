// The shm provider of rdma::Fabric: peers on one host. docs/internals/fabric.md describes how it works.
//
// - A registered region is a memory file whose descriptor peers get over a Unix socket; READ and WRITE are
// copies by the
//   initiator, in 8-byte pieces, inside Post(). The target's CPU does nothing, and may be stopped.
// - Peers map what is registered without Access::kWrite read-only.
// - Endpoints are absolute paths of Unix sockets. All nodes run under one user, whose processes are trusted
// with the
//   memory that they share; who does not know the cluster's secret gets none.
// - A SEND that meets no posted receive fails at once.
// - A READ or WRITE that began before its region was deregistered may still end its copy.
#ifndef FURROW_RDMA_SHM_SHM_FABRIC_H_
#define FURROW_RDMA_SHM_SHM_FABRIC_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

struct ShmFabricOptions {
  FabricIdentity identity;
  const Clock* clock = &MonotonicClock();  // for time limits; outlives the fabric
};

// Starts the fabric's thread.
absl::StatusOr<std::unique_ptr<Fabric>> MakeShmFabric(ShmFabricOptions options);

// Where a node listens by convention: "DIRECTORY/fabric-NODE.sock". The directory must be closed to others
// (0700).
Endpoint ShmEndpoint(std::string_view directory, NodeId node);

// Lets a fabric made by MakeShmFabric() look to its peers as if its process had been killed. For tests.
void KillShmFabric(Fabric& fabric);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_FABRIC_H_
