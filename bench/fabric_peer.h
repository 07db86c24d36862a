// One process of `furrow-bench fabric`: a fabric with one worker.
#ifndef FURROW_BENCH_FABRIC_PEER_H_
#define FURROW_BENCH_FABRIC_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/memory_file.h"
#include "bench/fabric_site.h"
#include "rdma/fabric.h"
#include "rdma/ring/mesh.h"

namespace furrow::bench {

// How a side waits for the other: polling all the time, or sleeping until its doorbell rings.
enum class Waiting : uint8_t { kSpin, kPark };

class FabricPeer final : public rdma::RecordHandler {
 public:
  // Registers `memory_bytes` for reading and writing by the peer.
  static absl::StatusOr<std::unique_ptr<FabricPeer>> Create(NodeId node, const FabricSite& site,
                                                            size_t memory_bytes);
  ~FabricPeer() override;

  // The target: prints its endpoint and its memory's place, a line each, accepts, answers each message with
  // its own bytes, and serves until its input ends.
  absl::Status ServeUntilInputEnds(Waiting waiting);
  // The source: to the target.
  absl::Status Connect(const rdma::Endpoint& target, Waiting waiting);
  // Sends `bytes` bytes through the message ring and waits for the answer.
  absl::Status RoundTrip(size_t bytes, Waiting waiting);

  rdma::Connection& connection() { return *mesh_->link(kTargetNode)->connection; }
  rdma::CompletionQueue& queue() { return *queue_; }
  std::span<std::byte> memory() const { return memory_.bytes(); }
  rdma::RemoteAddress address() const { return region_->remote_address(); }

 private:
  FabricPeer(NodeId node, FabricSite site) : node_(node), site_(std::move(site)) {}
  void OnRecord(rdma::InboundRing& ring, const rdma::RingRecord& record) override;
  void OnRingClosed(rdma::InboundRing&) override {}
  void OnLinkLost(rdma::OutboundLink&) override { lost_ = true; }
  absl::Status Send(rdma::RingWriter& writer, std::span<const std::byte> bytes);
  absl::Status RunUntil(const std::function<bool()>& done, Waiting waiting);

  const NodeId node_;
  const FabricSite site_;
  std::unique_ptr<rdma::Fabric> fabric_;
  std::unique_ptr<rdma::CompletionQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  MemoryFile memory_;
  std::unique_ptr<rdma::MemoryRegion> region_;
  std::unique_ptr<rdma::RingMesh> mesh_;
  uint64_t answers_ = 0;
  bool lost_ = false;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_FABRIC_PEER_H_
