// PeerServer: the doctor that serves: offers memory to another one and tells it what it sees there. One peer
// at a time; a second one is refused. It offers nothing but memory made for this.
#ifndef FURROW_NODE_DOCTOR_PEER_SERVER_H_
#define FURROW_NODE_DOCTOR_PEER_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/doctor/peer_link.h"
#include "rdma/fabric.h"

namespace furrow::node {

class PeerServer {
 public:
  // Listens at `endpoint`. The fabric outlives the server, and calls its acceptor until then.
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(rdma::Fabric& fabric,
                                                           const rdma::Endpoint& endpoint);
  ~PeerServer() { door_->busy = true; }

  // Serves until `stop` says so (asked at least every 100 ms) or, with `once`, the first peer has gone.
  absl::Status Serve(const std::function<bool()>& stop, bool once);

 private:
  // Lives as long as the fabric, whose thread asks it.
  struct Door {
    std::atomic<bool> busy{false};
    PeerHello offer{};
    rdma::CompletionQueue* queue = nullptr;
  };

  explicit PeerServer(std::unique_ptr<PeerLink> link) : link_(std::move(link)) {}
  // Of a peer that was let in and does not come.
  static constexpr Nanos kPatience = 30 * kSecond;

  absl::StatusOr<bool> Step();
  absl::Status Answer(const PeerMessage& question);
  uint64_t WrongBytes(uint64_t seed, uint64_t bytes);
  void Look();
  void LetGo();

  std::unique_ptr<PeerLink> link_;
  std::shared_ptr<Door> door_ = std::make_shared<Door>();
  Nanos let_in_ = kNever;  // when a peer was seen to be let in that has not come yet
  bool watching_ = false;
  uint64_t looks_ = 0;
  uint64_t old_looks_ = 0;
};

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_PEER_SERVER_H_
