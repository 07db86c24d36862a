// VALIDATE: what was read and not written must be as it was: by loads at this node, by READs or messages
// elsewhere. All of it holds locks: everybody is asked before anybody's answer is waited for.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutation.h"
#include "storage/region.h"
#include "txn/commit_run.h"

namespace furrow::txn {
namespace {

// READs of one post.
constexpr size_t kBatch = 32;
// Objects that share one buffer of words: what reads more at one primary is asked in parts.
constexpr size_t kMostReads = 8192;

}  // namespace

// What was read at one remote primary, and how it is asked.
struct CommitRun::RemoteReads {
  RemoteReads(NodeId n, LinkState* l, EventLoop& loop) : node(n), state(l), group(loop) {}
  rdma::RemoteAddress WordOf(size_t i) const {
    return mappings[i]->primary().memory.Plus(accesses[i]->address.offset());
  }

  const NodeId node;
  const Pinned<LinkState> state;
  absl::InlinedVector<Access*, 8> accesses;
  absl::InlinedVector<const cluster::RegionMapping*, 8> mappings;  // of the accesses
  bool by_message = false;
  // READs under way, and where they place the words.
  std::optional<ScratchBuffer> words;
  rdma::OperationGroup group;
  // Or messages under way.
  std::vector<std::unique_ptr<Coordinator::PendingCall>> calls;
};

bool CommitRun::ValidateLocal(const Access& access) {
  storage::Region* region = node_.regions.Find(access.address.region());
  std::byte* slot = region == nullptr ? nullptr : region->SlotAt(access.address.offset());
  if (slot != nullptr && storage::LoadWord(slot) == access.observed && !access.old_version) return true;
  op_->conflict = {.reason = AbortReason::kValidateConflict,
                   .address = access.address,
                   .other = node_.locks.Holder(access.address)};
  return false;
}

bool CommitRun::ReadRegionsMoved() {
  if (node_.current_view()->id() == id_.config) return false;
  for (uint32_t i = 0; i < tx_.accesses_.size(); ++i) {
    const Access& access = tx_.accesses_.at(i);
    if (access.written() || node_.directory.Find(access.address.region())->last_primary_change <= id_.config)
      continue;
    op_->conflict = {.reason = AbortReason::kReconfigured, .address = access.address};
    return true;
  }
  return false;
}

Task<bool> CommitRun::Validate() {
  if (Mutated(Mutation::kSkipValidate)) co_return true;
  absl::InlinedVector<std::unique_ptr<RemoteReads>, 4> remote;
  AccessSet& accesses = tx_.accesses_;
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    Access& access = accesses.at(i);
    if (access.written()) continue;  // LOCK has compared it
    const cluster::RegionMapping* mapping = node_.directory.Find(access.address.region());
    NodeId primary = mapping->primary().node;
    if (!mapping->active) {
      op_->conflict = {.reason = AbortReason::kReconfigured, .address = access.address};
      co_return false;
    }
    if (primary == node_.options.id) {
      if (!ValidateLocal(access)) co_return false;
      continue;
    }
    if (access.old_version) {
      op_->conflict = {.reason = AbortReason::kValidateConflict, .address = access.address};
      co_return false;
    }
    auto it = std::find_if(remote.begin(), remote.end(), [&](const auto& r) {
      return r->node == primary && r->accesses.size() < kMostReads;
    });
    if (it == remote.end()) {
      LinkState* state = coordinator_.LinkTo(primary);
      if (state == nullptr || state->link->gone || state->link->connection == nullptr) {
        op_->lost = true;
        co_return false;
      }
      remote.push_back(std::make_unique<RemoteReads>(primary, state, worker_.loop()));
      it = remote.end() - 1;
    }
    (*it)->accesses.push_back(&access);
    (*it)->mappings.push_back(mapping);
  }
  // Where a READ ends inside the call there is nothing to wait for.
  for (auto it = remote.begin(); it != remote.end();) {
    const std::optional<bool> same = ValidateNow(**it);
    if (same.has_value() && !*same) co_return false;
    it = same.has_value() ? remote.erase(it) : it + 1;
  }
  if (remote.empty()) co_return true;
  co_return co_await ValidateRemote(std::span(remote.data(), remote.size()));
}

