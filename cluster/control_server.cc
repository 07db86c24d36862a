#include "cluster/control_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/grpc_library.h"
#include "cluster/proto/cluster.grpc.pb.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/secret.h"

namespace furrow::cluster {
namespace {

constexpr int kMaxMessageBytes = 4 << 20;

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> Split(const std::string& address) {
  size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is no address: write host:port, as in 127.0.0.1:4500"));
  }
  return HostPort{address.substr(0, colon), address.substr(colon + 1)};
}

// Finds out whether the address can be listened at, for the sake of its error: gRPC does not say why.
absl::Status TryBind(const std::string& address) {
  FURROW_ASSIGN_OR_RETURN(HostPort at, Split(address));
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int error = getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen at ", address, ": ", gai_strerror(error),
                     ": give an address of this host with MemberOptions::listen"));
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0) return absl::OkStatus();
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", at.port, " is in use on ", at.host,
                     ": choose another one with MemberOptions::listen, or stop what uses it"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot listen at ", address, ": ", strerror(errno),
                   ": give an address of this host with MemberOptions::listen"));
}

}  // namespace

class ControlServer::Impl final : public pb::Control::Service {
 public:
  Impl(std::string secret, ControlHandler& handler) : secret_(std::move(secret)), handler_(handler) {}

#define FURROW_DEFINE(name)                                                                                 \
  grpc::Status name(grpc::ServerContext* context, const pb::name##Request* request, pb::name##Reply* reply) \
      override {                                                                                            \
    if (!HasProof(*context, #name, *request)) return NoProof();                                             \
    return ToGrpc(handler_.name(*request, reply));                                                          \
  }
  FURROW_CONTROL_METHODS(FURROW_DEFINE)
#undef FURROW_DEFINE

  std::unique_ptr<grpc::Server> server;

 private:
  bool HasProof(const grpc::ServerContext& context, const char* method,
                const google::protobuf::MessageLite& request) const {
    auto it = context.client_metadata().find("furrow-proof");
    if (it == context.client_metadata().end()) return false;
    return ProofMatches(secret_, absl::StrCat(method, "\n", request.SerializeAsString()),
                        std::string_view(it->second.data(), it->second.size()));
  }
  static grpc::Status NoProof() {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        "the caller does not hold this cluster's secret: it belongs to another cluster, or "
                        "MemberOptions::secret_file names "
                        "the wrong file");
  }
  static grpc::Status ToGrpc(const absl::Status& status) {
    if (status.ok()) return grpc::Status::OK;
    // The details mark it as a handler's own, apart from what gRPC says by itself.
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                        "furrow");
  }

  const std::string secret_;
  ControlHandler& handler_;
};

ControlServer::ControlServer() = default;

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& address,
                                                                    std::string secret,
                                                                    ControlHandler& handler) {
  FURROW_RETURN_IF_ERROR(TryBind(address));
  FURROW_ASSIGN_OR_RETURN(HostPort at, Split(address));
  KeepGrpcInitialised();
  std::unique_ptr<ControlServer> server(new ControlServer);
  server->impl_ = std::make_unique<Impl>(std::move(secret), handler);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(server->impl_.get());
  server->impl_->server = builder.BuildAndStart();
  if (server->impl_->server == nullptr || port == 0) {
    absl::Status why = TryBind(address);
    return why.ok() ? absl::AlreadyExistsError(
                          absl::StrCat("cannot listen at ", address, ": somebody took the port just now"))
                    : why;
  }
  server->address_ = absl::StrCat(at.host, ":", port);
  return server;
}

ControlServer::~ControlServer() { Stop(); }

void ControlServer::Stop() {
  if (impl_ == nullptr || impl_->server == nullptr) return;
  impl_->server->Shutdown(gpr_time_from_seconds(2, GPR_TIMESPAN));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace furrow::cluster
