// VALIDATE: what was read and not written must be as it was: by loads at this node, by READs or one message
// elsewhere.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutation.h"
#include "storage/region.h"
#include "txn/commit_run.h"

namespace furrow::txn {

bool CommitRun::ValidateLocal(const Access& access) {
  storage::Region* region = node_.regions.Find(access.address.region());
  std::byte* slot = region == nullptr ? nullptr : region->SlotAt(access.address.offset());
  if (slot != nullptr && storage::LoadWord(slot) == access.observed && !access.old_version) return true;
  op_->conflict = {.reason = AbortReason::kValidateConflict,
                   .address = access.address,
                   .other = node_.locks.Holder(access.address)};
  return false;
}

Task<bool> CommitRun::Validate() {
  if (Mutated(Mutation::kSkipValidate)) co_return true;
  absl::InlinedVector<std::pair<NodeId, std::vector<Access*>>, 4> remote;
  AccessSet& accesses = tx_.accesses_;
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    Access& access = accesses.at(i);
    if (access.written()) continue;  // LOCK has compared it
    const cluster::RegionMapping* mapping = node_.directory.Find(access.address.region());
    NodeId primary = mapping->primary().node;
    if (primary == node_.options.id) {
      if (!ValidateLocal(access)) co_return false;
      continue;
    }
    if (access.old_version) {
      op_->conflict = {.reason = AbortReason::kValidateConflict, .address = access.address};
      co_return false;
    }
    auto it = std::find_if(remote.begin(), remote.end(), [&](const auto& r) { return r.first == primary; });
    if (it == remote.end()) {
      remote.emplace_back(primary, std::vector<Access*>());
      it = remote.end() - 1;
    }
    it->second.push_back(&access);
  }
  for (auto& [node, list] : remote) {
    if (!co_await ValidateRemote(node, std::move(list))) co_return false;
  }
  co_return true;
}

Task<bool> CommitRun::ValidateRemote(NodeId node, std::vector<Access*> accesses) {
  const Pinned<LinkState> state = coordinator_.LinkTo(node);
  if (state == nullptr || state->link->gone || state->link->connection == nullptr) {
    op_->lost = true;
    co_return false;
  }
  rdma::Connection& connection = *state->link->connection;
  if (!connection.completes_at_once() && accesses.size() > node_.options.validate_by_message_above) {
    co_return co_await ValidateByMessage(node, accesses);
  }
  constexpr size_t kBatch = 32;
  for (size_t first = 0; first < accesses.size(); first += kBatch) {
    size_t n = std::min(kBatch, accesses.size() - first);
    std::optional<ScratchBuffer> buffer;
    buffer.emplace(coordinator_.scratch_, 8 * n);
    while (buffer->empty() && worker_.loop().Now() <= tx_.deadline_) {
      co_await worker_.loop().Yield();
      buffer.emplace(coordinator_.scratch_, 8 * n);
    }
    if (buffer->empty()) {
      op_->timed_out = true;
      co_return false;
    }
    const ScratchBuffer& words = *buffer;
    rdma::OperationGroup group(worker_.loop());
    rdma::WorkRequest requests[kBatch];
    for (size_t i = 0; i < n; ++i) {
      Address address = accesses[first + i]->address;
      const cluster::RegionMapping* mapping = node_.directory.Find(address.region());
      requests[i] = rdma::WorkRequest{.opcode = rdma::Opcode::kRead,
                                      .signaled = i + 1 == n,
                                      .id = i + 1 == n ? group.id() : 0,
                                      .local = words.bytes().subspan(8 * i, 8),
                                      .remote = mapping->primary().memory.Plus(address.offset())};
    }
    group.Add();
    while (!connection.Post(std::span(requests, n)).ok()) {
      if (worker_.loop().Now() > tx_.deadline_) {
        op_->timed_out = true;
        co_return false;
      }
      co_await worker_.loop().Yield();
    }
    if (connection.completes_at_once()) worker_.mesh().PollCompletions();
    if (co_await group.Wait() != rdma::CompletionStatus::kOk) {
      coordinator_.OnLinkLost(*state->link);
      op_->lost = true;
      co_return false;
    }
    for (size_t i = 0; i < n; ++i) {
      if (storage::LoadWord(words.bytes().data() + 8 * i) == accesses[first + i]->observed) continue;
      op_->conflict = {.reason = AbortReason::kValidateConflict, .address = accesses[first + i]->address};
      co_return false;
    }
  }
  co_return true;
}

Task<bool> CommitRun::ValidateByMessage(NodeId node, const std::vector<Access*>& accesses) {
  constexpr size_t kChunk = 1024;  // of 16 bytes: half a message of the largest size
  for (size_t first = 0; first < accesses.size(); first += kChunk) {
    std::vector<ValidateEntry> entries;
    for (size_t i = first; i < std::min(accesses.size(), first + kChunk); ++i) {
      entries.push_back({accesses[i]->address.bits(), accesses[i]->observed.bits()});
    }
    absl::StatusOr<std::vector<std::byte>> answer =
        co_await coordinator_.Call(node, MessageType::kValidate, static_cast<uint32_t>(entries.size()),
                                   std::as_bytes(std::span(entries)), sizeof(ValidateEntry));
    MessageHeader header;
    if (!answer.ok() || !ReadAt(*answer, 0, &header)) {
      (absl::IsDeadlineExceeded(answer.status()) ? op_->timed_out : op_->lost) = true;
      co_return false;
    }
    if (header.code == AnswerCode::kOk) continue;
    ValidateEntry entry{};
    ReadAt(*answer, sizeof header, &entry);
    op_->conflict = {.reason = AbortReason::kValidateConflict, .address = Address::FromBits(entry.address)};
    co_return false;
  }
  co_return true;
}

}  // namespace furrow::txn
