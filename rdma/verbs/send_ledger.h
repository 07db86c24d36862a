// SendLedger: what a connection has posted and what has not ended yet. It decides what fits, which requests
// ask the device for a completion, and which requests an answer of the device ends. Owner thread only.
//
// An entry is a request of the owner, or of the provider itself (internal: credits, markers). Either it was
// given to the device, or it is doomed: it ends with a status that was known before, behind all entries
// before it.
//
//   head_                            tail_
//   | done, not known | under way | doomed |        Retire(s): entries up to s ended well
//
// The device is asked for a completion at least every `interval` entries. Its answer to one entry ends the
// ones before, which had not asked. So at most interval - 1 entries at the end may have ended without anybody
// knowing; they take no room from the owner:
//   owner's entries - unasked owner's entries at the end + new ones <= max_requests
//   capacity = max_requests + interval + kInternal                    (of the send queue)
#ifndef FURROW_RDMA_VERBS_SEND_LEDGER_H_
#define FURROW_RDMA_VERBS_SEND_LEDGER_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

struct SendEntry {
  uint64_t id = 0;
  uint32_t bytes = 0;
  Opcode opcode = Opcode::kWrite;
  bool internal = false;
  bool signaled = false;                          // the owner wants a completion
  CompletionStatus doom = CompletionStatus::kOk;  // not kOk: the device never sees it
};

class SendLedger {
 public:
  static constexpr uint32_t kInternal = 16;  // internal entries, the marker included
  static constexpr uint32_t kMaxUnasked = 64;

  explicit SendLedger(uint32_t max_requests)
      : max_requests_(max_requests),
        interval_(std::clamp<uint32_t>(max_requests / 2, 1, kMaxUnasked)),
        entries_(std::bit_ceil(capacity(max_requests))) {}

  // The send queue that such a connection needs.
  static uint32_t capacity(uint32_t max_requests) {
    return max_requests + std::clamp<uint32_t>(max_requests / 2, 1, kMaxUnasked) + kInternal;
  }

  // `unpolled` completions are in the queue still.
  bool Fits(size_t requests, uint32_t unpolled) const {
    return uint64_t{owned_} - unasked_owned_ + unpolled + requests <= max_requests_;
  }
  // Two are kept for the markers behind which nothing follows.
  bool FitsInternal() const { return internal_ + 2 < kInternal; }

  // Adds an entry and gives its number. For one that goes to the device, `ask` becomes true if the device is
  // to answer.
  uint64_t Add(const SendEntry& entry, bool* ask) {
    FURROW_DCHECK(size() < entries_.size());
    entries_[tail_ & (entries_.size() - 1)] = entry;
    ++(entry.internal ? internal_ : owned_);
    if (entry.doom == CompletionStatus::kOk) {
      ++under_way_;
      ++unasked_;
      unasked_owned_ += entry.internal ? 0 : 1;
      unasked_internal_ += entry.internal ? 1 : 0;
      *ask = *ask || entry.signaled || unasked_ >= interval_ || unasked_internal_ >= kInternal / 2;
      if (*ask) Asked();
    } else {
      *ask = false;
    }
    return tail_++;
  }
  // The last entry that went to the device asks for an answer after all.
  void Asked() { unasked_ = unasked_owned_ = unasked_internal_ = 0; }
  // Entries at the end of those given to the device that it will not answer.
  uint32_t unasked() const { return unasked_; }
  // The entries from `from` on turned out not to go to the device: the first ends as `status`, the others as
  // kFlushed.
  void Doom(uint64_t from, CompletionStatus status) {
    unasked_ = unasked_owned_ = unasked_internal_ = 0;
    for (uint64_t at = head_; at != tail_; ++at) {
      SendEntry& entry = entries_[at & (entries_.size() - 1)];
      if (entry.doom != CompletionStatus::kOk) continue;
      if (at >= from) {
        entry.doom = at == from ? status : CompletionStatus::kFlushed;
        --under_way_;
      } else {  // which of these the device will answer matters no more
        ++unasked_;
        ++(entry.internal ? unasked_internal_ : unasked_owned_);
      }
    }
  }

  bool empty() const { return head_ == tail_; }
  size_t size() const { return static_cast<size_t>(tail_ - head_); }
  uint64_t head() const { return head_; }
  uint32_t under_way() const { return under_way_; }
  // Of a 32-bit number that the device gave back.
  uint64_t Number(uint32_t low) const {
    return head_ + static_cast<uint32_t>(low - static_cast<uint32_t>(head_));
  }
  bool Contains(uint64_t number) const { return number - head_ < tail_ - head_; }
  const SendEntry& front() const { return entries_[head_ & (entries_.size() - 1)]; }
  SendEntry Pop() {
    const SendEntry entry = front();
    ++head_;
    --(entry.internal ? internal_ : owned_);
    if (entry.doom == CompletionStatus::kOk) {
      --under_way_;
      // Failed ones end though they have not asked.
      if (under_way_ < unasked_) {
        --unasked_;
        --(entry.internal ? unasked_internal_ : unasked_owned_);
      }
    }
    return entry;
  }

 private:
  const uint32_t max_requests_;
  const uint32_t interval_;
  std::vector<SendEntry> entries_;  // a power of two
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  uint32_t owned_ = 0;
  uint32_t internal_ = 0;
  uint32_t under_way_ = 0;  // given to the device
  uint32_t unasked_ = 0;
  uint32_t unasked_owned_ = 0;
  uint32_t unasked_internal_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_SEND_LEDGER_H_
