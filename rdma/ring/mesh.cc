#include "rdma/ring/mesh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rdma/ring/mesh_parts.h"

namespace furrow::rdma {
namespace {

// Records of one ring that are delivered before others get a turn.
constexpr int kDeliverBatch = 64;

}  // namespace

RingMesh::RingMesh(EventLoop& loop, Fabric& fabric, CompletionQueue& queue, WorkerIdentity self,
                   MeshOptions options, RecordHandler& handler)
    : loop_(loop),
      fabric_(fabric),
      queue_(queue),
      self_identity_(self),
      options_(std::move(options)),
      handler_(handler),
      completions_(queue, *this) {
  loop_.AddPoller(this);
}

RingMesh::~RingMesh() { loop_.RemovePoller(this); }

absl::Status RingMesh::Start() {
  FURROW_ASSIGN_OR_RETURN(MemoryFile small, MakeMemory("staging-small", options_.staging_bytes / 8));
  FURROW_ASSIGN_OR_RETURN(MemoryFile large,
                          MakeMemory("staging", options_.staging_bytes - options_.staging_bytes / 8));
  FURROW_ASSIGN_OR_RETURN(staging_, Staging::Create(fabric_, std::move(small), std::move(large)));
  return MakeSelfRing();
}

absl::StatusOr<MemoryFile> RingMesh::MakeMemory(const std::string& name, size_t bytes) {
  uint64_t number;
  {
    MutexLock lock(&mutex_);
    number = next_name_++;
  }
  return options_.make_memory(absl::StrCat(name, "-w", self_identity_.worker.value(), "-", number), bytes);
}

absl::Status RingMesh::MakeSelfRing() {
  self_rings_ = std::make_unique<Accepted>();
  OwnRing& ring = self_rings_->log;
  FURROW_ASSIGN_OR_RETURN(MemoryFile file,
                          MakeMemory("log-self", RingMemory::Bytes(options_.log_ring_bytes, 0)));
  ring.memory = RingMemory(std::move(file), options_.log_ring_bytes, options_.free_memory);
  const uint64_t nonce = EntropySeed();
  const std::span<std::byte> bytes = ring.memory.ring();
  ring.inbound.kind = InboundRing::Kind::kLog;
  ring.inbound.from = self_identity_;
  ring.inbound.reader = std::make_unique<RingReader>(bytes, nonce);
  inbound_.push_back(&ring.inbound);
  self_ = std::make_unique<OutboundLink>();
  self_->node = self_identity_.node;
  self_->log = std::make_unique<RingWriter>(bytes, nonce, options_.max_log_record);
  return absl::OkStatus();
}

OutboundLink* RingMesh::link(NodeId node) {
  if (node == self_identity_.node) return self_.get();
  for (auto peer = peers_.rbegin(); peer != peers_.rend(); ++peer) {
    if ((*peer)->link.node == node && (*peer)->connection != nullptr) return &(*peer)->link;
  }
  return nullptr;
}

absl::StatusOr<std::span<std::byte>> RingMesh::StageRecord(size_t bytes) { return staging_->Take(bytes); }
void RingMesh::ReleaseStaged(std::span<std::byte> body) { staging_->Give(body); }

// --- delivery ---

void RingMesh::Notify(InboundRing* ring) {
  if (ring == nullptr || ring->notified) return;
  ring->notified = true;
  notified_.push_back(ring);
}

bool RingMesh::Deliver(InboundRing& ring, int limit, bool* any) {
  for (int i = 0; i < limit; ++i) {
    if (ring.closed) return false;
    std::optional<RingRecord> record = ring.reader->Next();
    if (!record.has_value()) return false;
    *any = true;
    in_handler_ = true;
    handler_.OnRecord(ring, *record);
    in_handler_ = false;
  }
  return true;
}

bool RingMesh::PollQueue() {
  const bool any = completions_.Poll();
  LoseQueued();
  return any;
}

void RingMesh::LoseQueued() {
  while (!lost_.empty() && !in_handler_) {
    Connection* connection = lost_.back();
    lost_.pop_back();
    Lose(*connection);
  }
}

bool RingMesh::Poll() {
  strangers_.clear();
  bool any = PollQueue();
  if (notified_.empty()) return any;
  delivering_.swap(notified_);
  for (InboundRing* ring : delivering_) {
    ring->notified = false;
    if (Deliver(*ring, kDeliverBatch, &any)) Notify(ring);
  }
  delivering_.clear();
  return any;
}

bool RingMesh::PollAll() {
  bool any = PollQueue();
  for (size_t i = 0; i < inbound_.size(); ++i) {
    if (Deliver(*inbound_[i], kDeliverBatch, &any)) Notify(inbound_[i]);
  }
  return any;
}

void RingMesh::DeliverSelf() {
  if (in_handler_) return;
  bool any = false;
  while (Deliver(self_rings_->log.inbound, kDeliverBatch, &any)) {
  }
}

void RingMesh::DrainLogs() {
  PollQueue();
  bool any = false;
  for (size_t i = 0; i < inbound_.size(); ++i) {
    if (inbound_[i]->kind != InboundRing::Kind::kLog) continue;
    while (Deliver(*inbound_[i], kDeliverBatch, &any)) {
    }
  }
}

void RingMesh::Withdraw(const InboundRing& ring) {
  for (const std::unique_ptr<Accepted>& accepted : accepted_) {
    if (&accepted->log.inbound == &ring) accepted->log.memory.Withdraw();
    if (&accepted->messages.inbound == &ring) accepted->messages.memory.Withdraw();
  }
}

void RingMesh::Evict(const std::function<bool(const WorkerIdentity&)>& is_member) {
  FURROW_CHECK(!in_handler_);
  {
    MutexLock lock(&mutex_);
    std::erase_if(pending_, [&](const auto& prepared) { return !is_member(prepared->log.inbound.from); });
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!is_member(peers_[i]->replies.inbound.from)) LosePeer(*peers_[i]);
  }
  for (size_t i = 0; i < accepted_.size(); ++i) {
    Accepted& accepted = *accepted_[i];
    if (is_member(accepted.log.inbound.from)) continue;
    accepted.log.memory.Withdraw();
    accepted.messages.memory.Withdraw();
    LoseAccepted(accepted);
  }
}

