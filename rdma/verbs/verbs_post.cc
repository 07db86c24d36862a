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

// Requests that go to the device with one doorbell. An entry of the ledger is one of the device's, or up to
// kParts where notifications and ends are requests of their own (see verbs_connection.h).
struct VerbsConnection::Chain {
  static constexpr size_t kMost = kChain * kParts + 1;
  std::array<ibv_send_wr, kMost> requests;
  std::array<ibv_sge, kMost> places;
  std::array<uint32_t, kMost> words;  // what a SEND of a word carries
  std::array<uint64_t, kMost> numbers;
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
    Fill(request, key, ask, number, chain);
  }
  Submit(chain);
  if (doomed_ && ledger_.unasked() > 0 && !down_) PostMarker(/*last=*/true);
}

ibv_send_wr& VerbsConnection::Add(Chain& chain, uint64_t number) const {
  chain.numbers[chain.count] = number;
  ibv_send_wr& wr = chain.requests[chain.count];
  wr = {};
  wr.wr_id = work_id_ | static_cast<uint32_t>(number);
  wr.sg_list = &chain.places[chain.count];
  ++chain.count;
  return wr;
}

void VerbsConnection::Fill(const WorkRequest& request, uint32_t key, bool ask, uint64_t number,
                           Chain& chain) {
  const bool read = request.opcode == Opcode::kRead;
  ibv_send_wr& wr = Add(chain, number);
  *wr.sg_list = {.addr = reinterpret_cast<uint64_t>(request.local.data()),
                 .length = static_cast<uint32_t>(request.local.size()),
                 .lkey = key};
  wr.num_sge = request.local.empty() ? 0 : 1;
  if (ask && (!iwarp_ || read)) wr.send_flags = IBV_SEND_SIGNALED;
  if (request.inlined) wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = request.remote.address;
  wr.wr.rdma.rkey = request.remote.key.value();
  if (read) {
    wr.opcode = IBV_WR_RDMA_READ;
    return;
  }
  wr.opcode = IBV_WR_RDMA_WRITE;
  if (request.opcode == Opcode::kSend) {
    wr.wr.rdma.remote_addr = peer_end_.inbox + sent_++ % limits_.max_receives * Fabric::kMaxSend;
    wr.wr.rdma.rkey = peer_end_.inbox_key;
    --send_credits_;
    Tell(chain, &wr, number, Immediate::Send(request.local.size()), /*solicited=*/true);
  } else if (request.notify != WorkRequest::Notify::kNone) {
    FillNotify(request, wr, number, chain);
  }
  if (ask && iwarp_) AddProof(chain, number);
}

void VerbsConnection::FillNotify(const WorkRequest& request, ibv_send_wr& wr, uint64_t number, Chain& chain) {
  const bool wake = request.notify == WorkRequest::Notify::kWake;
  const uint8_t channel = request.channel & 63;
  if (notify_credits_ == 0) {
    (wake ? owed_wake_ : owed_quiet_) |= uint64_t{1} << channel;
    return;
  }
  --notify_credits_;
  const bool last = notify_credits_ == 0;
  // The last one wakes in any case: a waking one that comes after it has to wait for its credits.
  Tell(chain, &wr, number, Immediate::Notify(channel, last), wake || last);
}

void VerbsConnection::Tell(Chain& chain, ibv_send_wr* write, uint64_t number, uint32_t immediate,
                           bool solicited) {
  if (!iwarp_) [[likely]] {
    write->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write->imm_data = htobe32(immediate);
    if (solicited) write->send_flags |= IBV_SEND_SOLICITED;
    return;
  }
  uint32_t& word = chain.words[chain.count];
  word = htobe32(immediate);
  ibv_send_wr& send = Add(chain, number);
  *send.sg_list = {.addr = reinterpret_cast<uint64_t>(&word), .length = sizeof(word), .lkey = 0};
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_INLINE | (solicited ? IBV_SEND_SOLICITED : 0);
}

// A READ of a word of the peer's inbox, whatever is in it: when it ends, all before it has been placed.
void VerbsConnection::AddProof(Chain& chain, uint64_t number) const {
  ibv_send_wr& wr = Add(chain, number);
  *wr.sg_list = {.addr = reinterpret_cast<uint64_t>(WordAt(receive_entries())),
                 .length = sizeof(uint32_t),
                 .lkey = VerbsMemory::LocalKey(inbox_)};
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = peer_end_.inbox;
  wr.wr.rdma.rkey = peer_end_.inbox_key;
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
  Doom();
}

void VerbsConnection::Doom() {
  if (ledger_.under_way() == 0) return;
  if (!failed_)
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
  const uint64_t number = ledger_.Add({.internal = true}, &ask);
  if (iwarp_) {
    Tell(chain, nullptr, number, immediate, solicited);
    if (ask) AddProof(chain, number);
  } else {
    ibv_send_wr& wr = Add(chain, number);
    if (ask) wr.send_flags = IBV_SEND_SIGNALED;
    Tell(chain, &wr, number, immediate, solicited);
  }
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
  const uint64_t number = ledger_.Add({.internal = true}, &ask);
  if (iwarp_) {
    AddProof(chain, number);
  } else {
    ibv_send_wr& wr = Add(chain, number);
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
  }
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
    std::array<ibv_sge, kChain> places;
    const uint32_t batch = std::min<uint32_t>(count, kChain);
    for (uint32_t i = 0; i < batch; ++i) {
      // They are used in the order of posting, so each has a word of its own for as long as it is posted.
      const uint32_t index = iwarp_ ? next_receive_++ % receive_entries() : 0;
      receives[i] = {.wr_id = work_id_ | index,
                     .next = i + 1 < batch ? &receives[i + 1] : nullptr,
                     .sg_list = iwarp_ ? &places[i] : nullptr,
                     .num_sge = iwarp_ ? 1 : 0};
      if (iwarp_) {
        places[i] = {.addr = reinterpret_cast<uint64_t>(WordAt(index)),
                     .length = sizeof(uint32_t),
                     .lkey = VerbsMemory::LocalKey(inbox_)};
      }
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
  // On iWARP a WRITE before a failure may have been refused just as well: only a proof would have told.
  const bool unknown = iwarp_ && status != IBV_WC_SUCCESS;
  if (status != IBV_WC_SUCCESS && !failed_) {
    last_status_ = status;
    last_vendor_error_ = vendor_error;
  }
  while (ledger_.head() != number) {
    const SendEntry entry = ledger_.Pop();
    End(entry, unknown ? MeaningOf(status) : entry.doom);
  }
  const SendEntry entry = ledger_.Pop();
  if (status == IBV_WC_SUCCESS) [[likely]] {
    last_success_ = queue_->now();
    End(entry, CompletionStatus::kOk);
  } else {
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
