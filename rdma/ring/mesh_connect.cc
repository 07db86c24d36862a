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

absl::Status PrepareRing(OwnRing& ring, Fabric& fabric, MemoryFile memory, uint32_t capacity, uint64_t nonce,
                         InboundRing::Kind kind, WorkerIdentity from) {
  ring.memory = std::move(memory);
  FURROW_ASSIGN_OR_RETURN(ring.registration, fabric.Register(ring.memory, Access::kWrite));
  ring.inbound.kind = kind;
  ring.inbound.from = from;
  ring.inbound.reader =
      std::make_unique<RingReader>(ring.memory.bytes().subspan(0, kRingHeadBytes + capacity), nonce);
  return absl::OkStatus();
}

const uint64_t* WordAt(const std::byte* p) { return reinterpret_cast<const uint64_t*>(p); }

// What a Connect() that is under way and the coroutine that waits for it share; either may go first.
struct Connecting {
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

}  // namespace

absl::StatusOr<WorkerId> ConnectingWorker(const ConnectRequest& request) {
  FURROW_ASSIGN_OR_RETURN(MeshRequest wire, UnpackRequest(request.private_data));
  return WorkerId(wire.from.worker);
}

absl::StatusOr<std::unique_ptr<RingMesh::Peer>> RingMesh::PreparePeer(NodeId node) {
  auto peer = std::make_unique<Peer>();
  peer->link.node = node;
  FURROW_ASSIGN_OR_RETURN(peer->log_head, TakeHeadWord());
  FURROW_ASSIGN_OR_RETURN(peer->message_head, TakeHeadWord());
  FURROW_ASSIGN_OR_RETURN(MemoryFile memory, MakeMemory(absl::StrCat("replies-n", node.value()),
                                                        kRingHeadBytes + options_.reply_ring_bytes));
  const uint64_t nonce = EntropySeed();
  FURROW_RETURN_IF_ERROR(PrepareRing(peer->replies, fabric_, std::move(memory), options_.reply_ring_bytes,
                                     nonce, InboundRing::Kind::kReplies,
                                     WorkerIdentity{node, Incarnation(), WorkerId()}));
  peer->request = Pack(MeshRequest{.from = ToWire(self_identity_),
                                   .replies = ToWire(peer->replies.Descriptor(kReplyChannel, nonce)),
                                   .log_head = ToWire(AddressOfWord(peer->log_head)),
                                   .message_head = ToWire(AddressOfWord(peer->message_head))});
  return peer;
}

absl::Status RingMesh::FinishPeer(Peer& peer, std::unique_ptr<Connection> connection) {
  FURROW_ASSIGN_OR_RETURN(MeshAnswer answer, UnpackAnswer(connection->peer_private_data()));
  if (answer.from.node != peer.link.node.value()) {
    return absl::FailedPreconditionError(absl::StrCat("node ", answer.from.node, " answers where node ",
                                                      peer.link.node.value(), " was expected"));
  }
  FURROW_RETURN_IF_ERROR(CheckRing(answer.log, options_.max_log_record));
  FURROW_RETURN_IF_ERROR(CheckRing(answer.messages, options_.max_message));
  peer.connection = std::move(connection);
  peer.link.connection = peer.connection.get();
  peer.link.log = std::make_unique<RingWriter>(*peer.connection, FromWire(answer.log), WordAt(peer.log_head),
                                               options_.max_log_record);
  peer.link.messages = std::make_unique<RingWriter>(*peer.connection, FromWire(answer.messages),
                                                    WordAt(peer.message_head), options_.max_message);
  // The peer sees our head late by up to the threshold of the returner, and keeps one record back for a lap's
  // end.
  peer.link.reply_room = options_.reply_ring_bytes - options_.reply_ring_bytes / 8 - options_.max_message;
  peer.replies.inbound.from = FromWire(answer.from);
  peer.replies.inbound.heads = std::make_unique<HeadReturner>(
      peer.connection.get(), FromWire(answer.reply_head), options_.reply_ring_bytes);
  peer.wires.replies = &peer.replies.inbound;
  peer.wires.link = &peer.link;
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
                    state->result.emplace(std::move(result));
                    if (state->waiter) loop.Schedule(std::exchange(state->waiter, {}));
                  });
  {
    Connecting::Awaiter awaiter{*state};
    co_await awaiter;
  }
  if (!state->result->ok()) co_return state->result->status();
  if (connected()) co_return absl::OkStatus();  // another coroutine was faster
  peers_.push_back(std::move(peer));
  absl::Status finished = FinishPeer(*peers_.back(), std::move(**state->result));
  if (!finished.ok()) peers_.pop_back();
  co_return finished;
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
  FURROW_ASSIGN_OR_RETURN(accepted->reply_head, TakeHeadWord());
  std::string suffix = absl::StrCat("-n", from.node.value(), "-w", from.worker.value());
  FURROW_ASSIGN_OR_RETURN(MemoryFile log,
                          MakeMemory(absl::StrCat("log", suffix), kRingHeadBytes + options_.log_ring_bytes));
  FURROW_ASSIGN_OR_RETURN(MemoryFile messages, MakeMemory(absl::StrCat("messages", suffix),
                                                          kRingHeadBytes + options_.message_ring_bytes));
  const uint64_t log_nonce = EntropySeed();
  const uint64_t message_nonce = EntropySeed();
  FURROW_RETURN_IF_ERROR(PrepareRing(accepted->log, fabric_, std::move(log), options_.log_ring_bytes,
                                     log_nonce, InboundRing::Kind::kLog, from));
  FURROW_RETURN_IF_ERROR(PrepareRing(accepted->messages, fabric_, std::move(messages),
                                     options_.message_ring_bytes, message_nonce, InboundRing::Kind::kMessages,
                                     from));
  MeshAnswer answer{.from = ToWire(self_identity_),
                    .log = ToWire(accepted->log.Descriptor(kLogChannel, log_nonce)),
                    .messages = ToWire(accepted->messages.Descriptor(kMessageChannel, message_nonce)),
                    .reply_head = ToWire(AddressOfWord(accepted->reply_head))};
  MutexLock lock(&mutex_);
  // An earlier attempt of the same worker has come to nothing.
  std::erase_if(pending_, [&](const auto& p) {
    return p->log.inbound.from.node == from.node && p->log.inbound.from.worker == from.worker;
  });
  pending_.push_back(std::move(accepted));
  return AcceptDecision{.queue = &queue_, .private_data = Pack(answer)};
}

void RingMesh::OnConnected(Connection& connection) {
  std::unique_ptr<Connection> owned = queue_.TakeAccepted(&connection);
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
      connection, accepted->reply_ring, WordAt(accepted->reply_head), options_.max_message);
  accepted->messages.inbound.reply_owner = &accepted->log.inbound;
  accepted->wires.log = &accepted->log.inbound;
  accepted->wires.messages = &accepted->messages.inbound;
  connection.set_context(&accepted->wires);
  inbound_.push_back(&accepted->log.inbound);
  inbound_.push_back(&accepted->messages.inbound);
  // What was written before the connection was known here.
  Notify(&accepted->log.inbound);
  Notify(&accepted->messages.inbound);
  accepted_.push_back(std::move(accepted));
}

}  // namespace furrow::rdma
