// A worker with a mesh that keeps what it is told, and an account of the memory of rings: for tests of the
// mesh over any fabric.
#ifndef FURROW_RDMA_RING_MESH_TEST_WORKER_H_
#define FURROW_RDMA_RING_MESH_TEST_WORKER_H_

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "rdma/operation.h"
#include "rdma/ring/mesh.h"
#include "rdma/ring/mesh_wire.h"

namespace furrow::rdma {

// Memory of rings that was made and not given back. Thread-safe.
class RingAccount {
 public:
  struct Use {
    size_t files = 0;
    size_t bytes = 0;
    friend bool operator==(const Use&, const Use&) = default;
  };
  void Serve(MeshOptions& options) {
    options.make_memory = [state = state_](const std::string&, size_t bytes) -> absl::StatusOr<MemoryFile> {
      absl::StatusOr<MemoryFile> file = MemoryFile::Anonymous(bytes);
      if (file.ok()) state->Add(1, file->size());
      return file;
    };
    options.free_memory = [state = state_](MemoryFile file) {
      state->Add(size_t{0} - 1, size_t{0} - file.size());
    };
  }
  Use use() const {
    MutexLock lock(&state_->mutex);
    return state_->use;
  }

 private:
  // Outlives the account: meshes give back what they have when they are destroyed.
  struct State {
    void Add(size_t files, size_t bytes) {
      MutexLock lock(&mutex);
      use.files += files;
      use.bytes += bytes;
    }
    mutable Mutex mutex;
    Use use ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline MeshOptions SmallMesh() {
  MeshOptions options;
  options.log_ring_bytes = 16 << 10;
  options.message_ring_bytes = 8 << 10;
  options.reply_ring_bytes = 8 << 10;
  options.max_log_record = 2048;
  options.max_message = 1024;
  options.staging_bytes = 64 << 10;
  options.make_memory = [](const std::string&, size_t bytes) { return MemoryFile::Anonymous(bytes); };
  return options;
}

// What the mesh of such a worker says when it connects; its rings and words are nowhere.
inline std::string RequestOf(uint32_t node, uint64_t nonce) {
  MeshRequest request{};
  request.from = ToWire(WorkerIdentity{NodeId(node), Incarnation(1), WorkerId(0)});
  request.replies.capacity = SmallMesh().reply_ring_bytes;
  request.replies.nonce = nonce;
  return Pack(request);
}

struct MeshTestWorker : RecordHandler {
  using Notify = WorkRequest::Notify;
  struct Heard {
    InboundRing::Kind kind;
    WorkerIdentity from;
    std::string text;
  };
  MeshTestWorker(Fabric& fabric, const Clock& clock, WorkerIdentity identity, MeshOptions options)
      : queue(*fabric.CreateCompletionQueue()),
        loop(clock, queue->parker()),
        mesh(loop, fabric, *queue, identity, std::move(options), *this) {
    EXPECT_TRUE(mesh.Start().ok());
  }
  ~MeshTestWorker() override { loop.DestroyTasks(); }

  void OnRecord(InboundRing& ring, const RingRecord& record) override {
    heard.push_back({ring.kind, ring.from,
                     std::string(reinterpret_cast<const char*>(record.body.data()), record.body.size())});
    if (release) {
      ring.reader->Release(record.end);
      if (ring.heads != nullptr) ring.heads->Return(record.end, false);
    }
    if (on_record) on_record(ring, heard.back().text);
  }
  void OnRingClosed(InboundRing& ring) override {
    closed.push_back(ring.kind);
    if (on_closed) on_closed(ring);
  }
  void OnLinkLost(OutboundLink& link) override {
    lost.push_back(link.node);
    if (on_lost) on_lost(link);
  }

  absl::Status Put(RingWriter& writer, const std::string& text, Notify notify = Notify::kWake) {
    if (!writer.Reserve(RecordBytes(text.size()))) return absl::ResourceExhaustedError("no room in the ring");
    absl::StatusOr<std::span<std::byte>> body = mesh.StageRecord(text.size());
    if (!body.ok()) return body.status();
    std::memcpy(body->data(), text.data(), text.size());
    auto* sent = new Sent(mesh, *body);
    const absl::Status status = writer.Append({*body, HashBody(*body)}, sent->id(), notify);
    if (!status.ok()) Operation::Complete(sent->id(), CompletionStatus::kFlushed);
    return status;
  }
  // Starts to connect; `result` is set when that has ended.
  void Connect(NodeId node, Endpoint endpoint, std::optional<absl::Status>* result) {
    loop.Spawn(Await(mesh, node, std::move(endpoint), result));
  }

  std::unique_ptr<CompletionQueue> queue;
  EventLoop loop;
  std::deque<Heard> heard;
  std::vector<InboundRing::Kind> closed;
  std::vector<NodeId> lost;
  bool release = true;
  std::function<void(InboundRing&, const std::string&)> on_record;
  std::function<void(OutboundLink&)> on_lost;
  std::function<void(InboundRing&)> on_closed;
  RingMesh mesh;

 private:
  // Gives the body back when its WRITE has ended.
  struct Sent : Operation {
    Sent(RingMesh& m, std::span<std::byte> b) : Operation(&Sent::Done), mesh(m), body(b) {}
    static void Done(Operation* self, CompletionStatus) {
      std::unique_ptr<Sent> sent(static_cast<Sent*>(self));
      sent->mesh.ReleaseStaged(sent->body);
    }
    RingMesh& mesh;
    std::span<std::byte> body;
  };
  static Task<void> Await(RingMesh& mesh, NodeId node, Endpoint endpoint,
                          std::optional<absl::Status>* result) {
    *result = co_await mesh.ConnectTo(node, std::move(endpoint));
  }
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_MESH_TEST_WORKER_H_
