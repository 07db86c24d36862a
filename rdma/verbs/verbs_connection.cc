#include "rdma/verbs/verbs_connection.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
VerbsConnection::VerbsConnection(std::shared_ptr<VerbsQueue> queue, ConnectionLimits limits)
    : queue_(std::move(queue)),
      limits_(limits),
      iwarp_(queue_->parts()->device->iwarp()),
      ledger_(limits.max_requests) {}

absl::StatusOr<std::unique_ptr<VerbsConnection>> VerbsConnection::Make(std::shared_ptr<VerbsQueue> queue,
                                                                       ConnectionLimits limits) {
  if (limits.max_requests == 0 || limits.max_requests > kMaxRequests || limits.max_receives > kMaxReceives) {
    return absl::InvalidArgumentError(
        absl::StrCat("a connection with ", limits.max_requests, " requests and ", limits.max_receives,
                     " receives: at most ", kMaxRequests, " and ", kMaxReceives, " are possible"));
  }
  std::unique_ptr<VerbsConnection> connection(new VerbsConnection(std::move(queue), limits));
  FURROW_RETURN_IF_ERROR(connection->MakePair());
  return connection;
}

// One for each notification and SEND that the peer has credit for, and one for each message of credits that
// can be under way: at most two halves of our notifications and what the peer's last one adds, and one for
// each receive that it posts.
uint32_t VerbsConnection::receive_entries() const {
  return queue_->parts()->options.notify_credits + 2 * limits_.max_receives + 4;
}

absl::Status VerbsConnection::MakePair() {
  VerbsParts& parts = *queue_->parts();
  const size_t words = iwarp_ ? (receive_entries() + 1) * sizeof(uint32_t) : 0;
  if (limits_.max_receives + words > 0) {
    FURROW_ASSIGN_OR_RETURN(inbox_file_,
                            MemoryFile::Anonymous(limits_.max_receives * Fabric::kMaxSend + words));
    FURROW_ASSIGN_OR_RETURN(
        inbox_, parts.memory->Add(inbox_file_.bytes(), iwarp_ ? Access::kReadWrite : Access::kWrite));
  }
  FURROW_ASSIGN_OR_RETURN(slot_, queue_->AddConnection(this, send_entries(), receive_entries()));
  work_id_ = queue_->WorkId(slot_);
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = queue_->sends();
  attributes.recv_cq = queue_->receives();
  attributes.cap = {.max_send_wr = send_entries(),
                    .max_recv_wr = receive_entries(),
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = WorkRequest::kMaxInline};
  pair_ = ibv_create_qp(queue_->domain(), &attributes);
  if (pair_ == nullptr) {
    return QueuePairRefused(errno, {.device = parts.device->name(),
                                    .send_depth = send_entries(),
                                    .receive_depth = receive_entries(),
                                    .inlined = WorkRequest::kMaxInline,
                                    .max_depth = parts.device->limits().queue_depth,
                                    .max_pairs = parts.device->limits().queue_pairs});
  }
  ++parts.counters.queue_pairs;
  return absl::OkStatus();
}

VerbsConnection::~VerbsConnection() {
  Die();
  // Behind its end: whoever hears of it finds nobody at this queue pair.
  if (link_ != nullptr && link_->RemoveConnection(id_)) {
    VerbsMessage message;
    message.type = VerbsMessageType::kClose;
    message.connection = id_;
    link_->Send(message);
  }
  if (inbox_ != nullptr) queue_->parts()->memory->Remove(inbox_);
  if (slot_ != kNoSlot) {
    if (accounted_ > 0) queue_->AddUnderWay(-int64_t{accounted_});
    queue_->RemoveConnection(slot_, this);
  }
  if (flushed_ > 0) {
    FURROW_LOG(INFO) << flushed_ << " requests to node " << link_->peer().value()
                     << " were flushed behind the failure of their connection";
  }
}

void VerbsConnection::Die() {
  if (pair_ == nullptr) return;
  if (int error = ibv_destroy_qp(pair_); error != 0) {
    FURROW_LOG(ERROR) << CallFailed("ibv_destroy_qp", error).message();
  }
  pair_ = nullptr;
  down_ = true;
  --queue_->parts()->counters.queue_pairs;
}

