#include "bench/fabric_peer.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread.h"

namespace furrow::bench {
namespace {

Task<void> ConnectMesh(rdma::RingMesh& mesh, NodeId node, rdma::Endpoint endpoint,
                       std::optional<absl::Status>* result) {
  *result = co_await mesh.ConnectTo(node, std::move(endpoint));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FabricPeer>> FabricPeer::Create(NodeId node, const FabricSite& site,
                                                               size_t memory_bytes) {
  std::unique_ptr<FabricPeer> peer(new FabricPeer(node, site));
  FURROW_ASSIGN_OR_RETURN(peer->fabric_, MakeFabric(site, node));
  FURROW_ASSIGN_OR_RETURN(peer->queue_, peer->fabric_->CreateCompletionQueue());
  peer->loop_ = std::make_unique<EventLoop>(MonotonicClock(), peer->queue_->parker());
  FURROW_ASSIGN_OR_RETURN(peer->memory_, MemoryFile::Anonymous(memory_bytes));
  std::memset(peer->memory_.data(), 1, memory_bytes);
  FURROW_ASSIGN_OR_RETURN(peer->region_, peer->fabric_->Register(peer->memory_, rdma::Access::kReadWrite));
  rdma::MeshOptions options;
  options.make_memory = [](const std::string&, size_t bytes) { return MemoryFile::Anonymous(bytes); };
  peer->mesh_ = std::make_unique<rdma::RingMesh>(
      *peer->loop_, *peer->fabric_, *peer->queue_,
      rdma::WorkerIdentity{peer->node_, Incarnation(1), WorkerId(0)}, std::move(options), *peer);
  FURROW_RETURN_IF_ERROR(peer->mesh_->Start());
  return peer;
}

FabricPeer::~FabricPeer() = default;

void FabricPeer::OnRecord(rdma::InboundRing& ring, const rdma::RingRecord& record) {
  if (ring.kind == rdma::InboundRing::Kind::kMessages) {
    // A ring without room would mean a peer that asks more than it waits for: this one asks once.
    (void)Send(*ring.ReplyWriter(), record.body);
  } else {
    ++answers_;
  }
  ring.reader->Release(record.end);
  ring.heads->Return(record.end, false);
}

absl::Status FabricPeer::Send(rdma::RingWriter& writer, std::span<const std::byte> bytes) {
  if (!writer.Reserve(rdma::RecordBytes(bytes.size())))
    return absl::ResourceExhaustedError("the ring is full");
  FURROW_ASSIGN_OR_RETURN(std::span<std::byte> body, mesh_->StageRecord(bytes.size()));
  std::memcpy(body.data(), bytes.data(), bytes.size());
  const absl::Status status =
      writer.Append({body, rdma::HashBody(body)}, 0, rdma::WorkRequest::Notify::kWake);
  mesh_->ReleaseStaged(body);
  return status;
}

absl::Status FabricPeer::RunUntil(const std::function<bool()>& done, Waiting waiting) {
  Parker& parker = queue_->parker();
  while (!done()) {
    if (lost_) return absl::UnavailableError("the other process of the benchmark has ended");
    if (waiting == Waiting::kSpin) {
      loop_->RunOnce();
      continue;
    }
    parker.PrepareToPark();
    if (loop_->RunOnce()) {
      parker.CancelPark();
    } else {
      parker.Park(kNever);
    }
  }
  return absl::OkStatus();
}

absl::Status FabricPeer::ServeUntilInputEnds(Waiting waiting) {
  FURROW_ASSIGN_OR_RETURN(
      const rdma::Endpoint endpoint,
      fabric_->Listen(EndpointOf(site_, node_),
                      [this](const rdma::ConnectRequest& request) { return mesh_->PrepareAccept(request); }));
  const std::string ready = absl::StrCat(endpoint, "\n", PlaceText(address()), "\n");
  if (write(STDOUT_FILENO, ready.data(), ready.size()) < 0) return absl::UnavailableError("nobody listens");
  std::atomic<bool> ended{false};
  Thread watcher({.name = "bench-input"}, [&] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ended = true;
    queue_->parker().Wake();
  });
  (void)RunUntil([&] { return ended.load(); }, waiting);
  return absl::OkStatus();
}

absl::Status FabricPeer::Connect(const rdma::Endpoint& target, Waiting waiting) {
  std::optional<absl::Status> result;
  loop_->Spawn(ConnectMesh(*mesh_, kTargetNode, target, &result));
  FURROW_RETURN_IF_ERROR(RunUntil([&] { return result.has_value(); }, waiting));
  return *result;
}

absl::Status FabricPeer::RoundTrip(size_t bytes, Waiting waiting) {
  const uint64_t before = answers_;
  FURROW_RETURN_IF_ERROR(Send(*mesh_->link(kTargetNode)->messages, memory().first(bytes)));
  return RunUntil([&] { return answers_ > before; }, waiting);
}

}  // namespace furrow::bench
