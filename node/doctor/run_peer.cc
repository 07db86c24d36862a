#include "node/doctor/run_peer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/secret.h"
#include "node/doctor/peer_server.h"
#include "node/doctor/self_test.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow::node {
namespace {

bool IsPath(const std::string& endpoint) { return !endpoint.empty() && endpoint[0] == '/'; }

absl::StatusOr<std::unique_ptr<rdma::Fabric>> MakeFabric(const PeerSettings& settings, NodeId node) {
  rdma::FabricIdentity identity{node, "furrow-doctor", "furrow-doctor"};
  if (!settings.secret_file.empty()) {
    FURROW_ASSIGN_OR_RETURN(identity.secret, cluster::ReadSecret(settings.secret_file));
  }
  return rdma::MakeShmFabric({.identity = std::move(identity)});
}

}  // namespace

absl::Status Validate(const PeerSettings& settings) {
  if (!IsPath(settings.endpoint)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", settings.endpoint, "\" is no absolute path of a socket"));
  }
  return absl::OkStatus();
}

absl::Status ServePeers(const PeerSettings& settings) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a descriptor: raise ulimit -n");
  absl::Cleanup close_fd = [fd] { close(fd); };
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::Fabric> fabric, MakeFabric(settings, NodeId(1)));
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<PeerServer> server, PeerServer::Start(*fabric, settings.endpoint));
  std::printf("furrow doctor serves at %s over %s\n", settings.endpoint.c_str(),
              std::string(fabric->name()).c_str());
  std::fflush(stdout);
  const auto stop = [fd] {
    signalfd_siginfo signal;
    return read(fd, &signal, sizeof(signal)) == static_cast<ssize_t>(sizeof(signal));
  };
  return server->Serve(stop, settings.once);
}

absl::StatusOr<std::vector<Finding>> ExaminePeer(const PeerSettings& settings) {
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<rdma::Fabric> fabric, MakeFabric(settings, NodeId(2)));
  return SelfTest(*fabric, settings.endpoint, {});
}

}  // namespace furrow::node
