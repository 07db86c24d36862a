#include "txn/recovery/post.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "txn/coordinator.h"
#include "txn/recovery/node_recovery.h"
#include "txn/worker.h"

namespace furrow::txn {
namespace {

constexpr Nanos kRetryNs = 20 * kMicrosecond;

}  // namespace

RecoveryPost::RecoveryPost(Worker& worker, std::function<void(NodeId, RecoveryMessage)> deliver)
    : worker_(worker), deliver_(std::move(deliver)) {}

void RecoveryPost::SetConfig(ConfigId config) {
  config_ = config;
  batches_.clear();
  // A message of which the receiver has a part goes on: parts come one after the other.
  for (auto& [node, queue] : outgoing_) {
    while (!queue.empty() && queue.back().sent == 0) queue.pop_back();
  }
}

RecoveryPost::Batch& RecoveryPost::BatchFor(NodeId node, WorkerId worker, RecoveryType type) {
  if (!std::exchange(closing_, true)) worker_.loop().Post([this] { Close(); });
  for (Batch& batch : batches_) {
    if (batch.node == node && batch.message.to_worker == worker && batch.message.type == type) return batch;
  }
  return batches_.emplace_back(
      Batch{node, {.type = type, .config = config_, .from_worker = worker_.id(), .to_worker = worker}});
}

void RecoveryPost::Add(NodeId node, WorkerId worker, RecoveryType type, RecoveryItem item) {
  BatchFor(node, worker, type).message.items.push_back(std::move(item));
}

void RecoveryPost::Close() {
  closing_ = false;
  Node& node = worker_.node();
  for (Batch& batch : std::exchange(batches_, {})) {
    if (batch.node != node.options.id) {
      outgoing_[batch.node].push_back({Encode(batch.message)});
    } else if (batch.message.to_worker == worker_.id()) {
      deliver_(batch.node, std::move(batch.message));
    } else {
      node.recovery->Forward(batch.node, std::move(batch.message));
    }
  }
  if (!Flush() && !std::exchange(flushing_, true)) worker_.loop().Spawn(FlushLater());
}

bool RecoveryPost::Flush() {
  bool empty = true;
  for (auto& [node, queue] : outgoing_) {
    LinkState* state = worker_.coordinator().LinkTo(node);
    if (state == nullptr || state->link->gone || state->link->connection == nullptr) {
      // A member that this worker is not connected with yet gets it later; for others a new configuration
      // comes.
      if (!worker_.node().current_view()->Contains(node)) queue.clear();
      empty = empty && queue.empty();
      continue;
    }
    const size_t part =
        (state->link->messages->max_record() - rdma::RecordBytes(sizeof(MessageHeader))) / 16 * 16;
    while (!queue.empty()) {
      Outgoing& next = queue.front();
      const size_t bytes = std::min(part, next.bytes.size() - next.sent);
      const absl::Status sent =
          worker_.coordinator().Send(node, MessageType::kRecovery, static_cast<uint32_t>(next.sent),
                                     std::span(next.bytes).subspan(next.sent, bytes), next.bytes.size());
      if (!sent.ok()) break;
      next.sent += bytes;
      if (next.sent == next.bytes.size()) queue.pop_front();
    }
    empty = empty && queue.empty();
  }
  return empty;
}

// Receivers handle messages without waiting for anything, so room comes.
Task<void> RecoveryPost::FlushLater() {
  do {
    co_await worker_.loop().SleepFor(kRetryNs);
  } while (!Flush());
  flushing_ = false;
}

void RecoveryPost::OnPart(const rdma::InboundRing& ring, const MessageHeader& header,
                          std::span<const std::byte> body) {
  std::vector<std::byte>& bytes = incoming_[&ring];
  if (header.count == 0) bytes.clear();
  const bool fits = header.count == bytes.size() && header.request <= kMaxMessage &&
                    bytes.size() + body.size() <= header.request;
  if (!fits) {
    bytes.clear();
    FURROW_LOG_EVERY(ERROR, kSecond) << "node " << ring.from.node.value()
                                     << " sent parts of a recovery message that do not fit together";
    return;
  }
  bytes.insert(bytes.end(), body.begin(), body.end());
  if (bytes.size() < header.request) return;
  std::optional<RecoveryMessage> message = ParseRecovery(bytes);
  incoming_.erase(&ring);
  if (!message.has_value()) {
    FURROW_LOG_EVERY(ERROR, kSecond)
        << "node " << ring.from.node.value()
        << " sent a malformed recovery message; do both sides run the same version?";
    return;
  }
  if (message->to_worker == worker_.id()) return deliver_(ring.from.node, *std::move(message));
  if (worker_.node().recovery != nullptr)
    worker_.node().recovery->Forward(ring.from.node, *std::move(message));
}

}  // namespace furrow::txn