void RingMesh::ReturnHeads() {
  for (InboundRing* ring : inbound_) {
    if (ring->heads != nullptr && !ring->closed) ring->heads->Return(ring->reader->released(), true);
  }
}

// --- events of the queue ---

void RingMesh::OnNotified(Connection& connection, uint8_t channel) {
  auto* wires = static_cast<Wires*>(connection.context());
  if (wires == nullptr) return;
  if (wires->peer != nullptr) {
    if (channel == kReplyChannel) Notify(&wires->peer->replies.inbound);
    return;
  }
  if (channel == kLogChannel) Notify(&wires->accepted->log.inbound);
  if (channel == kMessageChannel) Notify(&wires->accepted->messages.inbound);
}

void RingMesh::OnReceived(Connection&, uint64_t, uint32_t) {}  // the mesh posts no receives

void RingMesh::OnDisconnected(Connection& connection) {
  // The handler may have posted and polled: it is told when it has returned.
  if (in_handler_) {
    lost_.push_back(&connection);
  } else {
    Lose(connection);
  }
}

// --- ends ---

void RingMesh::Lose(Connection& connection) {
  auto* wires = static_cast<Wires*>(connection.context());
  if (wires == nullptr) return;
  wires->lost = true;
  if (wires->peer != nullptr) LosePeer(*wires->peer);
  if (wires->accepted != nullptr) LoseAccepted(*wires->accepted);
}

// A peer that has left in good order has no record here any more. One that died may have: recovery will ask
// for them. Writers outlive the memory that their head words lie in.
void RingMesh::LosePeer(Peer& peer) {
  Close(peer.replies.inbound);
  if (!peer.link.gone) {
    peer.link.gone = true;
    handler_.OnLinkLost(peer.link);
  }
  peer.link.log->Detach();
  peer.link.messages->Detach();
  peer.replies.GiveBackIfReleased();
}

void RingMesh::LoseAccepted(Accepted& accepted) {
  Close(accepted.log.inbound);
  Close(accepted.messages.inbound);
  accepted.log.inbound.reply_to->Detach();
  accepted.log.GiveBackIfReleased();
  accepted.messages.GiveBackIfReleased();
}

void RingMesh::Close(InboundRing& ring) {
  if (ring.ended) return;
  bool any = false;
  while (Deliver(ring, kDeliverBatch, &any)) {
  }
  ring.heads.reset();
  ring.ended = true;
  handler_.OnRingClosed(ring);
  ring.closed = true;
}

void RingMesh::ForgetRing(const InboundRing& ring) {
  std::erase(inbound_, &ring);
  std::erase(notified_, &ring);
}

void RingMesh::Collect() {
  FURROW_CHECK(!in_handler_ && delivering_.empty());
  // The handler gives a link up whose connection has failed; the peer itself may be well. Losing calls the
  // handler, which may look at any link and poll, so nothing is destroyed before it is done.
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->link.gone && !peers_[i]->replies.inbound.ended) LosePeer(*peers_[i]);
  }
  LoseQueued();
  std::erase_if(peers_, [this](const std::unique_ptr<Peer>& peer) {
    if (!peer->over()) return false;
    ForgetRing(peer->replies.inbound);
    return true;
  });
  std::erase_if(accepted_, [this](const std::unique_ptr<Accepted>& accepted) {
    if (!accepted->over()) return false;
    ForgetRing(accepted->log.inbound);
    ForgetRing(accepted->messages.inbound);
    return true;
  });
  CollectPending();
}

// The fabric queues the connection right after PrepareAccept(), so a poll finds it, unless the attempt has
// failed. A prepared one whose time is over goes with the call after the one that notices it: between the two
// the queue was polled, also where the whole process was stopped for long.
void RingMesh::CollectPending() {
  std::vector<std::unique_ptr<Accepted>> discarded;  // their memory goes back without the lock
  const Nanos now = loop_.Now();
  MutexLock lock(&mutex_);
  for (std::unique_ptr<Accepted>& prepared : pending_) {
    if (prepared->discard_at == 0) prepared->discard_at = now + options_.connect_timeout_ns;
    if (prepared->overdue) {
      discarded.push_back(std::move(prepared));
    } else {
      prepared->overdue = now >= prepared->discard_at;
    }
  }
  std::erase(pending_, nullptr);
}

RingMesh::Counts RingMesh::counts() const {
  MutexLock lock(&mutex_);
  return Counts{.links = peers_.size(), .accepted = accepted_.size(), .pending = pending_.size()};
}

}  // namespace furrow::rdma
