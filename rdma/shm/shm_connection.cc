#include "rdma/shm/shm_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rdma/shared_copy.h"
#include "rdma/shm/shm_session.h"

namespace furrow::rdma {
namespace {

// Requests that are looked up, and their first lines fetched, before the first of them is executed.
constexpr size_t kBatch = 16;

void PrefetchLines(const std::byte* shared, size_t bytes, bool write) {
  // The first lines only: the copy itself is sequential.
  const size_t lines = bytes > 256 ? 4 : (bytes + 63) / 64;
  for (size_t i = 0; i < lines; ++i) {
    if (write) {
      __builtin_prefetch(shared + 64 * i, 1);
    } else {
      __builtin_prefetch(shared + 64 * i, 0);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmConnection>> ShmConnection::Make(std::shared_ptr<ShmQueue> queue,
                                                                   ConnectionLimits limits) {
  if (limits.max_requests == 0 || limits.max_requests > kMaxRequestsLimit ||
      limits.max_receives > kMaxReceivesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a connection with ", limits.max_requests, " requests and ", limits.max_receives,
                     " receives: at most ", kMaxRequestsLimit, " and ", kMaxReceivesLimit, " are possible"));
  }
  FURROW_ASSIGN_OR_RETURN(MemoryFile inbox, MemoryFile::Anonymous(InboxBytes(limits.max_receives)));
  std::unique_ptr<ShmConnection> connection(new ShmConnection(queue, limits, std::move(inbox)));
  FURROW_ASSIGN_OR_RETURN(const uint32_t slot, queue->AddConnection(connection.get()));
  connection->slot_ = slot;
  return connection;
}

ShmConnection::~ShmConnection() {
  if (established_ && session_->RemoveConnection(id_)) {
    ShmMessage message;
    message.type = ShmMessageType::kClose;
    message.numbers[0] = id_;
    session_->Send(std::move(message));
  }
  if (slot_ != kNoSlot) queue_->RemoveConnection(slot_, this);
}

absl::Status ShmConnection::Establish(std::shared_ptr<ShmSession> session, uint32_t id,
                                      std::string private_data, uint32_t peer_slot, int peer_doorbells,
                                      int peer_inbox) {
  if (peer_slot >= kMaxConnectionsPerQueue) {
    return absl::InvalidArgumentError("the peer names a doorbell slot that does not exist");
  }
  FURROW_ASSIGN_OR_RETURN(peer_doorbells_file_,
                          MemoryFile::MapDescriptor(peer_doorbells, sizeof(QueueDoorbells),
                                                    /*writable=*/true));
  FURROW_ASSIGN_OR_RETURN(
      peer_inbox_file_,
      MemoryFile::MapDescriptor(peer_inbox, InboxBytes(limits_.max_receives), /*writable=*/true));
  auto* doorbells = reinterpret_cast<QueueDoorbells*>(peer_doorbells_file_.data());
  peer_slot_ = peer_slot;
  peer_slot_line_ = &doorbells->slots[peer_slot];
  peer_summary_ = &doorbells->summary[peer_slot / 64];
  peer_parking_ = &doorbells->parking;
  peer_private_data_ = std::move(private_data);
  remote_ = session->remote();
  guard_ = remote_->NewGuard();
  session_ = std::move(session);
  id_ = id;
  established_ = true;
  session_->AddConnection(id, this);
  return absl::OkStatus();
}

void ShmConnection::LosePeer() {
  if (!peer_gone_.exchange(true, std::memory_order_acq_rel)) queue_->PushDisconnected(this);
}

absl::Status ShmConnection::Post(std::span<const WorkRequest> requests) {
  if (requests.size() > limits_.max_requests - unpolled_) [[unlikely]] {
    return absl::ResourceExhaustedError(
        absl::StrCat(requests.size(), " requests do not fit behind ", unpolled_,
                     " completions that have not been polled: this ", "connection to node ", peer().value(),
                     " holds ", limits_.max_requests));
  }
  guard_->Enter();
  std::array<Target, kBatch> targets;
  while (!requests.empty()) {
    const size_t count = requests.size() < kBatch ? requests.size() : kBatch;
    for (size_t i = 0; i < count; ++i) targets[i] = Resolve(requests[i]);
    for (size_t i = 0; i < count; ++i) Execute(requests[i], targets[i]);
    requests = requests.subspan(count);
  }
  guard_->Leave();
  return absl::OkStatus();
}

ShmConnection::Target ShmConnection::Resolve(const WorkRequest& request) {
  const size_t bytes = request.local.size();
  if (failed_) [[unlikely]]
    return {nullptr, CompletionStatus::kFlushed};
  if (peer_gone_.load(std::memory_order_acquire)) [[unlikely]]
    return {nullptr, CompletionStatus::kPeerGone};
  const bool local_ok = request.inlined ? request.opcode != Opcode::kRead && bytes <= WorkRequest::kMaxInline
                                        : bytes == 0 || queue_->IsLocal(request.local);
  if (!local_ok) [[unlikely]]
    return {nullptr, CompletionStatus::kLocalProtection};
  if (request.opcode == Opcode::kSend) return {};

  const Access want = request.opcode == Opcode::kRead ? Access::kRead : Access::kWrite;
  const Target target = Locate(request.remote, bytes, want);
  if (target.status == CompletionStatus::kOk) PrefetchLines(target.shared, bytes, want == Access::kWrite);
  return target;
}

ShmConnection::Target ShmConnection::Locate(RemoteAddress at, size_t bytes, Access want) {
  const RemoteRegion* region = remote_->Find(at.key);
  if (region == nullptr) [[unlikely]]
    region = remote_->FindSlowly(at.key);
  if (region == nullptr || !remote_->Alive(*region) || region->data == nullptr ||
      !Grants(region->word.access(), want)) [[unlikely]] {
    return {nullptr, CompletionStatus::kRemoteAccess};
  }
  const uint64_t offset = at.address - region->base;
  if (offset > region->bytes || bytes > region->bytes - offset) [[unlikely]] {
    return {nullptr, CompletionStatus::kRemoteAccess};
  }
  return {region->data + offset, CompletionStatus::kOk};
}

bool ShmConnection::ReadNow(std::span<const NowRead> reads) {
  if (failed()) [[unlikely]]
    return false;
  guard_->Enter();
  bool all = reads.size() <= kMaxReadNow;
  for (size_t i = 0; i < reads.size() && all; ++i) {
    const Target target = Locate(reads[i].remote, reads[i].into.size(), Access::kRead);
    all = target.status == CompletionStatus::kOk;
    if (all) CopyFromShared(reads[i].into.data(), target.shared, reads[i].into.size());
  }
  guard_->Leave();
  return all;
}

void ShmConnection::Prefetch(RemoteAddress remote, size_t bytes) {
  if (failed()) return;
  guard_->Enter();
  // Memory that is not mapped yet is looked for by who reads it.
  const bool known = remote_->Find(remote.key) != nullptr;
  const Target target =
      known ? Locate(remote, bytes, Access::kRead) : Target{nullptr, CompletionStatus::kRemoteAccess};
  if (target.status == CompletionStatus::kOk) PrefetchLines(target.shared, bytes, false);
  guard_->Leave();
}

void ShmConnection::Execute(const WorkRequest& request, const Target& target) {
  if (failed_ || target.status != CompletionStatus::kOk) [[unlikely]] {
    const CompletionStatus status = failed_ ? CompletionStatus::kFlushed : target.status;
    failed_ = true;
    End(request, status);
    return;
  }
  switch (request.opcode) {
    case Opcode::kRead:
      CopyFromShared(request.local.data(), target.shared, request.local.size());
      break;
    case Opcode::kWrite:
      CopyToShared(target.shared, request.local.data(), request.local.size());
      if (request.notify != WorkRequest::Notify::kNone) {
        Ring(&peer_slot_line_->channels, uint64_t{1} << (request.channel & 63),
             request.notify == WorkRequest::Notify::kWake);
      }
      break;
    case Opcode::kSend:
      if (const CompletionStatus status = Send(request); status != CompletionStatus::kOk) {
        failed_ = true;
        End(request, status);
        return;
      }
      break;
  }
  if (request.signaled) End(request, CompletionStatus::kOk);
}

void ShmConnection::End(const WorkRequest& request, CompletionStatus status) {
  ++unpolled_;
  Completion completion;
  completion.kind = Completion::Kind::kRequest;
  completion.status = status;
  completion.bytes = static_cast<uint32_t>(request.local.size());
  completion.id = request.id;
  completion.connection = this;
  queue_->Push(completion);
}

void ShmConnection::Ring(uint64_t* word, uint64_t bit, bool wake) {
  if ((__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST) & bit) == 0) {
    __atomic_fetch_or(peer_summary_, uint64_t{1} << (peer_slot_ % 64), __ATOMIC_SEQ_CST);
  }
  if (wake) ShmParker::WakeParked(peer_parking_);
}

CompletionStatus ShmConnection::Send(const WorkRequest& request) {
  InboxHeader* header = Header(peer_inbox_file_);
  // The bounded time that a SEND waits for a receive is none.
  if (limits_.max_receives == 0 || __atomic_load_n(&header->posted, __ATOMIC_ACQUIRE) <= sent_) {
    return CompletionStatus::kReceiverNotReady;
  }
  InboxCell& cell = Cells(peer_inbox_file_)[sent_ % limits_.max_receives];
  const uint32_t room = __atomic_load_n(&cell.room, __ATOMIC_ACQUIRE);
  if (request.local.size() > room || request.local.size() > Fabric::kMaxSend)
    return CompletionStatus::kRemoteAccess;
  CopyToShared(reinterpret_cast<std::byte*>(cell.body), request.local.data(), request.local.size());
  __atomic_store_n(&cell.bytes, static_cast<uint32_t>(request.local.size()), __ATOMIC_RELEASE);
  __atomic_store_n(&header->sent, ++sent_, __ATOMIC_RELEASE);
  Ring(&peer_slot_line_->sends, 1, /*wake=*/true);
  return CompletionStatus::kOk;
}

absl::Status ShmConnection::PostReceive(uint64_t id, std::span<std::byte> buffer) {
  if (receives_.size() >= limits_.max_receives) {
    return absl::ResourceExhaustedError(absl::StrCat("all ", limits_.max_receives,
                                                     " receives of the connection to node ", peer().value(),
                                                     " are posted and unused"));
  }
  if (!buffer.empty() && !queue_->IsLocal(buffer)) {
    return absl::InvalidArgumentError(
        "the buffer of a receive must lie in memory registered with this fabric");
  }
  receives_.push_back({id, buffer});
  InboxCell& cell = Cells(inbox_file_)[posted_ % limits_.max_receives];
  __atomic_store_n(&cell.room, static_cast<uint32_t>(std::min<size_t>(buffer.size(), UINT32_MAX)),
                   __ATOMIC_RELEASE);
  __atomic_store_n(&Header(inbox_file_)->posted, ++posted_, __ATOMIC_RELEASE);
  return absl::OkStatus();
}

void ShmConnection::ReceiveArrived() {
  // The count comes from the peer: no more is taken than was posted.
  const uint64_t sent = __atomic_load_n(&Header(inbox_file_)->sent, __ATOMIC_ACQUIRE);
  while (received_ < sent && !receives_.empty()) {
    InboxCell& cell = Cells(inbox_file_)[received_ % limits_.max_receives];
    const Receive receive = receives_.front();
    receives_.pop_front();
    ++received_;
    size_t bytes = __atomic_load_n(&cell.bytes, __ATOMIC_ACQUIRE);
    bytes = std::min({bytes, receive.buffer.size(), Fabric::kMaxSend});
    CopyFromShared(receive.buffer.data(), reinterpret_cast<const std::byte*>(cell.body), bytes);
    queue_->Push({.kind = Completion::Kind::kReceived,
                  .bytes = static_cast<uint32_t>(bytes),
                  .id = receive.id,
                  .connection = this});
  }
}

}  // namespace furrow::rdma
