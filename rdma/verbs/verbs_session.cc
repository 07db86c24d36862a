#include "rdma/verbs/verbs_session.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

constexpr size_t kBufferBytes = 512;
static_assert(sizeof(VerbsMessage) <= kBufferBytes);
constexpr uint64_t kReceiveId = uint64_t{1} << 32;
constexpr uint64_t kProbeId = uint64_t{1} << 33;

}  // namespace

// --- SessionLink ---

void SessionLink::Send(const VerbsMessage& message) {
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    if (outgoing_.size() == kMaxQueued) {
      overrun_ = true;
    } else {
      outgoing_.push_back(message);
    }
  }
  wake_();
}

void SessionLink::Probe() {
  probe_.store(true, std::memory_order_release);
  wake_();
}

bool SessionLink::TakeMessage(VerbsMessage* message) {
  MutexLock lock(&mutex_);
  if (outgoing_.empty()) return false;
  *message = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

bool SessionLink::overrun() const {
  MutexLock lock(&mutex_);
  return overrun_;
}

bool SessionLink::AddConnection(uint32_t id, VerbsConnection* connection) {
  MutexLock lock(&connections_mutex_);
  return connections_.try_emplace(id, Member{connection}).second;
}

bool SessionLink::HasConnection(uint32_t id) {
  MutexLock lock(&connections_mutex_);
  return connections_.contains(id);
}

bool SessionLink::RemoveConnection(uint32_t id) {
  {
    MutexLock lock(&connections_mutex_);
    if (connections_.erase(id) == 0) return false;
  }
  {
    MutexLock lock(&mutex_);
    if (ended_) return true;
    removed_.push_back(id);
  }
  wake_();
  return true;
}

std::vector<uint32_t> SessionLink::TakeRemoved() {
  MutexLock lock(&mutex_);
  return std::exchange(removed_, {});
}

bool SessionLink::ConnectionReady(uint32_t id) {
  MutexLock lock(&connections_mutex_);
  auto it = connections_.find(id);
  if (it == connections_.end()) return true;  // closed meanwhile, and the peer has been told
  if (std::exchange(it->second.ready, true)) return false;
  it->second.connection->queue()->PushConnected(it->second.connection);
  return true;
}

void SessionLink::LoseConnection(uint32_t id) {
  MutexLock lock(&connections_mutex_);
  auto it = connections_.find(id);
  if (it != connections_.end()) it->second.connection->LosePeer();
}

void SessionLink::End() {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    outgoing_.clear();
    removed_.clear();
  }
  MutexLock lock(&connections_mutex_);
  for (auto& [id, member] : connections_) member.connection->LosePeer();
}

// --- VerbsSession ---

absl::StatusOr<std::unique_ptr<VerbsSession>> VerbsSession::Make(rdma_cm_id* id, ibv_comp_channel* channel,
                                                                 VerbsParts& parts) {
  std::unique_ptr<VerbsSession> session(new VerbsSession(id, parts));
  FURROW_RETURN_IF_ERROR(session->Open(channel));
  return session;
}