// Nothing: this fabric does not read so, or not now.
std::optional<bool> CommitRun::ValidateNow(const RemoteReads& reads) {
  constexpr size_t kAtOnce = rdma::Connection::kMaxReadNow;
  rdma::Connection& connection = *reads.state->link->connection;
  if (!connection.completes_at_once()) return std::nullopt;
  for (size_t i = 0; i < reads.accesses.size(); ++i) connection.Prefetch(reads.WordOf(i), 8);
  for (size_t first = 0; first < reads.accesses.size(); first += kAtOnce) {
    const size_t n = std::min(kAtOnce, reads.accesses.size() - first);
    alignas(8) std::array<std::byte, 8 * kAtOnce> words;
    std::array<rdma::Connection::NowRead, kAtOnce> now;
    for (size_t i = 0; i < n; ++i) now[i] = {reads.WordOf(first + i), std::span(words).subspan(8 * i, 8)};
    if (!connection.ReadNow(std::span(now).first(n))) return std::nullopt;
    for (size_t i = 0; i < n; ++i) {
      const Access& access = *reads.accesses[first + i];
      if (storage::LoadWord(words.data() + 8 * i) == access.observed) continue;
      op_->conflict = {.reason = AbortReason::kValidateConflict, .address = access.address};
      return false;
    }
  }
  return true;
}

Task<bool> CommitRun::ValidateRemote(std::span<std::unique_ptr<RemoteReads>> remote) {
  for (const std::unique_ptr<RemoteReads>& reads : remote) {
    reads->by_message = !reads->state->link->connection->completes_at_once() &&
                        reads->accesses.size() > node_.options.validate_by_message_above;
  }
  if (!co_await TakeWords(remote)) co_return false;
  bool ok = true;
  for (const std::unique_ptr<RemoteReads>& reads : remote) {
    ok = reads->by_message ? co_await StartMessages(*reads) : co_await StartReads(*reads);
    if (!ok) break;
  }
  // READs place their bytes in our buffers: all have ended before one is given back. Messages are given up.
  for (const std::unique_ptr<RemoteReads>& reads : remote) {
    if (co_await reads->group.Wait() != rdma::CompletionStatus::kOk) {
      coordinator_.OnLinkLost(*reads->state->link);
      op_->lost = true;
      ok = false;
    }
  }
  // What is here already may say no, before an answer is waited for.
  for (size_t i = 0; i < remote.size() && ok; ++i) ok = CompareWords(*remote[i]);
  for (size_t i = 0; i < remote.size() && ok; ++i) ok = co_await CompareAnswers(*remote[i]);
  co_return ok;
}

// Room for the words of all READs, or none of it: locks are held, and who had some of it and waited for more
// might wait for another that does the same. False: the deadline passed.
Task<bool> CommitRun::TakeWords(std::span<std::unique_ptr<RemoteReads>> remote) {
  while (true) {
    bool all = true;
    for (const std::unique_ptr<RemoteReads>& reads : remote) {
      if (reads->by_message) continue;
      reads->words.emplace(coordinator_.scratch_, 8 * reads->accesses.size());
      all = !reads->words->empty();
      if (!all) break;
    }
    if (all) co_return true;
    for (const std::unique_ptr<RemoteReads>& reads : remote) reads->words.reset();
    if (worker_.loop().Now() > tx_.deadline_) {
      op_->timed_out = true;
      co_return false;
    }
    co_await worker_.loop().Yield();
  }
}

