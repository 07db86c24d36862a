#include "bench/fabric_wire.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace furrow::bench {

using rdma::Completion;
using rdma::WorkRequest;

absl::StatusOr<std::unique_ptr<WireQueue>> WireQueue::Create(rdma::Fabric& fabric) {
  std::unique_ptr<WireQueue> queue(new WireQueue());
  queue->fabric_ = &fabric;
  FURROW_ASSIGN_OR_RETURN(queue->memory_, MemoryFile::Anonymous(kMemoryBytes));
  std::memset(queue->memory_.data(), 1, kMemoryBytes);
  FURROW_ASSIGN_OR_RETURN(queue->region_, fabric.Register(queue->memory_, rdma::Access::kReadWrite));
  FURROW_ASSIGN_OR_RETURN(queue->queue_, fabric.CreateCompletionQueue());
  queue->loop_ = std::make_unique<EventLoop>(MonotonicClock(), queue->queue_->parker());
  return queue;
}

WireQueue::~WireQueue() = default;

WireLink* WireQueue::Add(std::unique_ptr<rdma::Connection> connection) {
  auto link = std::make_unique<WireLink>();
  if (auto place = ParsePlace(connection->peer_private_data()); place.ok()) {
    link->peer = *place;
  } else {
    link->lost = true;
  }
  connection->set_context(link.get());
  link->connection = std::move(connection);
  links_.push_back(std::move(link));
  return links_.back().get();
}

absl::StatusOr<WireLink*> WireQueue::Connect(const rdma::Endpoint& endpoint, rdma::ConnectionLimits limits) {
  std::optional<absl::StatusOr<std::unique_ptr<rdma::Connection>>> result;
  fabric_->Connect(*queue_, *loop_, endpoint, PlaceText(place()), limits, 30 * kSecond,
                   [&result](auto connection) { result = std::move(connection); });
  while (!result) {
    parker().PrepareToPark();
    if (loop_->RunOnce()) {
      parker().CancelPark();
    } else {
      parker().Park(kNever);
    }
  }
  FURROW_RETURN_IF_ERROR(result->status());
  return Add(std::move(**result));
}

bool WireQueue::Poll() {
  std::array<Completion, 16> completions;
  const size_t count = queue_->Poll(completions);
  for (size_t i = 0; i < count; ++i) Take(completions[i]);
  return count > 0;
}

void WireQueue::Take(const Completion& completion) {
  if (completion.kind == Completion::Kind::kConnected) {
    Add(queue_->TakeAccepted(completion.connection));
    return;
  }
  auto* link = static_cast<WireLink*>(completion.connection->context());
  if (link == nullptr) return;
  switch (completion.kind) {
    case Completion::Kind::kRequest:
      ++link->ended;
      link->failed += completion.status != rdma::CompletionStatus::kOk;
      break;
    case Completion::Kind::kNotified:
      if (completion.channel < kWireChannels) ++link->notified[completion.channel];
      break;
    case Completion::Kind::kDisconnected:
      link->lost = true;
      break;
    case Completion::Kind::kReceived:
    case Completion::Kind::kConnected:
      break;
  }
}

absl::Status WireQueue::Check(const WireLink& link) {
  if (link.lost) return absl::UnavailableError("the other process of the benchmark has ended");
  if (link.failed > 0) return absl::UnavailableError(absl::StrCat(link.failed, " requests have failed"));
  return absl::OkStatus();
}

absl::Status WireQueue::Await(WireLink& link, const uint64_t* counter, uint64_t wanted) {
  while (*counter < wanted) {
    if (!Poll()) continue;
    if (link.lost || link.failed > 0) return Check(link);
  }
  return absl::OkStatus();
}

absl::Status WireQueue::AwaitParked(WireLink& link, const uint64_t* counter, uint64_t wanted) {
  while (*counter < wanted) {
    FURROW_RETURN_IF_ERROR(Check(link));
    parker().PrepareToPark();
    if (Poll()) {
      parker().CancelPark();
    } else {
      parker().Park(kNever);
    }
  }
  return absl::OkStatus();
}

absl::Status WireQueue::Tell(WireLink& link, uint64_t offset, std::span<std::byte> local,
                             WireChannel channel) {
  WorkRequest request;
  request.opcode = rdma::Opcode::kWrite;
  request.notify = WorkRequest::Notify::kWake;
  request.channel = channel;
  request.inlined = true;
  request.local = local;
  request.remote = link.peer.Plus(offset);
  const uint64_t wanted = link.ended + 1;
  FURROW_RETURN_IF_ERROR(link.connection->Post(request));
  return Await(link, &link.ended, wanted);
}

absl::Status WireQueue::Probe(WireLink& link, std::span<std::byte> bytes) {
  WorkRequest request;
  request.opcode = rdma::Opcode::kWrite;
  request.signaled = false;
  request.notify = WorkRequest::Notify::kWake;
  request.channel = kProbeChannel;
  request.inlined = true;
  request.local = bytes;
  request.remote = link.peer;
  return link.connection->Post(request);
}

void WireQueue::DropLost() {
  std::erase_if(links_, [](const auto& link) { return link->lost || link->failed > 0; });
}

// --- ping-pongs ---

namespace {

// Between posts of the first side: whole round trips, of which half is recorded.
class HalfRoundTrips {
 public:
  explicit HalfRoundTrips(Histogram* histogram) : histogram_(histogram) {}
  void Post() {
    if (histogram_ == nullptr) return;
    const Nanos now = MonotonicClock().Now();
    if (last_ != 0) histogram_->Record((now - last_) / 2);
    last_ = now;
  }