absl::Status VerbsSession::Open(ibv_comp_channel* channel) {
  ++parts_.counters.sessions;
  FURROW_ASSIGN_OR_RETURN(buffers_, MemoryFile::Anonymous((kReceives + kSends) * kBufferBytes));
  const int rights = IBV_ACCESS_LOCAL_WRITE;
  registration_ = ibv_reg_mr(id_->pd, buffers_.data(), buffers_.size(), rights);
  if (registration_ == nullptr) return CallFailed("ibv_reg_mr of a session's buffers", errno);
  if (parts_.device->iwarp()) {
    FURROW_ASSIGN_OR_RETURN(words_, MemoryFile::Anonymous(4096));
    words_registration_ = ibv_reg_mr(id_->pd, words_.data(), words_.size(),
                                     rights | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (words_registration_ == nullptr) return CallFailed("ibv_reg_mr of a session's words", errno);
  }
  // Room for each buffer, and a probe.
  cq_ = ibv_create_cq(id_->verbs, kReceives + kSends + 1, this, channel, 0);
  if (cq_ == nullptr) return CompletionQueueRefused(errno, kReceives + kSends + 1, UINT64_MAX);
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = cq_;
  attributes.recv_cq = cq_;
  attributes.sq_sig_all = 1;
  attributes.cap = {.max_send_wr = kSends + 1,
                    .max_recv_wr = kReceives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  if (rdma_create_qp(id_, id_->pd, &attributes) != 0) {
    return QueuePairRefused(errno, {.device = parts_.device->name(),
                                    .send_depth = kSends + 1,
                                    .receive_depth = kReceives,
                                    .max_depth = parts_.device->limits().queue_depth,
                                    .max_pairs = parts_.device->limits().queue_pairs});
  }
  has_pair_ = true;
  for (uint32_t i = 0; i < kReceives; ++i) FURROW_RETURN_IF_ERROR(PostReceive(i));
  if (int error = ibv_req_notify_cq(cq_, 0); error != 0) return CallFailed("ibv_req_notify_cq", error);
  return absl::OkStatus();
}

VerbsSession::~VerbsSession() {
  if (has_pair_) rdma_destroy_qp(id_);
  if (cq_ != nullptr) {
    if (int error = ibv_destroy_cq(cq_); error != 0) {
      FURROW_LOG(ERROR) << CallFailed("ibv_destroy_cq of a session", error).message();
    }
  }
  if (registration_ != nullptr) ibv_dereg_mr(registration_);
  if (words_registration_ != nullptr) ibv_dereg_mr(words_registration_);
  --parts_.counters.sessions;
}

absl::Status VerbsSession::PostReceive(uint32_t index) {
  ibv_sge place = {.addr = reinterpret_cast<uint64_t>(buffers_.data() + index * kBufferBytes),
                   .length = kBufferBytes,
                   .lkey = registration_->lkey};
  ibv_recv_wr receive = {.wr_id = kReceiveId | index, .next = nullptr, .sg_list = &place, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  if (int error = ibv_post_recv(id_->qp, &receive, &bad); error != 0) {
    return CallFailed("ibv_post_recv on a session", error);
  }
  return absl::OkStatus();
}

void VerbsSession::SetTimer() const {
  ibv_qp_attr attributes = {};
  attributes.min_rnr_timer = parts_.options.min_rnr_timer;
  (void)ibv_modify_qp(id_->qp, &attributes, IBV_QP_MIN_RNR_TIMER);
}

bool VerbsSession::Send(const VerbsMessage& message) {
  FURROW_DCHECK(HasRoom());
  // In flight are the last sending_ buffers before next_send_.
  const uint32_t index = next_send_++ % kSends;
  std::byte* buffer = buffers_.data() + (kReceives + index) * kBufferBytes;
  std::memcpy(buffer, &message, sizeof(message));
  ibv_sge place = {
      .addr = reinterpret_cast<uint64_t>(buffer), .length = sizeof(message), .lkey = registration_->lkey};
  ibv_send_wr send = {};
  send.sg_list = &place;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, &send, &bad) != 0) return false;
  ++sending_;
  return true;
}

void VerbsSession::Probe(Nanos now) {
  if (probing_) return;
  const bool iwarp = words_registration_ != nullptr;
  if (iwarp && probed_word_ == RemoteAddress()) return;
  probed_ = now;
  ibv_sge word = {};
  ibv_send_wr write = {};
  write.wr_id = kProbeId;
  write.opcode = IBV_WR_RDMA_WRITE;
  if (iwarp) {
    word = {.addr = reinterpret_cast<uint64_t>(words_.data() + 64),
            .length = sizeof(uint32_t),
            .lkey = words_registration_->lkey};
    write.opcode = IBV_WR_RDMA_READ;
    write.sg_list = &word;
    write.num_sge = 1;
    write.wr.rdma.remote_addr = probed_word_.address;
    write.wr.rdma.rkey = probed_word_.key.value();
  }
  write.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  probing_ = ibv_post_send(id_->qp, &write, &bad) == 0;
}

void VerbsSession::TellProbed(VerbsEnd* end) const {
  if (words_registration_ == nullptr) return;
  end->inbox = reinterpret_cast<uint64_t>(words_.data());
  end->inbox_key = words_registration_->rkey;
}

bool VerbsSession::Poll(const std::function<void(const VerbsMessage&)>& handle, absl::Status* why) {
  std::array<ibv_wc, 16> entries;
  for (;;) {
    const int count = ibv_poll_cq(cq_, static_cast<int>(entries.size()), entries.data());
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& entry = entries[i];
      if (entry.status != IBV_WC_SUCCESS) {
        *why = absl::UnavailableError(
            absl::StrCat("the session with the peer has failed: ", Sv(WordsFor(entry.status)), " (status ",
                         static_cast<int>(entry.status), ")"));
        return false;
      }
      if (entry.wr_id == kProbeId) {
        probing_ = false;
      } else if ((entry.wr_id & kReceiveId) == 0) {
        --sending_;
      } else {
        const uint32_t index = static_cast<uint32_t>(entry.wr_id);
        VerbsMessage message;
        if (!ParseMessage({buffers_.data() + index * kBufferBytes, entry.byte_len}, &message)) {
          *why = absl::FailedPreconditionError(
              "the peer sent what is no message of this version of the verbs fabric");
          return false;
        }
        if (absl::Status status = PostReceive(index); !status.ok()) {
          *why = status;
          return false;
        }
        handle(message);
      }
    }
  }
  return true;
}

}  // namespace furrow::rdma
