// How the connections and rings of a mesh come to be.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rdma/ring/mesh.h"
#include "rdma/ring/mesh_parts.h"
#include "rdma/ring/mesh_wire.h"

namespace furrow::rdma {
namespace {

// A ring for one peer to write.
absl::Status PrepareRing(OwnRing& ring, Fabric& fabric, const std::function<void(MemoryFile)>& free,
                         absl::StatusOr<MemoryFile> memory, uint32_t capacity, uint64_t nonce,
                         InboundRing::Kind kind, WorkerIdentity from) {
  if (!memory.ok()) return memory.status();
  ring.memory = RingMemory(*std::move(memory), capacity, free);
  FURROW_RETURN_IF_ERROR(ring.memory.Register(fabric));
  ring.inbound.kind = kind;
  ring.inbound.from = from;
  ring.inbound.reader = std::make_unique<RingReader>(ring.memory.ring(), nonce);
  return absl::OkStatus();
}

}  // namespace

// What a Connect() that is under way and the coroutine that waits for it share; either may go first.
struct RingMesh::Connecting {
  Wires wires;  // the connection's context until it belongs to a Peer
  std::optional<absl::StatusOr<std::unique_ptr<Connection>>> result;
  std::coroutine_handle<> waiter;

  struct Awaiter {
    Connecting& state;
    bool await_ready() const noexcept { return state.result.has_value(); }
    void await_suspend(std::coroutine_handle<> h) const noexcept { state.waiter = h; }
    void await_resume() const noexcept {}
    ~Awaiter() { state.waiter = {}; }
  };
};

absl::StatusOr<WorkerId> ConnectingWorker(const ConnectRequest& request) {
  FURROW_ASSIGN_OR_RETURN(MeshRequest wire, UnpackRequest(request.private_data));
  return WorkerId(wire.from.worker);
}

absl::StatusOr<std::unique_ptr<RingMesh::Peer>> RingMesh::PreparePeer(NodeId node) {
  auto peer = std::make_unique<Peer>();
  peer->link.node = node;
  const uint64_t nonce = EntropySeed();
  FURROW_RETURN_IF_ERROR(PrepareRing(peer->replies, fabric_, options_.free_memory,
                                     MakeMemory(absl::StrCat("replies-n", node.value()),
                                                RingMemory::Bytes(options_.reply_ring_bytes, kPeerWords)),
                                     options_.reply_ring_bytes, nonce, InboundRing::Kind::kReplies,
                                     WorkerIdentity{node, Incarnation(), WorkerId()}));
  const RingMemory& memory = peer->replies.memory;
  peer->request = Pack(MeshRequest{.from = ToWire(self_identity_),
                                   .replies = ToWire(memory.Descriptor(kReplyChannel, nonce)),
                                   .log_head = ToWire(memory.AddressOfWord(kLogHeadWord)),
                                   .message_head = ToWire(memory.AddressOfWord(kMessageHeadWord))});
  return peer;
}

absl::Status RingMesh::FinishPeer(Peer& peer, Connecting& connecting) {
  std::unique_ptr<Connection> connection = **std::move(connecting.result);
  // Its kDisconnected has been polled already: nobody would hear of it again.
  if (connecting.wires.lost || connection->failed()) {
    return absl::UnavailableError(absl::StrCat("node ", peer.link.node.value(), " is gone again"));
  }
  FURROW_ASSIGN_OR_RETURN(MeshAnswer answer, UnpackAnswer(connection->peer_private_data()));
  if (answer.from.node != peer.link.node.value()) {
    return absl::FailedPreconditionError(absl::StrCat("node ", answer.from.node, " answers where node ",
                                                      peer.link.node.value(), " was expected"));
  }
  FURROW_RETURN_IF_ERROR(CheckRing(answer.log, options_.max_log_record));
  FURROW_RETURN_IF_ERROR(CheckRing(answer.messages, options_.max_message));
  peer.connection = std::move(connection);
  peer.link.connection = peer.connection.get();
  const RingMemory& memory = peer.replies.memory;
  peer.link.log = std::make_unique<RingWriter>(*peer.connection, FromWire(answer.log),
                                               memory.word(kLogHeadWord), options_.max_log_record);
  peer.link.messages = std::make_unique<RingWriter>(*peer.connection, FromWire(answer.messages),
                                                    memory.word(kMessageHeadWord), options_.max_message);
  // The peer sees our head late by up to the threshold of the returner, and keeps one record back for a lap's
  // end.
  peer.link.reply_room = options_.reply_ring_bytes - options_.reply_ring_bytes / 8 - options_.max_message;
  peer.replies.inbound.from = FromWire(answer.from);
  peer.replies.inbound.heads = std::make_unique<HeadReturner>(
      peer.connection.get(), FromWire(answer.reply_head), options_.reply_ring_bytes);
  peer.wires.peer = &peer;
  peer.connection->set_context(&peer.wires);
  inbound_.push_back(&peer.replies.inbound);
  return absl::OkStatus();
}

Task<absl::Status> RingMesh::ConnectTo(NodeId node, Endpoint endpoint) {
  const auto connected = [this, node] {
    const OutboundLink* known = link(node);
    return known != nullptr && !known->gone;
  };
  if (connected()) co_return absl::OkStatus();
  FURROW_CO_ASSIGN_OR_RETURN(std::unique_ptr<Peer> peer, PreparePeer(node));
  auto state = std::make_shared<Connecting>();
  fabric_.Connect(queue_, loop_, endpoint, peer->request, options_.limits, options_.connect_timeout_ns,
                  [state, &loop = loop_](absl::StatusOr<std::unique_ptr<Connection>> result) {
                    if (result.ok()) (*result)->set_context(&state->wires);
                    state->result.emplace(std::move(result));
                    if (state->waiter) loop.Schedule(std::exchange(state->waiter, {}));
                  });
  {
    Connecting::Awaiter awaiter{*state};
    co_await awaiter;
  }
  if (!state->result->ok()) co_return state->result->status();
  if (connected()) co_return absl::OkStatus();  // another coroutine was faster
  FURROW_CO_RETURN_IF_ERROR(FinishPeer(*peer, *state));
  peers_.push_back(std::move(peer));
  co_return absl::OkStatus();
}

absl::StatusOr<AcceptDecision> RingMesh::PrepareAccept(const ConnectRequest& request) {
  FURROW_ASSIGN_OR_RETURN(MeshRequest wire, UnpackRequest(request.private_data));
  WorkerIdentity from = FromWire(wire.from);
  if (from.node != request.peer) return absl::FailedPreconditionError("a peer gave two different node ids");
  FURROW_RETURN_IF_ERROR(CheckRing(wire.replies, options_.max_message));
  auto accepted = std::make_unique<Accepted>();
  accepted->request = std::string(request.private_data);
  accepted->reply_ring = FromWire(wire.replies);
  accepted->log_head = FromWire(wire.log_head);
  accepted->message_head = FromWire(wire.message_head);
  const std::string suffix = absl::StrCat("-n", from.node.value(), "-w", from.worker.value());
  const uint64_t log_nonce = EntropySeed();
  const uint64_t message_nonce = EntropySeed();
  FURROW_RETURN_IF_ERROR(
      PrepareRing(accepted->log, fabric_, options_.free_memory,
                  MakeMemory(absl::StrCat("log", suffix), RingMemory::Bytes(options_.log_ring_bytes, 0)),
                  options_.log_ring_bytes, log_nonce, InboundRing::Kind::kLog, from));
  FURROW_RETURN_IF_ERROR(
      PrepareRing(accepted->messages, fabric_, options_.free_memory,
                  MakeMemory(absl::StrCat("messages", suffix),
                             RingMemory::Bytes(options_.message_ring_bytes, kAcceptedWords)),
                  options_.message_ring_bytes, message_nonce, InboundRing::Kind::kMessages, from));
  MeshAnswer answer{.from = ToWire(self_identity_),
                    .log = ToWire(accepted->log.memory.Descriptor(kLogChannel, log_nonce)),
                    .messages = ToWire(accepted->messages.memory.Descriptor(kMessageChannel, message_nonce)),
                    .reply_head = ToWire(accepted->messages.memory.AddressOfWord(kReplyHeadWord))};
  std::vector<std::unique_ptr<Accepted>> discarded;  // their memory goes back without the lock
  MutexLock lock(&mutex_);
  // An earlier attempt of the same worker has come to nothing.
  for (std::unique_ptr<Accepted>& prepared : pending_) {
    const WorkerIdentity& other = prepared->log.inbound.from;
    if (other.node == from.node && other.worker == from.worker) discarded.push_back(std::move(prepared));
  }
  std::erase(pending_, nullptr);
  pending_.push_back(std::move(accepted));
  return AcceptDecision{.queue = &queue_, .private_data = Pack(answer)};
}

void RingMesh::OnConnected(Connection& connection) {
  std::unique_ptr<Connection> owned = queue_.TakeAccepted(&connection);
  if (owned == nullptr) return;  // gone again
  std::unique_ptr<Accepted> accepted;
  {
    MutexLock lock(&mutex_);
    auto it = std::find_if(pending_.begin(), pending_.end(),
                           [&](const auto& p) { return p->request == owned->peer_private_data(); });
    if (it == pending_.end()) {
      // Its request was replaced meanwhile. It closes in the next round: this one may still have events of
      // it.
      strangers_.push_back(std::move(owned));
      return;
    }
    accepted = std::move(*it);
    pending_.erase(it);
  }
  accepted->connection = std::move(owned);
  accepted->log.inbound.heads =
      std::make_unique<HeadReturner>(&connection, accepted->log_head, options_.log_ring_bytes);
  accepted->messages.inbound.heads =
      std::make_unique<HeadReturner>(&connection, accepted->message_head, options_.message_ring_bytes);
  accepted->log.inbound.reply_to = std::make_unique<RingWriter>(
      connection, accepted->reply_ring, accepted->messages.memory.word(kReplyHeadWord), options_.max_message);
  accepted->messages.inbound.reply_owner = &accepted->log.inbound;
  accepted->wires.accepted = accepted.get();
  connection.set_context(&accepted->wires);
  inbound_.push_back(&accepted->log.inbound);
  inbound_.push_back(&accepted->messages.inbound);
  // What was written before the connection was known here.
  Notify(&accepted->log.inbound);
  Notify(&accepted->messages.inbound);
  accepted_.push_back(std::move(accepted));
}

}  // namespace furrow::rdma
