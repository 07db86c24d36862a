#include "node/doctor/run_peer.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/secret.h"
#include "node/doctor/peer_server.h"
#include "node/doctor/self_test.h"
#include "rdma/shm/shm_fabric.h"
#include "rdma/verbs/verbs_fabric.h"

namespace furrow::node {
namespace {

constexpr char kPort[] = "4519";
// 1.07 s, and seven times that: a test may take longer than a node, and a busy host is not what it looks for.
constexpr uint8_t kAckTimeout = 18;

bool IsPath(const std::string& endpoint) { return !endpoint.empty() && endpoint[0] == '/'; }

// "host:port", with the port that is ours where there is none; and its host.
rdma::Endpoint WithPort(const std::string& endpoint) {
  if (IsPath(endpoint)) return endpoint;
  const size_t colon = endpoint.rfind(':');
  const bool bare_v6 = endpoint[0] != '[' && endpoint.find(':') != colon;
  if (bare_v6) return absl::StrCat("[", endpoint, "]:", kPort);
  if (colon == std::string::npos || endpoint.back() == ']') return absl::StrCat(endpoint, ":", kPort);
  return endpoint;
}
std::string HostOf(const rdma::Endpoint& endpoint) {
  std::string host = endpoint.substr(0, endpoint.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host;
}

// The address of this host from which the way to the endpoint begins. Nothing is sent.
absl::StatusOr<std::string> AddressTowards(const rdma::Endpoint& endpoint) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (int error = getaddrinfo(HostOf(endpoint).c_str(), kPort, &hints, &found); error != 0)
    return absl::UnavailableError(absl::StrCat(HostOf(endpoint), ": ", gai_strerror(error)));
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  absl::Cleanup close_fd = [fd] { close(fd); };
  sockaddr_storage own;
  socklen_t bytes = sizeof(own);
  char text[NI_MAXHOST];
  if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) !=
          0) {
    return absl::UnavailableError(
        absl::StrCat("no way leads to ", endpoint, " from here: give --address of this host's RDMA device"));
  }
  return std::string(text);
}

absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const PeerSettings& settings, bool serves) {
  rdma::FabricIdentity identity{NodeId(serves ? 1 : 2), "furrow-doctor", "furrow-doctor"};
  if (!settings.secret_file.empty()) {
    FURROW_ASSIGN_OR_RETURN(identity.secret, cluster::ReadSecret(settings.secret_file));
  }
  if (IsPath(settings.endpoint)) return rdma::MakeShmFabric({.identity = std::move(identity)});
  rdma::VerbsOptions options;
  options.identity = std::move(identity);
  options.address = settings.address;
  options.gid_index = settings.gid_index;
  options.ack_timeout = kAckTimeout;
  const rdma::Endpoint endpoint = WithPort(settings.endpoint);
  if (options.address.empty() && serves) options.address = HostOf(endpoint);
  if (options.address.empty()) {
    FURROW_ASSIGN_OR_RETURN(options.address, AddressTowards(endpoint));
  }
  return rdma::MakeVerbsFabric(std::move(options));
}

}  // namespace

absl::Status ServePeers(const PeerSettings& settings) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a descriptor: raise ulimit -n");
  absl::Cleanup close_fd = [fd] { close(fd); };
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::Fabric> fabric, MakeFabric(settings, true));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<PeerServer> server,
                          PeerServer::Start(*fabric, WithPort(settings.endpoint)));
  std::printf("furrow doctor serves at %s over %s\n", WithPort(settings.endpoint).c_str(),
              std::string(fabric->name()).c_str());
  std::fflush(stdout);
  const auto stop = [fd] {
    signalfd_siginfo signal;
    return read(fd, &signal, sizeof(signal)) == static_cast<ssize_t>(sizeof(signal));
  };
  return server->Serve(stop, settings.once);
}

absl::StatusOr<std::vector<Finding>> ExaminePeer(const PeerSettings& settings) {
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::Fabric> fabric, MakeFabric(settings, false));
  return SelfTest(*fabric, WithPort(settings.endpoint), {});
}

}  // namespace furrow::node
