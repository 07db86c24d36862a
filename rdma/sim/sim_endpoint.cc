#include "rdma/sim/sim_endpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rdma/sim/sim_fabric.h"
#include "rdma/sim/sim_kinds.h"

namespace furrow::rdma {

SimEnd::SimEnd(SimNetwork& n, SimFabric& f, SimQueue& q, ConnectionLimits limits)
    : network(n), process(f.process()), fabric(&f), queue(&q), limits_(limits) {}

// --- initiator ---

absl::Status SimEnd::Post(std::span<const WorkRequest> requests) {
  if (process.dead()) return absl::OkStatus();  // a ghost: nobody will ever hear of it
  size_t taken = outstanding_.size() + unpolled_;
  if (taken + requests.size() > limits_.max_requests) {
    return absl::ResourceExhaustedError(absl::StrCat("connection to node ", peer->process.node().value(),
                                                     ": ", requests.size(), " requests do not fit behind ",
                                                     taken, " that have not completed (at most ",
                                                     limits_.max_requests, "); wait for completions"));
  }
  for (const WorkRequest& work : requests) PostOne(work);
  return absl::OkStatus();
}

void SimEnd::PostOne(const WorkRequest& work) {
  FURROW_CHECK(work.channel < 64);
  auto request = std::make_shared<SimRequest>();
  request->work = work;
  outstanding_.push_back(request);
  if (failed() || peer_lost_) {
    FlushSoon();
    return;
  }
  bool sends = work.opcode != Opcode::kRead;
  if (sends && work.inlined) {
    FURROW_CHECK(work.local.size() <= WorkRequest::kMaxInline);
    request->payload.assign(work.local.begin(), work.local.end());
    request->own_payload = true;
  } else if (!work.local.empty()) {
    request->local = fabric->FindLocal(work.local);
    if (request->local == nullptr) {
      request->status = CompletionStatus::kLocalProtection;
      request->finished = true;
      held_back_ = true;
      FlushSoon();
      return;
    }
  }
  if (held_back_ || TryAtOnce(request)) return;
  Send(sends ? request->size() : 0, this, [this, request] { peer->Arrive(request); });
}

bool SimEnd::ReadNow(std::span<const Connection::NowRead> reads) {
  const bool possible = network.options().at_once && !process.dead() && !failed() && !peer_lost_ &&
                        !held_back_ && outstanding_.empty() && !Blocked() && peer->established &&
                        !peer->closed() && reads.size() <= Connection::kMaxReadNow;
  if (!possible) return false;
  for (const Connection::NowRead& read : reads) {
    auto request = std::make_shared<SimRequest>();
    request->work = WorkRequest{.opcode = Opcode::kRead, .local = read.into, .remote = read.remote};
    std::shared_ptr<SimRegistration> target = peer->FindTarget(*request);
    if (target == nullptr) return false;
    SimTransfer transfer(*this, *peer, request, std::move(target), network.options().piece_bytes,
                         network.random_);
    transfer.Move(transfer.left());
    if (!read.into.empty()) std::memcpy(read.into.data(), request->payload.data(), read.into.size());
    network.world().Elapse(network.random_.Between(50, 300) + static_cast<Nanos>(read.into.size() / 10));
  }
  return true;
}

// Copies within the step of the initiator, whose core it takes. False: not in this mode, or not possible now.
bool SimEnd::TryAtOnce(const std::shared_ptr<SimRequest>& request) {
  if (!network.options().at_once || request->work.opcode == Opcode::kSend) return false;
  if (outstanding_.size() > 1 || Blocked() || !peer->established || peer->closed()) return false;
  request->arrived = request->finished = true;
  std::shared_ptr<SimRegistration> target = peer->FindTarget(*request);
  if (target == nullptr) {
    request->status = peer->process.dead() ? CompletionStatus::kPeerGone : CompletionStatus::kRemoteAccess;
  } else {
    SimTransfer transfer(*this, *peer, request, std::move(target), network.options().piece_bytes,
                         network.random_);
    transfer.Move(transfer.left());
    if (request->work.opcode == Opcode::kRead && request->size() > 0) {
      std::memcpy(request->work.local.data(), request->payload.data(), request->size());
    }
    peer->NotifyAfter(request->work);
  }
  network.world().Elapse(network.random_.Between(50, 300) + static_cast<Nanos>(request->size() / 10));
  CompleteInOrder();
  return true;
}

void SimEnd::FlushSoon() {
  network.world().After(
      network.random_.Between(1, 500),
      [this] {
        if (closed() || process.dead()) return;
        if (!failed() && peer_lost_ && !outstanding_.empty()) Fail(CompletionStatus::kPeerGone);
        CompleteInOrder();
      },
      kSimFlush, process.serial());
}

void SimEnd::OnResponse(const std::shared_ptr<SimRequest>& request, CompletionStatus status) {
  if (failed() || process.dead() || request->finished) return;
  if (request->work.opcode == Opcode::kRead && status == CompletionStatus::kOk && request->size() > 0) {
    if (request->local->alive) {
      std::memcpy(request->work.local.data(), request->payload.data(), request->size());
    } else {
      status = CompletionStatus::kLocalProtection;
    }
  }
  request->finished = true;
  request->status = status;
  CompleteInOrder();
}

void SimEnd::CompleteInOrder() {
  while (!outstanding_.empty() && !failed()) {
    SimRequest& front = *outstanding_.front();
    if (!front.finished) return;
    if (front.status != CompletionStatus::kOk) {
      Fail(front.status);
      return;
    }
    if (front.work.signaled) PushEnd(front, CompletionStatus::kOk);
    outstanding_.pop_front();
  }
  if (failed()) Fail(CompletionStatus::kFlushed);  // what was posted after the failure
}

// Ends every outstanding request, the first one with `status`.
void SimEnd::Fail(CompletionStatus status) {
  if (closed()) return;
  state_ = State::kFailed;
  bool peer_gone = status == CompletionStatus::kPeerGone || peer_lost_;
  ReleaseRequests();
  for (const auto& request : std::exchange(outstanding_, {})) {
    PushEnd(*request, status);
    status = CompletionStatus::kFlushed;
  }
  if (peer_gone) ReportDisconnected();
}

void SimEnd::PushEnd(const SimRequest& request, CompletionStatus status) {
  if (queue == nullptr) return;
  ++unpolled_;
  queue->Push(
      {.kind = Completion::Kind::kRequest, .status = status, .id = request.work.id, .connection = handle},
      true);
}

// The requests belong to nobody any more. What had left may still take effect at the peer, but touches no
// memory of this side; what waits for a link, or is drawn to be behind the cut, never does.
void SimEnd::ReleaseRequests() {
  bool blocked = Blocked();
  size_t kept = network.random_.Below(outstanding_.size() + 1);
  for (size_t i = 0; i < outstanding_.size(); ++i) {
    SimRequest& request = *outstanding_[i];
    if (request.work.opcode != Opcode::kRead && request.local != nullptr && request.local->alive)
      request.Detach();
    if (!request.arrived && (blocked || i >= kept)) request.cancelled = true;
  }
}

void SimEnd::ArmTimeout() {
  if (timeout_armed_ || failed() || process.dead()) return;
  timeout_armed_ = true;
  const SimNetworkOptions& o = network.options();
  network.world().After(
      network.random_.Between(o.peer_timeout_min, o.peer_timeout_max),
      [this, epoch = timeout_epoch_] {
        if (epoch != timeout_epoch_) return;  // the link was healed meanwhile
        timeout_armed_ = false;
        OnTimeout();
      },
      kSimTimeout, process.serial());
}

void SimEnd::OnHealed() {
  for (SimEnd* end : {this, peer}) {
    end->timeout_armed_ = false;
    ++end->timeout_epoch_;
  }
  Redeliver();
  peer->ArmWaiting();  // the way back may still be cut
}

void SimEnd::ArmWaiting() {
  if (!Blocked()) return;
  for (const Packet& packet : packets_) {
    if (packet.waits != nullptr && packet.sequence <= arrived_packet_) packet.waits->ArmTimeout();
  }
}

void SimEnd::OnTimeout() {
  if (failed() || process.dead() || outstanding_.empty()) return;
  if (peer->process.dead() || peer->failed() || Blocked() || peer->Blocked())
    Fail(CompletionStatus::kPeerGone);
}

void SimEnd::OnPeerLost() {
  if (closed() || process.dead() || peer_lost_) return;
  peer_lost_ = true;
  if (!failed() && !outstanding_.empty()) Fail(CompletionStatus::kPeerGone);
  ReportDisconnected();
}

void SimEnd::ReportDisconnected() {
  if (std::exchange(disconnected_, true) || queue == nullptr) return;
  queue->Push({.kind = Completion::Kind::kDisconnected, .connection = handle}, true);
}

void SimEnd::Close() {
  bool was_failed = failed();
  if (!process.dead() && !was_failed) ReleaseRequests();
  if (queue != nullptr) queue->Forget(handle);
  state_ = State::kClosed;
  handle = nullptr;
  outstanding_.clear();
  receives_.clear();
  if (process.dead() || peer == nullptr || peer->closed()) return;
  SimEnd* other = peer;
  Send(0, nullptr, [other] { other->OnPeerLost(); });
  const SimNetworkOptions& o = network.options();
  network.world().After(
      network.random_.Between(o.peer_timeout_min, o.peer_timeout_max), [other] { other->OnPeerLost(); },
      kSimPeerLost, other->process.serial());
}

void SimEnd::OnProcessKilled() {
  if (peer == nullptr) return;
  ReleaseRequests();
  outstanding_.clear();
  arrived_.clear();
  receives_.clear();
  if (peer->process.dead()) return;
  // A drawn part of what was on its way still arrives; with the rest, answers for the peer are lost.
  packets_.resize(network.random_.Below(packets_.size() + 1));
  if (!peer->arrived_.empty()) peer->refused_ = true;
  peer->arrived_.clear();
  peer->ArmTimeout();
  SimEnd* other = peer;
  const SimNetworkOptions& o = network.options();
  network.world().After(
      network.random_.Between(o.death_notice_min, o.death_notice_max), [other] { other->OnPeerLost(); },
      kSimPeerLost, other->process.serial());
}

// --- responder ---

absl::Status SimEnd::PostReceive(uint64_t id, std::span<std::byte> buffer) {
  if (process.dead()) return absl::OkStatus();
  if (receives_.size() >= limits_.max_receives) {
    return absl::ResourceExhaustedError(
        absl::StrCat("connection to node ", peer->process.node().value(), ": ", receives_.size(),
                     " receives are posted already (at most ", limits_.max_receives, ")"));
  }
  std::shared_ptr<SimRegistration> memory = fabric->FindLocal(buffer);
  if (memory == nullptr)
    return absl::InvalidArgumentError("the buffer of a receive is not registered with this fabric");
  receives_.push_back({id, buffer, std::move(memory)});
  StartArrived();
  return absl::OkStatus();
}

void SimEnd::Arrive(std::shared_ptr<SimRequest> request) {
  if (request->cancelled || refused_) return;
  if (peer->process.dead() && network.random_.OneIn(2)) {
    refused_ = true;  // it was lost, and so is all behind it
    return;
  }
  request->arrived = true;
  if (failed()) {  // closed, or in the error state: it answers nothing but this
    refused_ = true;
    Respond(request, CompletionStatus::kPeerGone);
    return;
  }
  arrived_.push_back(std::move(request));
  StartArrived();
}

void SimEnd::StartArrived() {
  while (!arrived_.empty() && !busy_ && !refused_) {
    std::shared_ptr<SimRequest> request = arrived_.front();
    if (request->work.opcode == Opcode::kSend) {
      if (!StartSend(request)) return;
      arrived_.pop_front();
    } else {
      arrived_.pop_front();
      StartTransfer(std::move(request));
    }
  }
}

std::shared_ptr<SimRegistration> SimEnd::FindTarget(const SimRequest& request) const {
  const WorkRequest& work = request.work;
  Access needed = work.opcode == Opcode::kRead ? Access::kRead : Access::kWrite;
  std::shared_ptr<SimRegistration> target = fabric != nullptr ? fabric->FindRemote(work.remote.key) : nullptr;
  bool allowed = target != nullptr && target->alive &&
                 (static_cast<uint8_t>(target->access) & static_cast<uint8_t>(needed)) != 0 &&
                 work.remote.address >= target->base &&
                 work.remote.address - target->base <= target->bytes.size() &&
                 request.size() <= target->bytes.size() - (work.remote.address - target->base);
  return allowed ? target : nullptr;
}

void SimEnd::StartTransfer(std::shared_ptr<SimRequest> request) {
  std::shared_ptr<SimRegistration> target = FindTarget(*request);
  if (target == nullptr) {
    refused_ = true;
    Respond(request, CompletionStatus::kRemoteAccess);
    return;
  }
  // A CPU makes one copy after the other; a card fetches for several READs at once.
  busy_ = request->work.opcode == Opcode::kWrite || network.options().piece_bytes < 64;
  network.Begin(std::make_shared<SimTransfer>(*peer, *this, std::move(request), std::move(target),
                                              network.options().piece_bytes, network.random_));
}

void SimEnd::OnTransferOver(SimTransfer& transfer, CompletionStatus status) {
  const std::shared_ptr<SimRequest>& request = transfer.request;
  if (request->work.opcode == Opcode::kWrite || network.options().piece_bytes < 64) busy_ = false;
  if (status == CompletionStatus::kOk) {
    NotifyAfter(request->work);
  } else {
    refused_ = true;
  }
  Respond(request, status);
  StartArrived();
}

void SimEnd::NotifyAfter(const WorkRequest& work) {
  if (work.opcode != Opcode::kWrite || work.notify == WorkRequest::Notify::kNone) return;
  if (handle == nullptr || queue == nullptr) return;
  queue->Notify(*handle, work.channel, work.notify == WorkRequest::Notify::kWake);
}

bool SimEnd::StartSend(const std::shared_ptr<SimRequest>& request) {
  if (receives_.empty()) {
    if (std::exchange(receiver_timer_, true)) return false;
    network.world().After(
        network.options().receiver_timeout,
        [this] {
          receiver_timer_ = false;
          if (arrived_.empty() || arrived_.front()->work.opcode != Opcode::kSend || !receives_.empty())
            return;
          refused_ = true;
          Respond(arrived_.front(), CompletionStatus::kReceiverNotReady);
          arrived_.clear();
        },
        kSimTimeout, process.serial());
    return false;
  }
  Receive receive = receives_.front();
  receives_.pop_front();
  bool from_alive = request->local == nullptr || request->local->alive;
  if (request->size() > receive.buffer.size() || !receive.memory->alive || !from_alive) {
    refused_ = true;
    Respond(request, from_alive ? CompletionStatus::kRemoteAccess : CompletionStatus::kLocalProtection);
    return true;
  }
  if (request->size() > 0) std::memcpy(receive.buffer.data(), request->source(), request->size());
  if (queue != nullptr && handle != nullptr) {
    queue->Push({.kind = Completion::Kind::kReceived,
                 .bytes = static_cast<uint32_t>(request->size()),
                 .id = receive.id,
                 .connection = handle},
                true);
  }
  Respond(request, CompletionStatus::kOk);
  return true;
}

void SimEnd::Respond(const std::shared_ptr<SimRequest>& request, CompletionStatus status) {
  SimEnd* to = peer;
  size_t bytes =
      request->work.opcode == Opcode::kRead && status == CompletionStatus::kOk ? request->size() : 0;
  Send(bytes, to, [to, request, status] { to->OnResponse(request, status); });
}

// --- packets ---

bool SimEnd::Blocked() const {
  return peer == nullptr || network.IsCut(process.node(), peer->process.node());
}

void SimEnd::Send(size_t bytes, SimEnd* waits, std::function<void()> deliver) {
  uint64_t sequence = next_packet_++;
  packets_.push_back({sequence, std::move(deliver), waits});
  last_arrival_ = std::max(last_arrival_, network.ArrivalTime(process, peer->process, bytes));
  network.world().At(
      last_arrival_, [this, sequence] { Deliver(sequence); }, kSimPacket, peer->process.serial());
}

void SimEnd::Deliver(uint64_t sequence) {
  arrived_packet_ = std::max(arrived_packet_, sequence);
  if (!peer->established && !peer->process.dead()) return;
  bool lost = peer->process.dead();
  while (!packets_.empty() && packets_.front().sequence <= arrived_packet_) {
    if (lost || Blocked()) {
      for (const Packet& packet : packets_) {
        if (packet.waits != nullptr && packet.sequence <= arrived_packet_) packet.waits->ArmTimeout();
      }
      if (lost) packets_.clear();
      return;
    }
    Packet packet = std::move(packets_.front());
    packets_.pop_front();
    packet.deliver();
  }
}

void SimEnd::Redeliver() {
  if (packets_.empty() || packets_.front().sequence > arrived_packet_) return;
  last_arrival_ = std::max(last_arrival_, network.ArrivalTime(process, peer->process, 0));
  network.world().At(
      last_arrival_, [this, s = arrived_packet_] { Deliver(s); }, kSimPacket, peer->process.serial());
}

}  // namespace furrow::rdma