// False: the deadline passed.
Task<bool> CommitRun::StartReads(RemoteReads& reads) {
  rdma::Connection& connection = *reads.state->link->connection;
  for (size_t first = 0; first < reads.accesses.size() && !op_->timed_out; first += kBatch) {
    const size_t n = std::min(kBatch, reads.accesses.size() - first);
    std::array<rdma::WorkRequest, kBatch> requests;
    for (size_t i = 0; i < n; ++i) {
      requests[i] = rdma::WorkRequest{.opcode = rdma::Opcode::kRead,
                                      .signaled = i + 1 == n,
                                      .id = i + 1 == n ? reads.group.id() : 0,
                                      .local = reads.words->bytes().subspan(8 * (first + i), 8),
                                      .remote = reads.WordOf(first + i)};
    }
    reads.group.Add();
    while (!connection.Post(std::span(requests).first(n)).ok()) {
      if (worker_.loop().Now() > tx_.deadline_) {
        reads.group.Forget();
        op_->timed_out = true;
        break;
      }
      co_await worker_.loop().Yield();
    }
    if (connection.completes_at_once()) worker_.mesh().PollCompletions();
  }
  co_return !op_->timed_out;
}

// False: the primary is gone or takes no messages.
Task<bool> CommitRun::StartMessages(RemoteReads& reads) {
  // Half of the largest message at a time.
  const size_t chunk = reads.state->link->messages->max_record() / 2 / sizeof(ValidateEntry);
  for (size_t first = 0; first < reads.accesses.size(); first += chunk) {
    std::vector<ValidateEntry> entries;
    for (size_t i = first; i < std::min(reads.accesses.size(), first + chunk); ++i) {
      entries.push_back({reads.accesses[i]->address.bits(), reads.accesses[i]->observed.bits()});
    }
    reads.calls.push_back(std::make_unique<Coordinator::PendingCall>(coordinator_));
    absl::Status sent = absl::ResourceExhaustedError("not tried");
    while (absl::IsResourceExhausted(sent)) {  // no buffer or request is free: completions will make room
      sent = co_await coordinator_.StartCall(
          *reads.calls.back(), reads.node, MessageType::kValidate, static_cast<uint32_t>(entries.size()),
          std::as_bytes(std::span(entries)), sizeof(ValidateEntry), tx_.deadline_);
      if (!absl::IsResourceExhausted(sent)) break;
      if (worker_.loop().Now() > tx_.deadline_) sent = absl::DeadlineExceededError(sent.message());
      co_await worker_.loop().Yield();
    }
    if (sent.ok()) continue;
    (absl::IsDeadlineExceeded(sent) ? op_->timed_out : op_->lost) = true;
    co_return false;
  }
  co_return true;
}

// What the READs say, which have ended.
bool CommitRun::CompareWords(const RemoteReads& reads) {
  for (size_t i = 0; reads.words.has_value() && i < reads.accesses.size(); ++i) {
    const Access& access = *reads.accesses[i];
    if (storage::LoadWord(reads.words->bytes().data() + 8 * i) == access.observed) continue;
    op_->conflict = {.reason = AbortReason::kValidateConflict, .address = access.address};
    return false;
  }
  return true;
}

Task<bool> CommitRun::CompareAnswers(RemoteReads& reads) {
  for (const std::unique_ptr<Coordinator::PendingCall>& call : reads.calls) {
    const absl::Status answered = co_await coordinator_.FinishCall(*call);
    MessageHeader header;
    if (!answered.ok() || !ReadAt(call->answer, 0, &header)) {
      (absl::IsDeadlineExceeded(answered) ? op_->timed_out : op_->lost) = true;
      co_return false;
    }
    if (header.code == AnswerCode::kOk) continue;
    ValidateEntry entry{};
    ReadAt(call->answer, sizeof header, &entry);
    op_->conflict = {.reason = AbortReason::kValidateConflict, .address = Address::FromBits(entry.address)};
    co_return false;
  }
  co_return true;
}

}  // namespace furrow::txn
