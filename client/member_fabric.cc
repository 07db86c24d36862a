#include "client/member_fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/cluster_files.h"
#include "rdma/shm/shm_fabric.h"
#include "rdma/verbs/verbs_device.h"
#include "rdma/verbs/verbs_fabric.h"

namespace furrow::client {
namespace {

constexpr size_t kMaxSocketPath = 107;  // sun_path without its 0

std::string AllAddresses(const std::vector<RdmaDevice>& devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const RdmaDevice& device) {
    absl::StrAppend(out, device.name, device.active ? "" : " (its port is down)", " has ",
                    device.addresses.empty() ? "none" : absl::StrJoin(device.addresses, " and "));
  });
}

// Of a cluster on shared memory. FailedPrecondition: its manager is on another host.
absl::Status CheckThisHost(const std::string& manager) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Whoever could be asked for the cluster's fabric has been found by another name then.
  if (getaddrinfo(HostOf(manager).c_str(), nullptr, &wanted, &found) != 0) return absl::OkStatus();
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    absl::Cleanup close_fd = [fd] { close(fd); };
    // Only a host's own addresses can be bound.
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 || errno != EADDRNOTAVAIL) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the cluster's fabric is shm, the shared memory of one host, and its manager's address ", manager,
      " is not one of this host: found the cluster with MemberOptions::fabric verbs and the "
      "address of an RDMA device, or run this member on that host"));
}

// The one that `options` name, before any cluster is known; empty: none but loopback.
std::string OwnAddress(const MemberOptions& options) {
  if (!options.rdma.address.empty()) return options.rdma.address;
  const std::string host = HostOf(options.listen);
  return IsLoopback(host) ? "" : host;
}

}  // namespace

std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? address : address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

absl::StatusOr<std::string> AddressTowards(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = HostOf(address);
  const std::string port = colon == std::string::npos ? "1" : address.substr(colon + 1);
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot look up ", host, ": ", gai_strerror(error)));
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Sends nothing: a datagram socket that is connected knows the address that its packets would come from.
  sockaddr_storage from = {};
  socklen_t bytes = sizeof(from);
  char text[NI_MAXHOST];
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&from), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&from), bytes, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return absl::UnavailableError(absl::StrCat("this host has no route to ", address, ": ", strerror(errno)));
  }
  return std::string(text);
}

absl::StatusOr<FabricChoice> ChooseFabric(const MemberOptions& options,
                                          const std::vector<RdmaDevice>& devices) {
  const std::string address = OwnAddress(options);
  if (options.fabric == "shm") return FabricChoice{"shm", "", "as set"};
  if (options.fabric == "verbs") {
    if (!address.empty()) return FabricChoice{"verbs", address, "as set"};
    return absl::InvalidArgumentError(
        absl::StrCat("MemberOptions::fabric is verbs, and ", options.listen,
                     " is an address of this host only: give the address of an RDMA device with "
                     "MemberOptions::listen or RdmaOptions::address"));
  }
  if (devices.empty()) return FabricChoice{"shm", "", "this host has no RDMA device"};
  if (address.empty()) {
    return FabricChoice{"shm", "",
                        absl::StrCat("the address is a loopback one, which no RDMA device has (",
                                     AllAddresses(devices), ")")};
  }
  for (const RdmaDevice& device : devices) {
    const auto& has = device.addresses;
    if (std::find(has.begin(), has.end(), address) == has.end()) continue;
    if (device.active) {
      return FabricChoice{"verbs", address, absl::StrCat("the RDMA device ", device.name, " has ", address)};
    }
  }
  return FabricChoice{"shm", "",
                      absl::StrCat("no RDMA device with a port that is up has the address ", address, " (",
                                   AllAddresses(devices), ")")};
}

absl::StatusOr<FabricChoice> JoinFabric(const MemberOptions& options, const std::string& cluster_fabric,
                                        const std::string& manager) {
  if (cluster_fabric != "shm" && cluster_fabric != "verbs") {
    return absl::FailedPreconditionError(absl::StrCat("the cluster's fabric is '", cluster_fabric,
                                                      "', which this version of Furrow does not know: run "
                                                      "the same version on all members"));
  }
  if (options.fabric != "auto" && options.fabric != cluster_fabric) {
    return absl::FailedPreconditionError(
        absl::StrCat("the cluster's fabric is ", cluster_fabric, ", not ", options.fabric,
                     ": leave MemberOptions::fabric at auto, or join another cluster"));
  }
  FabricChoice choice{cluster_fabric, "", "as the cluster"};
  if (cluster_fabric == "shm") {
    FURROW_RETURN_IF_ERROR(CheckThisHost(manager));
    return choice;
  }
  choice.address = OwnAddress(options);
  if (choice.address.empty()) {
    FURROW_ASSIGN_OR_RETURN(choice.address, AddressTowards(manager));
  }
  return choice;
}

absl::StatusOr<rdma::Endpoint> EndpointFor(const FabricChoice& choice, const std::string& socket_directory,
                                           const std::string& name) {
  if (choice.name != "shm") {
    const bool v6 = absl::StrContains(choice.address, ':');
    return v6 ? absl::StrCat("[", choice.address, "]:0") : choice.address + ":0";
  }
  const std::string sockets = socket_directory.empty() ? DefaultSocketDirectory() : socket_directory;
  FURROW_RETURN_IF_ERROR(MakePrivateDirectory(sockets));
  const std::string endpoint = absl::StrCat(sockets, "/", name);
  if (endpoint.size() <= kMaxSocketPath) return endpoint;
  return absl::InvalidArgumentError(
      absl::StrCat("the path of a Unix socket cannot be as long as ", endpoint,
                   ": name a shorter directory with MemberOptions::socket_directory"));
}

std::vector<RdmaDevice> ListRdmaDevices() {
  std::vector<RdmaDevice> devices;
  for (rdma::VerbsDeviceInfo& info : rdma::ListVerbsDevices())
    devices.push_back({std::move(info.name), info.active, std::move(info.addresses)});
  return devices;
}

absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const FabricChoice& choice,
                                                         const RdmaOptions& options,
                                                         rdma::FabricIdentity identity) {
  if (choice.name == "shm") return rdma::MakeShmFabric({.identity = std::move(identity)});
  rdma::VerbsOptions verbs;
  verbs.identity = std::move(identity);
  verbs.address = choice.address;
  if (options.gid_index != RdmaOptions::kAnyGid) verbs.gid_index = static_cast<int>(options.gid_index);
  verbs.traffic_class = static_cast<uint8_t>(options.traffic_class);
  verbs.service_level = static_cast<uint8_t>(options.service_level);
  verbs.urgent_traffic_class = static_cast<uint8_t>(options.lease_traffic_class);
  verbs.urgent_service_level = static_cast<uint8_t>(options.lease_service_level);
  verbs.retry_count = static_cast<uint8_t>(options.retry_count);
  verbs.ack_timeout = static_cast<uint8_t>(options.ack_timeout);
  // All connections to a peer end with its session, which must not be the first to give up.
  verbs.session_ack_timeout = static_cast<uint8_t>(std::min<uint64_t>(options.ack_timeout + 1, 31));
  verbs.max_mtu = static_cast<uint32_t>(options.max_mtu);
  verbs.read_depth = static_cast<uint8_t>(options.read_depth);
  return rdma::MakeVerbsFabric(std::move(verbs));
}

}  // namespace furrow::client
