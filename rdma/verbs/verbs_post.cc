// What a VerbsConnection gives to its device, and how that ends.
#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

const char* NameOf(const SendEntry& entry) {
  if (entry.internal) return "message of the fabric";
  switch (entry.opcode) {
    case Opcode::kRead:
      return "READ";
    case Opcode::kWrite:
      return "WRITE";
    case Opcode::kSend:
      return "SEND";
  }
  return "request";
}

}  // namespace

// Requests that go to the device with one doorbell.
struct VerbsConnection::Chain {
  std::array<ibv_send_wr, kChain + 1> requests;  // a marker may follow
  std::array<ibv_sge, kChain> places;
  std::array<uint64_t, kChain + 1> numbers;
  size_t count = 0;
};

absl::Status VerbsConnection::Post(std::span<const WorkRequest> requests) {
  if (!ledger_.Fits(requests.size(), unpolled_)) [[unlikely]] {
    return absl::ResourceExhaustedError(
        absl::StrCat(requests.size(),
                     " requests do not fit behind those that have not ended or whose "
                     "completions have not been polled: this connection to node ",
                     peer().value(), " holds ", limits_.max_requests));
  }
  for (; requests.size() > kChain; requests = requests.subspan(kChain)) PostChain(requests.first(kChain));
  PostChain(requests);
  EndDoomed();
  Account();
  return absl::OkStatus();
}

CompletionStatus VerbsConnection::Check(const WorkRequest& request, uint32_t* key) const {
  if (failed_ || doomed_) return CompletionStatus::kFlushed;
  if (down_ || peer_gone_.load(std::memory_order_acquire)) return CompletionStatus::kPeerGone;
  const size_t bytes = request.local.size();
  if (request.inlined) {
    if (request.opcode == Opcode::kRead || bytes > WorkRequest::kMaxInline) {
      return CompletionStatus::kLocalProtection;
    }
  } else if (bytes > 0) {
    const KeyRange* range = queue_->keys().Find(request.local);
    if (range == nullptr || bytes > queue_->parts()->device->limits().message_bytes) {
      return CompletionStatus::kLocalProtection;
    }
    *key = range->key;
  }
  if (request.opcode == Opcode::kSend) {
    if (bytes > Fabric::kMaxSend) return CompletionStatus::kRemoteAccess;
    // The bounded time that a SEND waits for a receive is none.
    if (send_credits_ == 0) return CompletionStatus::kReceiverNotReady;
  }
  return CompletionStatus::kOk;
}

void VerbsConnection::PostChain(std::span<const WorkRequest> requests) {
  Chain chain;
  for (const WorkRequest& request : requests) {
    uint32_t key = 0;
    SendEntry entry{.id = request.id,
                    .bytes = static_cast<uint32_t>(request.local.size()),
                    .opcode = request.opcode,
                    .signaled = request.signaled,
                    .doom = Check(request, &key)};
    bool ask = false;
    const uint64_t number = ledger_.Add(entry, &ask);
    if (entry.doom != CompletionStatus::kOk) [[unlikely]] {
      doomed_ = true;
      continue;
    }
    chain.numbers[chain.count] = number;
    Fill(request, key, ask, number, chain.requests[chain.count], chain.places[chain.count]);
    ++chain.count;
  }
  Submit(chain);
  if (doomed_ && ledger_.unasked() > 0 && !down_) PostMarker(/*last=*/true);
}

void VerbsConnection::Fill(const WorkRequest& request, uint32_t key, bool ask, uint64_t number,
                           ibv_send_wr& wr, ibv_sge& place) {
  place = {.addr = reinterpret_cast<uint64_t>(request.local.data()),
           .length = static_cast<uint32_t>(request.local.size()),
           .lkey = key};
  wr = {};
  wr.wr_id = work_id_ | static_cast<uint32_t>(number);
  wr.sg_list = &place;
  wr.num_sge = request.local.empty() ? 0 : 1;
  wr.send_flags = ask ? IBV_SEND_SIGNALED : 0;
  if (request.inlined) wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = request.remote.address;
  wr.wr.rdma.rkey = request.remote.key.value();
  if (request.opcode == Opcode::kRead) {
    wr.opcode = IBV_WR_RDMA_READ;
    return;
  }
  if (request.opcode == Opcode::kSend) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags |= IBV_SEND_SOLICITED;
    wr.imm_data = htobe32(Immediate::Send(request.local.size()));
    wr.wr.rdma.remote_addr = peer_end_.inbox + sent_++ % limits_.max_receives * Fabric::kMaxSend;
    wr.wr.rdma.rkey = peer_end_.inbox_key;
    --send_credits_;
    return;
  }
  wr.opcode = IBV_WR_RDMA_WRITE;
  if (request.notify != WorkRequest::Notify::kNone) FillNotify(request, wr);
}

