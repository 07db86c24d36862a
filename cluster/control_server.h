// ControlServer: the gRPC side of a member. Checks the proof of each request and hands it to a
// ControlHandler.
#ifndef FURROW_CLUSTER_CONTROL_SERVER_H_
#define FURROW_CLUSTER_CONTROL_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/control_messages.h"

namespace furrow::cluster {

// Called on threads of gRPC, several at once; a handler may block, but must end soon after the member stops.
// The status goes back to the caller.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
#define FURROW_DECLARE(name) \
  virtual absl::Status name(const pb::name##Request& request, pb::name##Reply* reply) = 0;
  FURROW_CONTROL_METHODS(FURROW_DECLARE)
#undef FURROW_DECLARE
};

class ControlServer {
 public:
  // Listens at `address` (host:port; port 0: any free one). `handler` outlives the server. AlreadyExists: the
  // port is in use. InvalidArgument: no such address on this host.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const std::string& address, std::string secret,
                                                              ControlHandler& handler);
  ~ControlServer();  // as Stop()
  // host:port with the real port.
  const std::string& address() const { return address_; }
  // Refuses new requests and waits for those under way.
  void Stop();

 private:
  class Impl;
  ControlServer();
  std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONTROL_SERVER_H_
