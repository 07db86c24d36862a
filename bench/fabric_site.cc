#include "bench/fabric_site.h"

#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "rdma/shm/shm_fabric.h"
#include "rdma/verbs/verbs_fabric.h"

namespace furrow::bench {

absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const FabricSite& site, NodeId node) {
  rdma::FabricIdentity identity{node, "furrow-bench fabric", "no secret"};
  if (site.address.empty()) return rdma::MakeShmFabric({.identity = std::move(identity)});
  rdma::VerbsOptions options;
  options.identity = std::move(identity);
  options.address = site.address;
  options.gid_index = site.gid_index;
  return rdma::MakeVerbsFabric(std::move(options));
}

rdma::Endpoint EndpointOf(const FabricSite& site, NodeId node, uint64_t port) {
  if (site.address.empty()) return rdma::ShmEndpoint(site.directory, node);
  const bool v6 = site.address.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", site.address, "]:", port) : absl::StrCat(site.address, ":", port);
}

std::string PlaceText(rdma::RemoteAddress place) {
  return absl::StrCat(place.address, " ", place.key.value());
}

absl::StatusOr<rdma::RemoteAddress> ParsePlace(std::string_view text) {
  std::istringstream words{std::string(text)};
  uint64_t address = 0;
  uint32_t key = 0;
  if (!(words >> address >> key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Sv(text), "' names no memory: is the other side a furrow-bench fabric?"));
  }
  return rdma::RemoteAddress{address, rdma::RemoteKey(key)};
}

}  // namespace furrow::bench
