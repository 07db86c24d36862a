// What recovery asks of a participant: which of its transactions recover, and what becomes of their records.
#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/mutation.h"
#include "txn/participant.h"
#include "txn/recovery/recovering.h"

namespace furrow::txn {
namespace {

std::vector<RegionId> WrittenRegions(const LogView& record) {
  std::vector<RegionId> regions;
  for (uint32_t i = 0; i < record.header().region_count; ++i) regions.push_back(record.region_id(i));
  return regions;
}

}  // namespace

bool Participant::RecoversNow(const Sender& sender, const LogView& record) const {
  return Recovers(record.id(), sender.ring->from.incarnation, WrittenRegions(record), *node_.current_view(),
                  node_.directory);
}

bool Participant::IsLate(Sender& sender, const LogView& record) {
  const LogHeader& h = record.header();
  if (h.type == LogType::kTruncate || ConfigId(h.config) >= drained_ || Mutated(Mutation::kSkipRejection))
    return false;
  if (h.type == LogType::kLock || h.type == LogType::kCommitBackup) return RecoversNow(sender, record);
  const Pending* pending = sender.pending.Find(h.local);
  return pending == nullptr || pending->recovering;
}

std::vector<Participant::Recovering> Participant::FindRecovering(ConfigId drained) {
  drained_ = drained;
  std::vector<Recovering> found;
  for (const std::unique_ptr<Sender>& sender : senders_) {
    sender->scratch.clear();
    sender->pending.IdsBetween(1, std::numeric_limits<uint64_t>::max(), &sender->scratch);
    for (uint64_t local : sender->scratch) {
      Pending& pending = *sender->pending.Find(local);
      std::optional<LogView> record =
          LogView::Parse(pending.lock.empty() ? pending.commit_backup : pending.lock);
      if (!record.has_value()) {
        Malformed(*sender->ring, "record (it has changed in the ring)");
        break;
      }
      pending.recovering = RecoversNow(*sender, *record);
      if (!pending.recovering) continue;
      found.push_back({.id = record->id(),
                       .lock = pending.lock,
                       .commit_backup = pending.commit_backup,
                       .locked = pending.state == State::kLocked,
                       .installed = pending.state == State::kInstalled,
                       .timestamp = pending.timestamp});
    }
  }
  return found;
}

Participant::Sender* Participant::SenderOf(const TxId& id) {
  for (const std::unique_ptr<Sender>& sender : senders_) {
    if (sender->ring->from.node != id.node || sender->ring->from.worker != id.worker) continue;
    if (sender->pending.Find(id.local) != nullptr) return sender.get();
  }
  return nullptr;
}

void Participant::FinishRecovered(const TxId& id, bool committed) {
  Sender* sender = SenderOf(id);
  if (sender == nullptr) return;  // only replicated here
  Finish(*sender, id.local, *sender->pending.Find(id.local));
  ReleaseFront(*sender);
  if (committed) sender->outcomes.SetCommitted(id.local);
  ForgetIfOver(*sender);
}

bool Participant::HasTruncated(const TxId& id) {
  const auto says = [&](const rdma::WorkerIdentity& thread, uint64_t low_bound, const OutcomeBits& outcomes) {
    return thread.node == id.node && thread.worker == id.worker &&
           (id.local < low_bound || outcomes.Find(id.local) == RememberedOutcome::kCommitted);
  };
  for (const std::unique_ptr<Sender>& sender : senders_) {
    if (sender->pending.Find(id.local) == nullptr &&
        says(sender->ring->from, sender->low_bound, sender->outcomes))
      return true;
  }
  return std::any_of(departed_.begin(), departed_.end(), [&](const Departed& departed) {
    return says(departed.thread, departed.low_bound, departed.outcomes);
  });
}

}  // namespace furrow::txn