void VerbsConnection::FillNotify(const WorkRequest& request, ibv_send_wr& wr) {
  const bool wake = request.notify == WorkRequest::Notify::kWake;
  const uint8_t channel = request.channel & 63;
  if (notify_credits_ == 0) {
    (wake ? owed_wake_ : owed_quiet_) |= uint64_t{1} << channel;
    return;
  }
  --notify_credits_;
  const bool last = notify_credits_ == 0;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htobe32(Immediate::Notify(channel, last));
  // The last one wakes in any case: a waking one that comes after it has to wait for its credits.
  if (wake || last) wr.send_flags |= IBV_SEND_SOLICITED;
}

bool VerbsConnection::Submit(Chain& chain) {
  if (chain.count == 0) return true;
  for (size_t i = 0; i + 1 < chain.count; ++i) chain.requests[i].next = &chain.requests[i + 1];
  chain.requests[chain.count - 1].next = nullptr;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair_, chain.requests.data(), &bad);
  if (error == 0) [[likely]]
    return true;
  const size_t first = bad == nullptr ? 0 : static_cast<size_t>(bad - chain.requests.data());
  FURROW_LOG(ERROR) << "the device takes no request to node " << link_->peer().value() << " any more, with "
                    << ledger_.under_way() << " under way: " << CallFailed("ibv_post_send", error).message();
  ledger_.Doom(chain.numbers[first], CompletionStatus::kLocalProtection);
  doomed_ = true;
  ServeLater();
  return false;
}

void VerbsConnection::GiveUp() {
  Die();
  if (ledger_.under_way() == 0) return;
  FURROW_LOG(ERROR) << "how " << ledger_.under_way() << " requests to node " << link_->peer().value()
                    << " have ended cannot be known any more";
  ledger_.Doom(ledger_.head(), CompletionStatus::kPeerGone);
}

bool VerbsConnection::PostInternal(uint32_t immediate, bool solicited) {
  if (!ledger_.FitsInternal()) {
    ServeLater();
    return false;
  }
  Chain chain;
  bool ask = false;
  chain.numbers[0] = ledger_.Add({.internal = true}, &ask);
  ibv_send_wr& wr = chain.requests[0];
  wr = {};
  wr.wr_id = work_id_ | static_cast<uint32_t>(chain.numbers[0]);
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htobe32(immediate);
  wr.send_flags = (ask ? IBV_SEND_SIGNALED : 0) | (solicited ? IBV_SEND_SOLICITED : 0);
  chain.count = 1;
  if (Submit(chain)) return true;
  if (ledger_.unasked() > 0 && !down_) PostMarker(/*last=*/true);
  return false;
}

// `last`: behind it nothing goes to the device any more; there is always room for that one, and for one more
// when the device refuses it.
bool VerbsConnection::PostMarker(bool last) {
  if (!last && !ledger_.FitsInternal()) return false;
  Chain chain;
  bool ask = true;
  chain.numbers[0] = ledger_.Add({.internal = true}, &ask);
  ibv_send_wr& wr = chain.requests[0];
  wr = {};
  wr.wr_id = work_id_ | static_cast<uint32_t>(chain.numbers[0]);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  chain.count = 1;
  if (Submit(chain)) return true;
  if (down_) {
    GiveUp();
  } else {
    TakeDown();
  }
  return true;
}

void VerbsConnection::PostReceives(uint32_t count) {
  while (count > 0) {
    std::array<ibv_recv_wr, kChain> receives;
    const uint32_t batch = std::min<uint32_t>(count, kChain);
    for (uint32_t i = 0; i < batch; ++i) {
      receives[i] = {.wr_id = work_id_,
                     .next = i + 1 < batch ? &receives[i + 1] : nullptr,
                     .sg_list = nullptr,
                     .num_sge = 0};
    }
    ibv_recv_wr* bad = nullptr;
    if (int error = ibv_post_recv(pair_, receives.data(), &bad); error != 0) {
      FURROW_LOG(ERROR) << CallFailed("ibv_post_recv", error).message();
      return;
    }
    count -= batch;
  }
}

// --- service ---