VerbsEnd VerbsConnection::Describe() const {
  const VerbsParts& parts = *queue_->parts();
  VerbsEnd end = {};
  end.queue_pair = pair_->qp_num;
  if (const auto gid = parts.device->GidAt(parts.options.gid_index);
      parts.options.gid_index >= 0 && gid.ok()) {
    std::memcpy(end.gid, gid->data(), sizeof(end.gid));
  }
  if (inbox_ != nullptr) {
    const RemoteAddress inbox = VerbsMemory::AddressOf(inbox_);
    end.inbox = inbox.address;
    end.inbox_key = inbox.key.value();
  }
  end.mtu = std::min(parts.options.max_mtu, parts.device->limits().mtu);
  end.notify_credits = parts.options.notify_credits;
  end.read_depth = std::min(parts.options.read_depth, parts.device->limits().read_depth_in);
  return end;
}

absl::Status VerbsConnection::Agree(std::string private_data, const VerbsEnd& peer_end) {
  const uint32_t mtu = peer_end.mtu;
  if (mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)) != 0 || peer_end.read_depth == 0 ||
      peer_end.notify_credits > Immediate::kMaxCount || peer_end.queue_pair > 0xffffff) {
    return absl::InvalidArgumentError("the peer describes its end of the connection wrongly");
  }
  const VerbsOptions& options = queue_->parts()->options;
  const DeviceLimits& device = queue_->parts()->device->limits();
  mtu_ = std::min({options.max_mtu, device.mtu, mtu});
  read_depth_ = std::min({options.read_depth, device.read_depth_out, peer_end.read_depth});
  peer_end_ = peer_end;
  notify_credits_ = peer_end.notify_credits;
  peer_private_data_ = std::move(private_data);
  return absl::OkStatus();
}

absl::Status VerbsConnection::Join(std::shared_ptr<SessionLink> link, uint32_t id) {
  last_success_ = queue_->parts()->options.clock->Now();
  id_ = id;
  link_ = std::move(link);
  if (link_->AddConnection(id, this)) return absl::OkStatus();
  link_ = nullptr;
  return absl::FailedPreconditionError(absl::StrCat("the session has a connection ", id, " already"));
}

void VerbsConnection::LosePeer() {
  if (!peer_gone_.exchange(true, std::memory_order_acq_rel)) queue_->PushDisconnected(this);
}

// --- the queue's thread ---

bool VerbsConnection::idle() const {
  if (unpolled_ > 0) return false;
  if (ledger_.empty()) return true;
  // Nobody asked for the end of what is left: it may be over already.
  if (ledger_.size() == ledger_.unasked() && pair_ != nullptr) {
    marker_wanted_ = true;
    ServeLater();
  }
  return pair_ == nullptr && !rest_is_open_;
}

void VerbsConnection::ServeLater() const {
  if (std::exchange(serve_later_, true)) return;
  queue_->ServeLater(slot_);
}

void VerbsConnection::Announce() {
  announced_ = true;
  for (uint64_t channels = channels_; channels != 0; channels &= channels - 1) {
    queue_->Push({.kind = Completion::Kind::kNotified,
                  .channel = static_cast<uint8_t>(std::countr_zero(channels)),
                  .connection = this});
  }
  if (!lose_when_announced_) return;
  TakeDown();
  queue_->Push({.kind = Completion::Kind::kDisconnected, .connection = this});
}

void VerbsConnection::TakeDown() {
  if (std::exchange(down_, true) || pair_ == nullptr) return;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  if (int error = ibv_modify_qp(pair_, &attributes, IBV_QP_STATE); error != 0) {
    FURROW_LOG(ERROR) << CallFailed("ibv_modify_qp to ERR", error).message();
  }
  if (queue_->parts()->device->forgets()) {
    Die();
    rest_is_open_ = true;
    queue_->EndRestLater(slot_);
    return;
  }
  // Requests that did not ask and have ended well tell nobody; the marker, flushed behind them, does.
  if (ledger_.unasked() > 0) PostMarker(/*last=*/true);
  Account();
}

