#include "node/doctor/peer_link.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"

namespace furrow::node {

using rdma::Completion;
using rdma::CompletionStatus;
using rdma::WorkRequest;

std::string EncodeHello(const PeerHello& hello) {
  return std::string(reinterpret_cast<const char*>(&hello), sizeof(hello));
}

std::optional<PeerHello> DecodeHello(std::string_view text) {
  PeerHello hello;
  // The connection manager may hand over more bytes than were given to it.
  if (text.size() < sizeof(hello)) return std::nullopt;
  std::memcpy(&hello, text.data(), sizeof(hello));
  if (std::memcmp(hello.magic, kPeerMagic, sizeof(kPeerMagic)) != 0 || hello.version != kPeerVersion)
    return std::nullopt;
  return hello;
}

uint64_t LoadWord(std::span<std::byte> memory, size_t at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory.data() + at))
      .load(std::memory_order_acquire);
}

void StoreWord(std::span<std::byte> memory, size_t at, uint64_t value) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory.data() + at))
      .store(value, std::memory_order_release);
}

absl::StatusOr<std::unique_ptr<PeerLink>> PeerLink::Make(rdma::Fabric& fabric, size_t bytes, bool offered) {
  std::unique_ptr<PeerLink> link(new PeerLink(fabric));
  FURROW_ASSIGN_OR_RETURN(link->memory_, MemoryFile::Anonymous(bytes));
  FURROW_ASSIGN_OR_RETURN(link->region_, fabric.Register(link->memory_, offered ? rdma::Access::kReadWrite
                                                                                : rdma::Access::kNone));
  FURROW_ASSIGN_OR_RETURN(link->receive_memory_, MemoryFile::Anonymous(kReceives * sizeof(PeerMessage)));
  FURROW_ASSIGN_OR_RETURN(link->receive_region_, fabric.Register(link->receive_memory_, rdma::Access::kNone));
  FURROW_ASSIGN_OR_RETURN(link->queue_, fabric.CreateCompletionQueue());
  link->loop_ = std::make_unique<EventLoop>(MonotonicClock(), link->queue_->parker());
  return link;
}

absl::StatusOr<PeerHello> PeerLink::Connect(const rdma::Endpoint& endpoint, Nanos timeout_ns) {
  PeerHello hello{};
  std::memcpy(hello.magic, kPeerMagic, sizeof(kPeerMagic));
  hello.version = kPeerVersion;
  absl::StatusOr<std::unique_ptr<rdma::Connection>> made;
  bool done = false;
  fabric_.Connect(*queue_, *loop_, endpoint, EncodeHello(hello), {.max_receives = kReceives}, timeout_ns,
                  [&](absl::StatusOr<std::unique_ptr<rdma::Connection>> result) {
                    made = std::move(result);
                    done = true;
                  });
  // The fabric keeps the time; it calls back in every case.
  while (!done) {
    if (!loop_->RunOnce()) SleepThreadUntil(loop_->Now() + 50 * kMicrosecond);
  }
  FURROW_RETURN_IF_ERROR(made.status());
  std::optional<PeerHello> peer = DecodeHello((*made)->peer_private_data());
  if (!peer.has_value() || peer->bytes < kOfferedBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("who listens at ", endpoint,
                     " is no furrow doctor of this version: start \"furrow doctor --serve\" there"));
  }
  FURROW_RETURN_IF_ERROR(Take(*std::move(made)));
  return *peer;
}

absl::Status PeerLink::Take(std::unique_ptr<rdma::Connection> connection) {
  connection_ = std::move(connection);
  messages_.clear();
  ended_ = notified_ = 0;
  if (connection_ == nullptr) return absl::OkStatus();
  for (uint64_t id = 0; id < kReceives; ++id)
    FURROW_RETURN_IF_ERROR(connection_->PostReceive(id, ReceiveBuffer(id)));
  return absl::OkStatus();
}

