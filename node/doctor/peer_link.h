// PeerLink: one side of a self-test: a completion queue, memory, and the connection to the other side. One
// thread.
#ifndef FURROW_NODE_DOCTOR_PEER_LINK_H_
#define FURROW_NODE_DOCTOR_PEER_LINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/memory_file.h"
#include "node/doctor/peer_wire.h"
#include "rdma/fabric.h"

namespace furrow::node {

class PeerLink {
 public:
  // The fabric outlives the link. `offered`: peers may read and write `bytes` of memory, which is zero; else
  // they are for local use.
  static absl::StatusOr<std::unique_ptr<PeerLink>> Make(rdma::Fabric& fabric, size_t bytes, bool offered);

  std::span<std::byte> memory() { return memory_.bytes(); }
  rdma::RemoteAddress address() const { return region_->remote_address(); }
  rdma::CompletionQueue& queue() { return *queue_; }
  EventLoop& loop() { return *loop_; }
  rdma::Connection* connection() { return connection_.get(); }

  // Connects; what the other side says of itself. FailedPrecondition: it is no doctor.
  absl::StatusOr<PeerHello> Connect(const rdma::Endpoint& endpoint, Nanos timeout_ns);
  // Takes a connection (null: lets the present one go) and posts the receives.
  absl::Status Take(std::unique_ptr<rdma::Connection> connection);

  // Looks at the queue once, true if there was anything. Questions, notifications and ends of requests are
  // counted and kept; a peer that is gone or a failed request is an error.
  absl::StatusOr<bool> Poll();
  // Polls until `done`; DeadlineExceeded, with `what`, after `timeout_ns`.
  absl::Status PollUntil(const std::function<bool()>& done, Nanos timeout_ns, const char* what);
  // Posts and waits until all signaled ones have ended.
  absl::Status Run(std::span<const rdma::WorkRequest> requests, Nanos timeout_ns);
  absl::Status Send(const PeerMessage& message);
  // The oldest message that has come.
  std::optional<PeerMessage> TakeMessage();
  // A question and its answer.
  absl::StatusOr<PeerMessage> Ask(const PeerMessage& question, Nanos timeout_ns);

  uint64_t ended() const { return ended_; }  // signaled requests
  uint64_t notified() const { return notified_; }
  // A connection that a peer has opened, not yet taken; null: none.
  rdma::Connection* arrived() const { return arrived_; }
  std::unique_ptr<rdma::Connection> TakeArrived();

 private:
  static constexpr size_t kReceives = 16;  // messages under way; a peer has one question open at a time
  static constexpr uint64_t kMessageId = uint64_t{1} << 63;  // ids of SENDs; their ends are not counted

  explicit PeerLink(rdma::Fabric& fabric) : fabric_(fabric) {}
  std::span<std::byte> ReceiveBuffer(uint64_t id);
  absl::Status Handle(const rdma::Completion& completion);

  rdma::Fabric& fabric_;
  MemoryFile memory_, receive_memory_;
  std::unique_ptr<rdma::MemoryRegion> region_, receive_region_;
  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<rdma::Connection> connection_;
  rdma::Connection* arrived_ = nullptr;
  std::vector<PeerMessage> messages_;  // at most kReceives
  uint64_t ended_ = 0;
  uint64_t notified_ = 0;
};

// Words of memory that a peer writes or reads meanwhile.
uint64_t LoadWord(std::span<std::byte> memory, size_t at);
void StoreWord(std::span<std::byte> memory, size_t at, uint64_t value);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_PEER_LINK_H_