void VerbsConnection::EndRest() {
  rest_is_open_ = false;
  Doom();
  EndDoomed();
  Account();
}

void VerbsConnection::OnPolled(const Completion& completion) {
  if (completion.kind == Completion::Kind::kRequest) {
    --unpolled_;
  } else {
    channels_ &= ~(uint64_t{1} << completion.channel);
  }
}

bool VerbsConnection::OnReceive(const ibv_wc& entry) {
  if (entry.status != IBV_WC_SUCCESS) {
    // The queue pair is in its error state: by our doing, or because the peer did what it may not.
    if (!down_ && !failed_ && !peer_gone_.load(std::memory_order_acquire)) {
      FURROW_LOG(WARNING) << "the queue pair to node " << link_->peer().value()
                          << " has failed because of a request of the peer's: " << WordsFor(entry.status);
      LosePeer();
    }
    return false;
  }
  ++used_receives_;
  uint32_t word = entry.imm_data;
  if (iwarp_) {
    if (entry.byte_len != sizeof(word)) {
      Break("it sent what is no word");
      return false;
    }
    std::memcpy(&word, WordAt(static_cast<uint32_t>(entry.wr_id)), sizeof(word));
  }
  const Immediate immediate(be32toh(word));
  switch (immediate.kind()) {
    case Immediate::kNotify: {
      ++polled_notifies_;
      peer_waits_ |= immediate.last();
      const uint64_t bit = uint64_t{1} << immediate.channel();
      if ((channels_ & bit) == 0 && announced_) {
        queue_->Push(
            {.kind = Completion::Kind::kNotified, .channel = immediate.channel(), .connection = this});
      }
      channels_ |= bit;
      break;
    }
    case Immediate::kSend: {
      if (receives_.empty() || immediate.bytes() > receives_.front().buffer.size() ||
          immediate.bytes() > Fabric::kMaxSend) {
        Break("it sent more than there was a receive for");
        break;
      }
      const Receive receive = receives_.front();
      receives_.pop_front();
      const std::byte* cell = inbox_file_.data() + received_++ % limits_.max_receives * Fabric::kMaxSend;
      std::memcpy(receive.buffer.data(), cell, immediate.bytes());
      queue_->Push({.kind = Completion::Kind::kReceived,
                    .bytes = immediate.bytes(),
                    .id = receive.id,
                    .connection = this});
      break;
    }
    case Immediate::kCredits:
      notify_credits_ += immediate.notifications();
      send_credits_ += immediate.receives();
      if (notify_credits_ > peer_end_.notify_credits || send_credits_ > limits_.max_receives) {
        Break("it returned credits that it never had");
      }
      break;
    default:
      Break("it sent immediate data of no meaning");
  }
  return !std::exchange(serving_, true);
}

void VerbsConnection::Break(const char* why) {
  FURROW_LOG(ERROR) << "node " << link_->peer().value()
                    << " does not keep to the protocol of the verbs fabric: " << why
                    << "; its connection ends";
  TakeDown();
  LosePeer();
}

absl::Status VerbsConnection::PostReceive(uint64_t id, std::span<std::byte> buffer) {
  if (receives_.size() >= limits_.max_receives) {
    return absl::ResourceExhaustedError(absl::StrCat("all ", limits_.max_receives,
                                                     " receives of the connection to node ", peer().value(),
                                                     " are posted and unused"));
  }
  if (!buffer.empty() && queue_->keys().Find(buffer) == nullptr) {
    return absl::InvalidArgumentError(
        "the buffer of a receive must lie in memory registered with this fabric");
  }
  receives_.push_back({id, buffer});
  ++new_receives_;
  ReturnCredits();
  Account();
  return absl::OkStatus();
}

void VerbsConnection::Account() {
  queue_->AddUnderWay(int64_t{ledger_.under_way()} - int64_t{accounted_});
  accounted_ = ledger_.under_way();
}

}  // namespace furrow::rdma
