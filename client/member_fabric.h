// Which fabric a member uses, and where it listens on it.
#ifndef FURROW_CLIENT_MEMBER_FABRIC_H_
#define FURROW_CLIENT_MEMBER_FABRIC_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/member_options.h"
#include "rdma/fabric.h"

namespace furrow::client {

struct FabricChoice {
  std::string name;     // "shm" or "verbs": Fabric::name()
  std::string address;  // verbs: this member's IP address
  std::string why;      // a sentence's end for the log
};

// What there is to choose from: an RDMA device, and the addresses that it can be reached by.
struct RdmaDevice {
  std::string name;
  bool active = false;
  std::vector<std::string> addresses;
};

// Of the founder, whose fabric is that of the cluster. `devices`: this host's.
// Never fails for "auto": shared memory is always there.
absl::StatusOr<FabricChoice> ChooseFabric(const MemberOptions& options,
                                          const std::vector<RdmaDevice>& devices);
// Of a member that joins a cluster whose manager has the control address `manager`. FailedPrecondition:
// `options` demand another fabric than the cluster's, or that is shared memory, and the manager is on another
// host.
absl::StatusOr<FabricChoice> JoinFabric(const MemberOptions& options, const std::string& cluster_fabric,
                                        const std::string& manager);

// The host of "host:port" or "[v6]:port".
std::string HostOf(const std::string& address);
// True for the addresses by which a host reaches nobody but itself: "localhost", 127.0.0.0/8, "::1".
bool IsLoopback(const std::string& host);
// The address from which this host's packets to host:port come. Unavailable: it has no route there.
absl::StatusOr<std::string> AddressTowards(const std::string& address);

// Where the member listens: the socket `name` in `socket_directory` (made if it is not there; empty: the
// default), or any port of its address.
absl::StatusOr<rdma::Endpoint> EndpointFor(const FabricChoice& choice, const std::string& socket_directory,
                                           const std::string& name);

// This host's devices.
std::vector<RdmaDevice> ListRdmaDevices();
absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const FabricChoice& choice,
                                                         const RdmaOptions& options,
                                                         rdma::FabricIdentity identity);

}  // namespace furrow::client

#endif  // FURROW_CLIENT_MEMBER_FABRIC_H_