void VerbsConnection::Serve() {
  serving_ = serve_later_ = false;
  if (!down_ && !failed_ && !doomed_) {
    if (used_receives_ > 0) PostReceives(std::exchange(used_receives_, 0));
    ReturnCredits();
    MakeUpNotifications();
    if (std::exchange(marker_wanted_, false) && ledger_.unasked() > 0 && !PostMarker(/*last=*/false)) {
      marker_wanted_ = true;
      ServeLater();
    }
  }
  EndDoomed();
  Account();
}

void VerbsConnection::ReturnCredits() {
  if (down_ || failed_ || doomed_) return;
  // The receives behind the credits first.
  const bool due = polled_notifies_ >= queue_->parts()->options.notify_credits / 2 || peer_waits_;
  if (!due && new_receives_ == 0) return;
  if (used_receives_ > 0) PostReceives(std::exchange(used_receives_, 0));
  if (!PostInternal(Immediate::Credits(polled_notifies_, new_receives_), /*solicited=*/peer_waits_)) return;
  polled_notifies_ = new_receives_ = 0;
  peer_waits_ = false;
}

void VerbsConnection::MakeUpNotifications() {
  while ((owed_wake_ | owed_quiet_) != 0 && notify_credits_ > 0 && !doomed_) {
    const bool wake = owed_wake_ != 0;
    uint64_t& owed = wake ? owed_wake_ : owed_quiet_;
    const auto channel = static_cast<uint8_t>(std::countr_zero(owed));
    const bool last = notify_credits_ == 1;
    if (!PostInternal(Immediate::Notify(channel, last), /*solicited=*/wake || last)) return;
    --notify_credits_;
    owed &= owed - 1;
    if (wake) owed_quiet_ &= ~(uint64_t{1} << channel);
  }
}

// --- ends ---

void VerbsConnection::OnSent(uint32_t low, int status, uint32_t vendor_error) {
  const uint64_t number = ledger_.Number(low);
  if (!ledger_.Contains(number)) return;
  while (ledger_.head() != number) {
    const SendEntry entry = ledger_.Pop();
    End(entry, entry.doom);
  }
  const SendEntry entry = ledger_.Pop();
  if (status == IBV_WC_SUCCESS) [[likely]] {
    last_success_ = queue_->now();
    End(entry, CompletionStatus::kOk);
  } else {
    if (!failed_) {
      last_status_ = status;
      last_vendor_error_ = vendor_error;
    }
    End(entry, MeaningOf(status));
  }
  EndDoomed();
  Account();
}

void VerbsConnection::EndDoomed() {
  while (!ledger_.empty() && ledger_.front().doom != CompletionStatus::kOk) {
    const SendEntry entry = ledger_.Pop();
    End(entry, entry.doom);
  }
}

void VerbsConnection::End(const SendEntry& entry, CompletionStatus status) {
  if (status != CompletionStatus::kOk) {
    if (failed_) {
      status = CompletionStatus::kFlushed;
      ++flushed_;
      ++queue_->parts()->counters.flushed;
    } else {
      Fail(entry, status);
    }
  }
  if (entry.internal || (status == CompletionStatus::kOk && !entry.signaled)) return;
  ++unpolled_;
  queue_->Push({.kind = Completion::Kind::kRequest,
                .status = status,
                .bytes = entry.bytes,
                .id = entry.id,
                .connection = this});
}

void VerbsConnection::Fail(const SendEntry& entry, CompletionStatus status) {
  failed_ = true;
  const VerbsParts& parts = *queue_->parts();
  ++queue_->parts()->counters.failures;
  const std::string device_says = last_status_ == 0
                                      ? std::string(ToString(status))
                                      : absl::StrCat(std::string(WordsFor(last_status_)), " (status ",
                                                     last_status_, ", vendor's ", last_vendor_error_, ")");
  const auto level_line = [&] {
    return absl::StrCat(NameOf(entry), " of ", entry.bytes, " bytes to node ", link_->peer().value(),
                        " failed: ", device_says, "; ", route_, ", queue pair ",
                        pair_ != nullptr ? pair_->qp_num : 0, " to ", peer_end_.queue_pair, ", last success ",
                        (parts.options.clock->Now() - last_success_) / kMillisecond, " ms ago");
  };
  // That a peer which has left is gone was said by the session.
  if (status == CompletionStatus::kPeerGone && peer_gone_.load(std::memory_order_acquire)) {
    FURROW_LOG(INFO) << level_line();
  } else {
    FURROW_LOG(ERROR) << level_line();
  }
  TakeDown();
  if (status == CompletionStatus::kPeerGone) {
    LosePeer();
    link_->Probe();
  }
}

}  // namespace furrow::rdma