std::span<std::byte> PeerLink::ReceiveBuffer(uint64_t id) {
  return receive_memory_.bytes().subspan(id * sizeof(PeerMessage), sizeof(PeerMessage));
}

absl::Status PeerLink::Handle(const Completion& completion) {
  if (completion.kind == Completion::Kind::kConnected) {
    arrived_ = completion.connection;
    return absl::OkStatus();
  }
  // Of a connection that was let go.
  if (completion.connection != connection_.get()) return absl::OkStatus();
  switch (completion.kind) {
    case Completion::Kind::kRequest:
      if (completion.status != CompletionStatus::kOk) {
        return absl::UnavailableError(
            absl::StrCat("a request failed: ", Sv(rdma::ToString(completion.status))));
      }
      if ((completion.id & kMessageId) == 0) ++ended_;
      return absl::OkStatus();
    case Completion::Kind::kReceived: {
      if (completion.status != CompletionStatus::kOk || completion.id >= kReceives) return absl::OkStatus();
      PeerMessage message;
      if (completion.bytes != sizeof(message) || messages_.size() >= kReceives)
        return absl::InvalidArgumentError("the peer says what no doctor says");
      std::memcpy(&message, ReceiveBuffer(completion.id).data(), sizeof(message));
      messages_.push_back(message);
      return connection_->PostReceive(completion.id, ReceiveBuffer(completion.id));
    }
    case Completion::Kind::kNotified:
      ++notified_;
      return absl::OkStatus();
    case Completion::Kind::kDisconnected:
      return absl::UnavailableError("the peer has gone");
    case Completion::Kind::kConnected:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PeerLink::Poll() {
  std::array<Completion, 32> completions;
  const size_t count = queue_->Poll(completions);
  for (size_t i = 0; i < count; ++i) FURROW_RETURN_IF_ERROR(Handle(completions[i]));
  return count > 0;
}

absl::Status PeerLink::PollUntil(const std::function<bool()>& done, Nanos timeout_ns, const char* what) {
  const Nanos deadline = loop_->Now() + timeout_ns;
  while (!done()) {
    FURROW_ASSIGN_OR_RETURN(const bool any, Poll());
    if (!any && loop_->Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(what, " did not come in ", timeout_ns / kSecond, " s"));
    }
  }
  return absl::OkStatus();
}

absl::Status PeerLink::Run(std::span<const WorkRequest> requests, Nanos timeout_ns) {
  uint64_t wanted = ended_;
  for (const WorkRequest& request : requests) wanted += request.signaled;
  FURROW_RETURN_IF_ERROR(connection_->Post(requests));
  return PollUntil([&] { return ended_ >= wanted; }, timeout_ns, "the end of a request");
}

absl::Status PeerLink::Send(const PeerMessage& message) {
  PeerMessage copy = message;
  WorkRequest request;
  request.opcode = rdma::Opcode::kSend;
  request.id = kMessageId;
  request.local = std::as_writable_bytes(std::span(&copy, 1));
  request.inlined = true;
  return connection_->Post(request);
}

std::optional<PeerMessage> PeerLink::TakeMessage() {
  if (messages_.empty()) return std::nullopt;
  const PeerMessage message = messages_.front();
  messages_.erase(messages_.begin());
  return message;
}

absl::StatusOr<PeerMessage> PeerLink::Ask(const PeerMessage& question, Nanos timeout_ns) {
  FURROW_RETURN_IF_ERROR(Send(question));
  FURROW_RETURN_IF_ERROR(
      PollUntil([&] { return !messages_.empty(); }, timeout_ns, "the answer of the other doctor"));
  const PeerMessage answer = *TakeMessage();
  if (answer.kind != question.kind)
    return absl::InvalidArgumentError("the peer answers another question than the one that was asked");
  return answer;
}

std::unique_ptr<rdma::Connection> PeerLink::TakeArrived() {
  rdma::Connection* arrived = std::exchange(arrived_, nullptr);
  return arrived == nullptr ? nullptr : queue_->TakeAccepted(arrived);
}

}  // namespace furrow::node
