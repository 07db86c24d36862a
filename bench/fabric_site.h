// Where the processes of `furrow-bench fabric` are, and the fabric between them.
#ifndef FURROW_BENCH_FABRIC_SITE_H_
#define FURROW_BENCH_FABRIC_SITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rdma/fabric.h"

namespace furrow::bench {

inline constexpr NodeId kSourceNode(1);  // measures
inline constexpr NodeId kTargetNode(2);  // serves

// One end's.
struct FabricSite {
  std::string address;    // of this host's RDMA device; empty: shm
  std::string directory;  // shm: of the sockets
  int gid_index = -1;     // verbs: overrides what the address chooses
};

absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const FabricSite& site, NodeId node);

// Where `node` listens there; port 0: any.
rdma::Endpoint EndpointOf(const FabricSite& site, NodeId node, uint64_t port = 0);

// A place in registered memory as the other side's private data, and back. InvalidArgument: no place.
std::string PlaceText(rdma::RemoteAddress place);
absl::StatusOr<rdma::RemoteAddress> ParsePlace(std::string_view text);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_SITE_H_
