// Raw connections of `furrow-bench fabric`, without rings: a completion queue with its memory and its
// connections, and the ping-pongs that both sides play.
//
// The memory of an end:
//   0         kMaxBytes     inbox: what the peer's ping-pongs and probes write
//   kOutbox   kMaxBytes     what this side sends
//   kBulk     kMaxBytes     what READs and WRITEs of the other side move
//   kCommands 64            the command of the other side
#ifndef FURROW_BENCH_FABRIC_WIRE_H_
#define FURROW_BENCH_FABRIC_WIRE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/histogram.h"
#include "base/memory_file.h"
#include "bench/fabric_site.h"
#include "rdma/fabric.h"

namespace furrow::bench {

// Of notifications.
enum WireChannel : uint8_t { kCommandChannel, kReadyChannel, kPingChannel, kProbeChannel, kWireChannels };

// What the source asks the target to do; travels as 64 bytes.
struct WireCommand {
  enum Kind : uint32_t { kPingWrites = 1, kPingNotifications = 2 };
  uint32_t kind = 0;
  uint32_t bytes = 0;
  uint64_t count = 0;
};

// A connection, and what has come of it.
struct WireLink {
  std::unique_ptr<rdma::Connection> connection;
  rdma::RemoteAddress peer;  // the other side's memory
  uint64_t ended = 0;        // requests
  uint64_t failed = 0;
  std::array<uint64_t, kWireChannels> notified = {};
  bool lost = false;
};

// One thread's.
class WireQueue {
 public:
  static constexpr size_t kMaxBytes = 64 << 10;
  static constexpr uint64_t kOutbox = kMaxBytes;
  static constexpr uint64_t kBulk = 2 * kMaxBytes;
  static constexpr uint64_t kCommands = 3 * kMaxBytes;
  static constexpr size_t kProbeBytes = 64;

  // The fabric outlives the queue.
  static absl::StatusOr<std::unique_ptr<WireQueue>> Create(rdma::Fabric& fabric);
  ~WireQueue();

  absl::StatusOr<WireLink*> Connect(const rdma::Endpoint& endpoint, rdma::ConnectionLimits limits);
  // What an acceptor answers; any thread.
  rdma::AcceptDecision Accept() { return {queue_.get(), PlaceText(place())}; }

  // Takes what has come into the links. True if there was anything.
  bool Poll();
  // Polls until `*counter` has reached `wanted`. Unavailable: the link is lost or a request has failed.
  absl::Status Await(WireLink& link, const uint64_t* counter, uint64_t wanted);
  // The same, asleep until woken.
  absl::Status AwaitParked(WireLink& link, const uint64_t* counter, uint64_t wanted);
  // Unavailable as above.
  static absl::Status Check(const WireLink& link);

  // A WRITE of `local` to the peer's `offset` that notifies, and its end. At most kMaxInline bytes.
  absl::Status Tell(WireLink& link, uint64_t offset, std::span<std::byte> local, WireChannel channel);
  // 64 bytes that wake the peer, as a member's beat; nobody waits for the request's end.
  static absl::Status Probe(WireLink& link, std::span<std::byte> bytes);

  std::span<std::byte> bytes(uint64_t offset, size_t size) const {
    return memory_.bytes().subspan(offset, size);
  }
  rdma::RemoteAddress place() const { return region_->remote_address(); }
  Parker& parker() { return queue_->parker(); }
  std::span<const std::unique_ptr<WireLink>> links() const { return links_; }
  // Destroys links that are lost.
  void DropLost();

 private:
  static constexpr size_t kMemoryBytes = 4 * kMaxBytes;
  WireQueue() = default;
  void Take(const rdma::Completion& completion);
  WireLink* Add(std::unique_ptr<rdma::Connection> connection);

  rdma::Fabric* fabric_ = nullptr;
  MemoryFile memory_;
  std::unique_ptr<rdma::MemoryRegion> region_;
  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<std::unique_ptr<WireLink>> links_;
};

// `count` WRITEs of `bytes` bytes each way, the next one when the peer's is seen in memory; each side waits
// for the end of its own. The one that is `first` records half of each round trip.
absl::Status PingWrites(WireQueue& queue, WireLink& link, size_t bytes, uint64_t count, Histogram* first);
// The same with WRITEs that notify, the next one when the peer's notification has been polled.
absl::Status PingNotifications(WireQueue& queue, WireLink& link, size_t bytes, uint64_t count,
                               Histogram* first);

// The target: answers probes and obeys commands of whoever connects. Parks meanwhile.
class WireTarget {
 public:
  // Listens. The fabric outlives the target.
  static absl::StatusOr<std::unique_ptr<WireTarget>> Start(rdma::Fabric& fabric, const rdma::Endpoint& at);
  const rdma::Endpoint& endpoint() const { return endpoint_; }
  // Until Stop().
  void Serve();
  // Any thread.
  void Stop();

 private:
  WireTarget() = default;
  // True if there was anything.
  bool Step();
  absl::Status Obey(WireLink& link);

  std::unique_ptr<WireQueue> queue_;
  rdma::Endpoint endpoint_;
  std::atomic<bool> stopped_{false};
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_WIRE_H_
