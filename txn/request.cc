// Requests to other nodes and their answers. The asker reserves the answer's room in its own reply ring
// before it asks, so an answer always finds room.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "txn/coordinator.h"

namespace furrow::txn {
namespace {

// A member that is alive answers in microseconds to milliseconds; one that is gone ends the call through
// OnLinkLost.
constexpr Nanos kCallDeadlineNs = 10 * kSecond;

}  // namespace

Task<absl::StatusOr<std::vector<std::byte>>> Coordinator::Call(NodeId node, MessageType type, uint32_t count,
                                                               std::span<const std::byte> body,
                                                               size_t answer_bytes) {
  PendingCall call(*this);
  FURROW_CO_RETURN_IF_ERROR(co_await StartCall(call, node, type, count, body, answer_bytes));
  FURROW_CO_RETURN_IF_ERROR(co_await FinishCall(call));
  co_return std::move(call.answer);
}

Task<absl::Status> Coordinator::StartCall(PendingCall& call, NodeId node, MessageType type, uint32_t count,
                                          std::span<const std::byte> body, size_t answer_bytes,
                                          Nanos deadline) {
  deadline = std::min(deadline, worker_.loop().Now() + kCallDeadlineNs);
  const uint64_t room = rdma::RecordBytes(sizeof(MessageHeader) + answer_bytes);
  const uint64_t need = rdma::RecordBytes(sizeof(MessageHeader) + body.size());
  const Pinned<LinkState> state = LinkTo(node);
  if (state == nullptr || state->link->connection == nullptr) {
    co_return absl::UnavailableError(absl::StrCat("no connection to member ", node.value()));
  }
  rdma::OutboundLink& link = *state->link;
  if (need > link.messages->max_record()) {
    co_return absl::ResourceExhaustedError(
        absl::StrCat("a message of ", need, " bytes is larger than max_message"));
  }
  while (!link.gone && (link.reply_room < room || !link.messages->Reserve(need))) {
    if (worker_.loop().Now() > deadline) {
      co_return absl::DeadlineExceededError(absl::StrCat("member ", node.value(), " does not take messages"));
    }
    co_await worker_.loop().Yield();
  }
  if (link.gone) co_return absl::UnavailableError(absl::StrCat("member ", node.value(), " is gone"));
  link.reply_room -= room;
  call.node = node;
  call.room = room;
  call.request = next_request_++;
  calls_[call.request] = &call;
  absl::StatusOr<std::span<std::byte>> staged =
      worker_.mesh().StageRecord(sizeof(MessageHeader) + body.size());
  absl::Status sent = staged.status();
  if (staged.ok()) {
    WriteAt(*staged, 0, MessageHeader{type, AnswerCode::kOk, 0, count, call.request});
    if (!body.empty()) std::memcpy(staged->data() + sizeof(MessageHeader), body.data(), body.size());
    sent = AppendAndRelease(*link.messages, *staged, nullptr, rdma::WorkRequest::Notify::kWake);
  }
  if (!sent.ok()) {
    link.messages->Unreserve(need);
    link.reply_room += room;
    calls_.erase(call.request);
    call.request = 0;
    co_return sent;
  }
  call.timer = worker_.loop().CallAt(deadline, [this, &call] {
    if (call.done) return;  // its answer is here, and waits to be looked at
    call.status = absl::DeadlineExceededError(absl::StrCat(
        "member ", call.node.value(), " does not answer; is its process stopped or overloaded?"));
    GiveUp(call);
    if (call.waiter) worker_.loop().Schedule(std::exchange(call.waiter, {}));
  });
  co_return absl::OkStatus();
}

Task<absl::Status> Coordinator::FinishCall(PendingCall& call) {
  struct Awaiter {
    PendingCall& call;
    bool await_ready() const noexcept { return call.done; }
    void await_suspend(std::coroutine_handle<> h) const noexcept { call.waiter = h; }
    void await_resume() const noexcept {}
  };
  co_await Awaiter{call};
  worker_.loop().Cancel(call.timer);
  co_return call.status;
}

// Nobody waits for the answer any more; its room comes back with it.
void Coordinator::GiveUp(PendingCall& call) {
  if (call.request == 0) return;
  worker_.loop().Cancel(call.timer);
  if (std::exchange(call.done, true)) return;
  calls_.erase(call.request);
  late_[call.request] = {call.node, call.room};
}

absl::Status Coordinator::Send(NodeId node, MessageType type, uint32_t count, std::span<const std::byte> body,
                               uint64_t request) {
  LinkState* state = LinkTo(node);
  if (state == nullptr || state->link->connection == nullptr || state->link->gone) {
    return absl::UnavailableError(absl::StrCat("no connection to member ", node.value()));
  }
  const uint64_t need = rdma::RecordBytes(sizeof(MessageHeader) + body.size());
  rdma::RingWriter& ring = *state->link->messages;
  if (need > ring.max_record() || !ring.Reserve(need))
    return absl::ResourceExhaustedError("no room for a message");
  absl::StatusOr<std::span<std::byte>> staged =
      worker_.mesh().StageRecord(sizeof(MessageHeader) + body.size());
  absl::Status sent = staged.status();
  if (staged.ok()) {
    WriteAt(*staged, 0, MessageHeader{type, AnswerCode::kOk, 0, count, request});
    if (!body.empty()) std::memcpy(staged->data() + sizeof(MessageHeader), body.data(), body.size());
    sent = AppendAndRelease(ring, *staged, nullptr, rdma::WorkRequest::Notify::kWake);
  }
  if (!sent.ok()) ring.Unreserve(need);
  return sent;
}

void Coordinator::OnAnswer(rdma::InboundRing& ring, const rdma::RingRecord& record) {
  MessageHeader header;
  if (!ReadAt(record.body, 0, &header)) return;
  if (header.type == MessageType::kLockReply) {
    LockReply reply;
    if (ReadAt(record.body, sizeof header, &reply))
      OnLockReply(ring.from.node, header.request, header.code, reply);
    return;
  }
  if (auto late = late_.find(header.request); late != late_.end() && late->second.first == ring.from.node) {
    if (LinkState* state = LinkTo(ring.from.node); state != nullptr)
      state->link->reply_room += late->second.second;
    late_.erase(late);
    return;
  }
  auto it = calls_.find(header.request);
  if (header.type != MessageType::kAnswer || it == calls_.end() || it->second->node != ring.from.node) {
    FURROW_LOG_EVERY(WARNING, kSecond)
        << "node " << ring.from.node.value() << " sent an answer that nobody asked for";
    return;
  }
  PendingCall& call = *it->second;
  calls_.erase(it);
  if (LinkState* state = LinkTo(call.node); state != nullptr) state->link->reply_room += call.room;
  call.answer.assign(record.body.begin(), record.body.end());
  call.done = true;
  if (call.waiter) worker_.loop().Schedule(std::exchange(call.waiter, {}));
}

void Coordinator::FailCalls(NodeId node) {
  for (auto it = calls_.begin(); it != calls_.end();) {
    PendingCall& call = *it->second;
    auto next = std::next(it);
    if (call.node == node) {
      call.status = absl::UnavailableError(absl::StrCat("member ", node.value(), " is gone"));
      call.done = true;
      if (call.waiter) worker_.loop().Schedule(std::exchange(call.waiter, {}));
      calls_.erase(it);
    }
    it = next;
  }
  absl::erase_if(late_, [node](const auto& late) { return late.second.first == node; });
}

void Coordinator::Answer(rdma::InboundRing& ring, std::span<const std::byte> answer) {
  rdma::RingWriter* writer = ring.ReplyWriter();
  if (writer == nullptr || ring.closed) return;
  const uint64_t need = rdma::RecordBytes(answer.size());
  if (need > writer->max_record() || !writer->Reserve(need)) {
    FURROW_LOG_EVERY(ERROR, kSecond) << "node " << ring.from.node.value()
                                     << " asked without keeping room for the answer; it will miss it";
    return;
  }
  if (SendAnswer(*writer, answer).ok()) return;
  worker_.loop().Spawn(
      AnswerLater(Pinned<rdma::InboundRing>(&ring), std::vector<std::byte>(answer.begin(), answer.end())));
}

absl::Status Coordinator::SendAnswer(rdma::RingWriter& writer, std::span<const std::byte> answer) {
  FURROW_ASSIGN_OR_RETURN(std::span<std::byte> staged, worker_.mesh().StageRecord(answer.size()));
  std::memcpy(staged.data(), answer.data(), answer.size());
  return AppendAndRelease(writer, staged, nullptr, rdma::WorkRequest::Notify::kWake);
}

// Its room in the ring is reserved; what is missing is a free request or a buffer, which completions bring.
Task<void> Coordinator::AnswerLater(Pinned<rdma::InboundRing> ring, std::vector<std::byte> answer) {
  do {
    co_await worker_.loop().Yield();
  } while (!ring->closed && ring->ReplyWriter() != nullptr && !SendAnswer(*ring->ReplyWriter(), answer).ok());
}

}  // namespace furrow::txn