 private:
  Histogram* const histogram_;
  Nanos last_ = 0;
};

WorkRequest PingRequest(const WireQueue& queue, const WireLink& link, size_t bytes) {
  WorkRequest request;
  request.opcode = rdma::Opcode::kWrite;
  request.local = queue.bytes(WireQueue::kOutbox, bytes);
  request.inlined = bytes <= WorkRequest::kMaxInline;
  request.remote = link.peer;
  return request;
}

// Until the byte is `wanted`.
absl::Status AwaitByte(WireQueue& queue, const WireLink& link, std::byte& byte, uint8_t wanted) {
  const std::atomic_ref<uint8_t> seen(reinterpret_cast<uint8_t&>(byte));
  for (uint32_t i = 1; seen.load(std::memory_order_acquire) != wanted; ++i) {
    if (i % 65536 != 0) continue;
    queue.Poll();  // for the word that the peer is gone
    FURROW_RETURN_IF_ERROR(WireQueue::Check(link));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PingWrites(WireQueue& queue, WireLink& link, size_t bytes, uint64_t count, Histogram* first) {
  const WorkRequest request = PingRequest(queue, link, bytes);
  std::byte& inbox = queue.bytes(0, bytes).back();
  std::byte& outbox = queue.bytes(WireQueue::kOutbox, bytes).back();
  HalfRoundTrips times(first);
  uint8_t got = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (first == nullptr || i > 0) FURROW_RETURN_IF_ERROR(AwaitByte(queue, link, inbox, ++got));
    times.Post();
    outbox = static_cast<std::byte>(i + 1);
    const uint64_t wanted = link.ended + 1;
    FURROW_RETURN_IF_ERROR(link.connection->Post(request));
    FURROW_RETURN_IF_ERROR(queue.Await(link, &link.ended, wanted));
  }
  return first == nullptr ? absl::OkStatus() : AwaitByte(queue, link, inbox, ++got);
}

absl::Status PingNotifications(WireQueue& queue, WireLink& link, size_t bytes, uint64_t count,
                               Histogram* first) {
  WorkRequest request = PingRequest(queue, link, bytes);
  request.notify = WorkRequest::Notify::kWake;
  request.channel = kPingChannel;
  const uint64_t* notified = &link.notified[kPingChannel];
  uint64_t got = link.notified[kPingChannel];
  HalfRoundTrips times(first);
  for (uint64_t i = 0; i < count; ++i) {
    if (first == nullptr || i > 0) FURROW_RETURN_IF_ERROR(queue.Await(link, notified, ++got));
    times.Post();
    const uint64_t wanted = link.ended + 1;
    FURROW_RETURN_IF_ERROR(link.connection->Post(request));
    FURROW_RETURN_IF_ERROR(queue.Await(link, &link.ended, wanted));
  }
  return first == nullptr ? absl::OkStatus() : queue.Await(link, notified, ++got);
}

// --- target ---

absl::StatusOr<std::unique_ptr<WireTarget>> WireTarget::Start(rdma::Fabric& fabric,
                                                              const rdma::Endpoint& at) {
  std::unique_ptr<WireTarget> target(new WireTarget());
  FURROW_ASSIGN_OR_RETURN(target->queue_, WireQueue::Create(fabric));
  FURROW_ASSIGN_OR_RETURN(target->endpoint_,
                          fabric.Listen(at,
                                        [queue = target->queue_.get()](const rdma::ConnectRequest& request)
                                            -> absl::StatusOr<rdma::AcceptDecision> {
                                          FURROW_RETURN_IF_ERROR(ParsePlace(request.private_data).status());
                                          return queue->Accept();
                                        }));
  return target;
}

void WireTarget::Serve() {
  while (!stopped_.load()) {
    queue_->parker().PrepareToPark();
    if (Step()) {
      queue_->parker().CancelPark();
    } else {
      queue_->parker().Park(kNever);
    }
  }
}

void WireTarget::Stop() {
  stopped_.store(true);
  queue_->parker().Wake();
}

bool WireTarget::Step() {
  if (!queue_->Poll()) return false;
  for (size_t i = 0; i < queue_->links().size(); ++i) {
    WireLink& link = *queue_->links()[i];
    // Merged ones are answered once, too.
    if (std::exchange(link.notified[kProbeChannel], 0) > 0 && !link.lost) {
      link.failed += !WireQueue::Probe(link, queue_->bytes(0, WireQueue::kProbeBytes)).ok();
    }
    if (std::exchange(link.notified[kCommandChannel], 0) > 0) {
      if (absl::Status status = Obey(link); !status.ok()) {
        FURROW_LOG(WARNING) << "a peer of the benchmark: " << status;
        link.lost = true;
      }
    }
  }
  queue_->DropLost();
  return true;
}

absl::Status WireTarget::Obey(WireLink& link) {
  WireCommand command;
  std::memcpy(&command, queue_->bytes(WireQueue::kCommands, sizeof(command)).data(), sizeof(command));
  const size_t bytes = std::clamp<size_t>(command.bytes, 1, WireQueue::kMaxBytes);
  queue_->bytes(0, bytes).back() = std::byte{0};
  FURROW_RETURN_IF_ERROR(queue_->Tell(link, 0, {}, kReadyChannel));
  switch (command.kind) {
    case WireCommand::kPingWrites:
      return PingWrites(*queue_, link, bytes, command.count, nullptr);
    case WireCommand::kPingNotifications:
      return PingNotifications(*queue_, link, bytes, command.count, nullptr);
    default:
      return absl::InvalidArgumentError(absl::StrCat("there is no command ", command.kind));
  }
}

}  // namespace furrow::bench
