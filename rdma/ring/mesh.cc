#include "rdma/ring/mesh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rdma/ring/mesh_parts.h"

namespace furrow::rdma {
namespace {

// Words for heads, one cache line each: three per pair of workers, so for over 300 of them.
constexpr size_t kWordsBytes = 64 << 10;
constexpr size_t kWordStride = 64;
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
  FURROW_ASSIGN_OR_RETURN(words_, MakeMemory("heads", kWordsBytes));
  FURROW_ASSIGN_OR_RETURN(words_registration_, fabric_.Register(words_, Access::kWrite));
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

absl::StatusOr<std::byte*> RingMesh::TakeHeadWord() {
  MutexLock lock(&mutex_);
  if (words_used_ + kWordStride > words_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a worker can have rings with at most ", kWordsBytes / kWordStride / 3, " workers of other nodes"));
  }
  std::byte* word = words_.data() + words_used_;
  words_used_ += kWordStride;
  return word;
}

RemoteAddress RingMesh::AddressOfWord(const std::byte* word) const {
  return words_registration_->remote_address().Plus(static_cast<uint64_t>(word - words_.data()));
}

absl::Status RingMesh::MakeSelfRing() {
  self_rings_ = std::make_unique<Accepted>();
  OwnRing& ring = self_rings_->log;
  FURROW_ASSIGN_OR_RETURN(ring.memory, MakeMemory("log-self", kRingHeadBytes + options_.log_ring_bytes));
  const uint64_t nonce = EntropySeed();
  // Memory files are rounded up to pages; a ring's data is exactly its capacity.
  std::span<std::byte> bytes = ring.memory.bytes().subspan(0, kRingHeadBytes + options_.log_ring_bytes);
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
  while (!lost_.empty() && !in_handler_) {
    Connection* connection = lost_.back();
    lost_.pop_back();
    Lose(*connection);
  }
  return any;
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

void RingMesh::ReturnHeads() {
  for (InboundRing* ring : inbound_) {
    if (ring->heads != nullptr && !ring->closed) ring->heads->Return(ring->reader->released(), true);
  }
}

// --- events of the queue ---

void RingMesh::OnNotified(Connection& connection, uint8_t channel) {
  auto* wires = static_cast<Wires*>(connection.context());
  if (wires == nullptr) return;
  switch (channel) {
    case kLogChannel:
      return Notify(wires->log);
    case kMessageChannel:
      return Notify(wires->messages);
    case kReplyChannel:
      return Notify(wires->replies);
    default:
      return;
  }
}

void RingMesh::OnReceived(Connection&, uint64_t, uint32_t) {}  // the mesh posts no receives

void RingMesh::Close(InboundRing* ring) {
  if (ring == nullptr || ring->closed) return;
  bool any = false;
  while (Deliver(*ring, kDeliverBatch, &any)) {
  }
  ring->heads.reset();
  handler_.OnRingClosed(*ring);
  ring->closed = true;
  // A peer that has left in good order has no record here any more. One that died may have: recovery will ask
  // for them.
  if (ring->reader->held() == 0) FreeMemory(*ring);
}

void RingMesh::FreeMemory(InboundRing& ring) {
  auto free = [&](OwnRing& own) {
    if (&own.inbound != &ring) return;
    ring.reader->Detach();
    own.registration.reset();
    MemoryFile memory = std::move(own.memory);
    if (options_.free_memory) options_.free_memory(std::move(memory));
  };
  for (const auto& accepted : accepted_) {
    free(accepted->log);
    free(accepted->messages);
  }
  for (const auto& peer : peers_) free(peer->replies);
}

void RingMesh::OnDisconnected(Connection& connection) {
  // The handler may have posted and polled: it is told when it has returned.
  if (in_handler_) {
    lost_.push_back(&connection);
  } else {
    Lose(connection);
  }
}

void RingMesh::Lose(Connection& connection) {
  auto* wires = static_cast<Wires*>(connection.context());
  if (wires == nullptr) return;
  Close(wires->log);
  Close(wires->messages);
  Close(wires->replies);
  if (wires->link != nullptr && !wires->link->gone) {
    wires->link->gone = true;
    handler_.OnLinkLost(*wires->link);
  }
}

}  // namespace furrow::rdma
