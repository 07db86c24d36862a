#include "txn/recovery/replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mutation.h"
#include "storage/region.h"
#include "txn/node.h"
#include "txn/recovery/post.h"
#include "txn/recovery/recovering.h"
#include "txn/worker.h"

namespace furrow::txn {

ReplicaRecovery::ReplicaRecovery(Worker& worker, RecoveryPost& post, std::function<void(RegionId)> locked)
    : worker_(worker), post_(post), locked_(std::move(locked)) {}

ReplicaRecovery::~ReplicaRecovery() = default;

// --- what is known ---

ReplicaRecovery::Known& ReplicaRecovery::Enter(const TxId& id, std::span<const RegionId> regions) {
  std::unique_ptr<Known>& known = transactions_[id];
  if (known == nullptr) {
    known =
        std::make_unique<Known>(Known{.id = id, .regions = {regions.begin(), regions.end()}, .shares = {}});
  }
  return *known;
}

ReplicaRecovery::Share& ReplicaRecovery::ShareOf(Known& known, RegionId region) {
  for (Share& share : known.shares) {
    if (share.region == region) return share;
  }
  return known.shares.emplace_back(Share{.region = region});
}

ReplicaRecovery::Share* ReplicaRecovery::Find(const RecoveryItem& item, Known** known) {
  auto it = transactions_.find(item.id);
  if (it == transactions_.end()) return nullptr;
  *known = it->second.get();
  for (Share& share : (*known)->shares) {
    if (share.region == item.region) return &share;
  }
  return nullptr;
}

template <class Fn>
bool ReplicaRecovery::ForEachObject(const Share& share, Fn fn) const {
  std::optional<LogView> view = LogView::Parse(share.record);
  if (!view.has_value()) return share.record.empty();
  return view->ForEachObject([&](const ObjectEntry& entry, std::span<const std::byte> payload) {
    if (Address::FromBits(entry.address).region() == share.region) fn(entry, payload);
    return true;
  });
}

bool ReplicaRecovery::IsPrimary(RegionId region) const {
  const cluster::RegionMapping* mapping = worker_.node().directory.Find(region);
  return mapping != nullptr && mapping->primary().node == worker_.node().options.id;
}

bool ReplicaRecovery::Truncated(const TxId& id) {
  if (auto it = remembered_.find(id); it != remembered_.end()) return it->second;
  return worker_.participant().HasTruncated(id);
}

std::string ReplicaRecovery::Describe() const {
  std::string text = absl::StrCat(transactions_.size(), " transactions recover");
  for (const auto& [id, known] : transactions_) {
    absl::StrAppend(&text, " ", ToString(id));
    for (const Share& share : known->shares) {
      absl::StrAppend(&text, "/", share.region.value(), share.truncated ? " truncated" : "", " step ",
                      static_cast<int>(share.step), " lacking ", share.lacking);
    }
    if (text.size() > 500) return text + " ...";
  }
  return text;
}

// --- begin ---

void ReplicaRecovery::Reset() {
  ready_ = false;
  awaiting_.clear();
  requested_.clear();
  for (auto& [id, known] : transactions_) {
    for (Share& share : known->shares) {
      share.step = Step::kNone;
      share.region_seen = 0;
      share.region_w = Timestamp();
      share.holders.clear();
      share.lacking = 0;
      share.awaits_locks = false;
    }
    // Of what others had told alone nothing is known here; who is left tells it again.
    std::erase_if(known->shares,
                  [](const Share& s) { return s.record.empty() && !s.truncated && s.seen == 0; });
  }
  std::erase_if(transactions_, [](const auto& entry) { return entry.second->shares.empty(); });
}

// What one record of a pending transaction says of each region that it has objects of.
void ReplicaRecovery::TakeRecord(Known& known, std::span<const std::byte> record,
                                 const Participant::Recovering& found, bool lock) {
  std::optional<LogView> view = LogView::Parse(record);
  if (!view.has_value()) return;
  view->ForEachObject([&](const ObjectEntry& entry, std::span<const std::byte>) {
    Share& share = ShareOf(known, Address::FromBits(entry.address).region());
    if (share.truncated) return true;
    share.record = record;
    share.w = std::max(share.w, found.timestamp);
    share.seen |= lock ? kSeenLock : kSeenBackup;
    if (lock && found.installed) share.seen |= kSeenCommit;
    if (lock && (found.installed || found.locked)) share.counted = true;
    return true;
  });
}

void ReplicaRecovery::Begin(std::span<const Participant::Recovering> found) {
  for (const Participant::Recovering& pending : found) {
    std::optional<LogView> view = LogView::Parse(pending.lock.empty() ? pending.commit_backup : pending.lock);
    if (!view.has_value()) continue;  // the participant has looked at it a moment ago
    std::vector<RegionId> regions;
    for (uint32_t i = 0; i < view->header().region_count; ++i) regions.push_back(view->region_id(i));
    Known& known = Enter(pending.id, regions);
    if (!pending.commit_backup.empty()) TakeRecord(known, pending.commit_backup, pending, false);
    if (!pending.lock.empty()) TakeRecord(known, pending.lock, pending, true);
  }
  SayWhatWasSeen();
}

// NEED-RECOVERY to each worker of each storage member, also without items: it is what they wait for.
void ReplicaRecovery::SayWhatWasSeen() {
  const Node& node = worker_.node();
  const cluster::ClusterView& view = *node.current_view();
  const cluster::Member* self = view.Find(node.options.id);
  if (self == nullptr || self->role != cluster::Role::kStorage) return;  // a compute member is no replica
  for (const cluster::Member& member : view.members()) {
    if (member.role != cluster::Role::kStorage || member.id == node.options.id) continue;
    for (uint16_t w = 0; w < member.workers; ++w)
      post_.Open(member.id, WorkerId(w), RecoveryType::kNeedRecovery);
  }
  if (Mutated(Mutation::kSkipNeedRecovery)) return;
  for (auto& [id, known] : transactions_) {
    for (Share& share : known->shares) {
      const cluster::RegionMapping* mapping = node.directory.Find(share.region);
      if (share.truncated || mapping == nullptr || mapping->primary().node == node.options.id) continue;
      const cluster::Member* primary = view.Find(mapping->primary().node);
      if (primary == nullptr) continue;  // a newer configuration is on its way
      post_.Add(primary->id, WorkerFor(id, primary->workers), RecoveryType::kNeedRecovery,
                {.id = id,
                 .region = share.region,
                 .seen = share.seen,
                 .timestamp = share.w,
                 .regions = known->regions});
    }
  }
}

// --- the primary ---

void ReplicaRecovery::OnNeedRecovery(NodeId from, std::span<const RecoveryItem> items) {
  for (const RecoveryItem& item : items) {
    if (!IsPrimary(item.region)) continue;
    Share& share = ShareOf(Enter(item.id, item.regions), item.region);
    share.region_seen |= item.seen;
    share.region_w = std::max(share.region_w, item.timestamp);
    share.holders.push_back(from);
  }
}

void ReplicaRecovery::Ready() {
  ready_ = true;
  const NodeId self = worker_.node().options.id;
  for (const cluster::RegionMapping* mapping : worker_.node().directory.All()) {
    if (mapping->primary().node == self && !mapping->active) awaiting_[mapping->id] = 0;
  }
  std::vector<Known*> all;
  for (auto& [id, known] : transactions_) all.push_back(known.get());
  for (Known* known : all) {
    for (Share& share : known->shares) {
      auto awaiting = awaiting_.find(share.region);
      if (share.truncated || awaiting == awaiting_.end()) continue;
      share.awaits_locks = true;
      ++awaiting->second;
    }
  }
  for (Known* known : all) {
    for (size_t i = 0; i < known->shares.size(); ++i) StartPrimary(*known, known->shares[i]);
  }
  std::vector<RegionId> done;
  for (const auto& [region, waiting] : awaiting_) {
    if (waiting == 0) done.push_back(region);
  }
  for (RegionId region : done) {
    if (awaiting_.erase(region) > 0) locked_(region);
  }
  for (const RecoveryItem& item : std::exchange(requested_, {})) OnRequestVote(item);
}

void ReplicaRecovery::StartPrimary(Known& known, Share& share) {
  if (!IsPrimary(share.region)) return;
  share.region_seen |= share.seen;
  share.region_w = std::max(share.region_w, share.w);
  if (share.truncated) {  // an earlier recovery ended here, and not at some backup
    if (!share.holders.empty()) {
      Cast(known.id, known.regions, share.region, VoteOf(share.region_seen), share.region_w);
    }
    return;
  }
  // Truncated here, while a backup has a COMMIT-BACKUP: truncation comes after every COMMIT-PRIMARY.
  if (share.record.empty() && Truncated(known.id)) share.region_seen |= kSeenCommit;
  Advance(known, share);
}

void ReplicaRecovery::Fetch(const Known& known, Share& share) {
  share.step = Step::kFetching;
  const NodeId holder = share.holders.front();
  const cluster::Member* member = worker_.node().current_view()->Find(holder);
  if (member == nullptr) return;
  post_.Add(holder, WorkerFor(known.id, member->workers), RecoveryType::kFetch,
            {.id = known.id, .region = share.region});
}

void ReplicaRecovery::Advance(Known& known, Share& share) {
  const bool over_here = share.record.empty() && Truncated(known.id);
  if (share.record.empty() && !over_here) {
    if (!share.holders.empty()) Fetch(known, share);
    return;
  }
  // What any replica has seen stays with the primary's record: who told it may die next, and the region must
  // vote the same again (REPLICATE_FORGETS_STATE).
  if (!Mutated(Mutation::kForgetWhatBackupsHaveSeen) && !share.record.empty()) {
    share.seen |= share.region_seen;
    share.w = std::max(share.w, share.region_w);
  }
  RecoverLocks(known, share);
  LocksAreRecovered(share);
  Replicate(known, share);
}

// A new primary takes the locks that the old one held. Copies that have the write already need none; a copy
// of a transaction whose W is not known here is locked in any case.
void ReplicaRecovery::RecoverLocks(const Known& known, Share& share) {
  Node& node = worker_.node();
  const cluster::RegionMapping* mapping = node.directory.Find(share.region);
  if (share.record.empty() || mapping->last_primary_change <= known.id.config ||
      (share.region_seen & kSeenAbort) != 0 || Mutated(Mutation::kSkipLockRecovery)) {
    return;
  }
  storage::Region* region = node.regions.Find(share.region);
  if (region == nullptr) return;
  const bool count = !std::exchange(share.counted, true);
  ForEachObject(share, [&](const ObjectEntry& entry, std::span<const std::byte>) {
    const Address address = Address::FromBits(entry.address);
    if (count && !region->AddWriter(address.offset())) return;
    std::byte* slot = region->SlotAt(address.offset());
    if (slot == nullptr) return;
    if (share.region_w != Timestamp() && storage::LoadWord(slot).timestamp() >= share.region_w) return;
    node.locks.AddHolder(address, slot, known.id);
  });
}

void ReplicaRecovery::LocksAreRecovered(Share& share) {
  if (!std::exchange(share.awaits_locks, false)) return;
  auto awaiting = awaiting_.find(share.region);
  if (awaiting == awaiting_.end() || --awaiting->second > 0) return;
  awaiting_.erase(awaiting);
  locked_(share.region);
}

void ReplicaRecovery::Replicate(Known& known, Share& share) {
  share.step = Step::kReplicating;
  const Node& node = worker_.node();
  const cluster::RegionMapping& mapping = *node.directory.Find(share.region);
  share.lacking = 0;
  for (size_t i = 1; i < mapping.replicas.size() && !share.record.empty(); ++i) {
    const NodeId backup = mapping.replicas[i].node;
    const cluster::Member* member = node.current_view()->Find(backup);
    const bool has_it = std::find(share.holders.begin(), share.holders.end(), backup) != share.holders.end();
    if (member == nullptr || has_it || Mutated(Mutation::kSkipReplication)) continue;
    ++share.lacking;
    post_.Add(backup, WorkerFor(known.id, member->workers), RecoveryType::kReplicate,
              {.id = known.id,
               .region = share.region,
               .seen = share.region_seen,
               .timestamp = share.region_w,
               .regions = known.regions,
               .record = {share.record.begin(), share.record.end()}});
  }
  if (share.lacking > 0) return;
  share.step = Step::kVoted;
  Cast(known.id, known.regions, share.region, VoteOf(share.region_seen), share.region_w);
}

void ReplicaRecovery::OnReplicated(const RecoveryItem& item) {
  Known* known = nullptr;
  Share* share = Find(item, &known);
  if (share == nullptr || share->step != Step::kReplicating || share->lacking == 0) return;
  if (--share->lacking > 0) return;
  share->step = Step::kVoted;
  Cast(known->id, known->regions, share->region, VoteOf(share->region_seen), share->region_w);
}

void ReplicaRecovery::Cast(const TxId& id, std::span<const RegionId> regions, RegionId region, Vote vote,
                           Timestamp w) {
  const Node& node = worker_.node();
  const cluster::Member* to = RecoveryCoordinatorOf(id, *node.current_view());
  if (to == nullptr) return;
  RecoveryItem item{
      .id = id, .region = region, .vote = vote, .timestamp = w, .regions = {regions.begin(), regions.end()}};
  for (const cluster::Replica& replica : node.directory.Find(region)->replicas)
    item.nodes.push_back(replica.node);
  post_.Add(to->id, WorkerFor(id, to->workers), RecoveryType::kVote, std::move(item));
}

void ReplicaRecovery::OnRequestVote(const RecoveryItem& item) {
  if (!ready_) return requested_.push_back(item);
  if (!IsPrimary(item.region)) return;
  Known* known = nullptr;
  if (const Share* share = Find(item, &known); share != nullptr) {
    // Others vote in their own time.
    if (share->truncated && share->holders.empty())
      Cast(item.id, item.regions, item.region, VoteOf(share->seen), share->w);
    return;
  }
  Cast(item.id, item.regions, item.region, Truncated(item.id) ? Vote::kTruncated : Vote::kUnknown,
       Timestamp());
}

void ReplicaRecovery::OnState(const RecoveryItem& item) {
  Known* known = nullptr;
  Share* share = Find(item, &known);
  if (share == nullptr || share->step != Step::kFetching) return;
  if (item.record.empty() || !LogView::Parse(item.record).has_value()) {
    FURROW_LOG(ERROR) << "the record of transaction " << ToString(item.id) << " in region "
                      << item.region.value()
                      << " came without its bytes; it stays locked until the next change of configuration";
    return;
  }
  share->copy = item.record;
  share->record = share->copy;
  Advance(*known, *share);
}

// --- the backup ---

void ReplicaRecovery::Answer(NodeId to, const RecoveryItem& item, RecoveryType type) {
  const cluster::Member* member = worker_.node().current_view()->Find(to);
  if (member == nullptr) return;
  post_.Add(to, WorkerFor(item.id, member->workers), type, {.id = item.id, .region = item.region});
}

void ReplicaRecovery::OnFetch(NodeId from, const RecoveryItem& item) {
  const cluster::Member* member = worker_.node().current_view()->Find(from);
  Known* known = nullptr;
  const Share* share = Find(item, &known);
  if (member == nullptr || share == nullptr) return;
  post_.Add(from, WorkerFor(item.id, member->workers), RecoveryType::kState,
            {.id = item.id, .region = item.region, .record = {share->record.begin(), share->record.end()}});
}

void ReplicaRecovery::OnReplicate(NodeId from, RecoveryItem item) {
  Known* known = nullptr;
  const Share* here = Find(item, &known);
  const bool over = (here != nullptr && here->truncated) || (here == nullptr && Truncated(item.id));
  if (!over && LogView::Parse(item.record).has_value()) {
    Share& share = ShareOf(Enter(item.id, item.regions), item.region);
    share.seen |= item.seen;
    share.w = std::max(share.w, item.timestamp);
    if (share.record.empty()) {
      share.copy = std::move(item.record);
      share.record = share.copy;
    }
  }
  Answer(from, item, RecoveryType::kReplicated);
}

// --- the end ---

void ReplicaRecovery::Unlock(const Known& known, const Share& share) {
  Node& node = worker_.node();
  storage::Region* region = node.regions.Find(share.region);
  if (region == nullptr) return;
  ForEachObject(share, [&](const ObjectEntry& entry, std::span<const std::byte>) {
    const Address address = Address::FromBits(entry.address);
    if (std::byte* slot = region->SlotAt(address.offset()); slot != nullptr) {
      node.locks.Unlock(address, slot, known.id);
    }
  });
}

void ReplicaRecovery::OnDecision(NodeId from, const RecoveryItem& item) {
  Known* known = nullptr;
  Share* share = Find(item, &known);
  if (share != nullptr && !share->truncated) {
    if (item.vote == Vote::kCommitPrimary) {
      share->seen |= kSeenCommit;
      share->w = std::max(share->w, item.timestamp);
      if (IsPrimary(share->region)) {
        ForEachObject(*share, [&](const ObjectEntry& entry, std::span<const std::byte> payload) {
          worker_.participant().InstallObject(entry, payload, share->w, known->id);
        });
      }
    } else {
      share->seen |= kSeenAbort;
      if (IsPrimary(share->region)) Unlock(*known, *share);
    }
  }
  Answer(from, item, RecoveryType::kDecided);
}

void ReplicaRecovery::OnTruncate(NodeId from, const RecoveryItem& item) {
  Known* known = nullptr;
  Share* share = Find(item, &known);
  if (share != nullptr && !share->truncated) EndShare(*known, *share);
  Answer(from, item, RecoveryType::kTruncated);
}

void ReplicaRecovery::EndShare(Known& known, Share& share) {
  const bool committed = (share.seen & kSeenCommit) != 0;
  storage::Region* region = worker_.node().regions.Find(share.region);
  ForEachObject(share, [&](const ObjectEntry& entry, std::span<const std::byte> payload) {
    const uint32_t offset = Address::FromBits(entry.address).offset();
    // Where it was installed this does nothing. (A newer configuration may have made this backup the
    // primary.)
    if (committed) worker_.participant().ApplyWrite(entry, payload, share.w);
    if (share.counted && region != nullptr && region->Writers(offset) > 0) region->RemoveWriter(offset);
  });
  share.truncated = true;
  share.counted = false;
  const bool all =
      std::all_of(known.shares.begin(), known.shares.end(), [](const Share& s) { return s.truncated; });
  if (!all) return;
  const TxId id = known.id;
  worker_.participant().FinishRecovered(id, committed);
  if (remembered_.insert({id, committed}).second) remembered_order_.push_back(id);
  if (remembered_order_.size() > kMaxRemembered) {
    remembered_.erase(remembered_order_.front());
    remembered_order_.pop_front();
  }
  transactions_.erase(id);
}

}  // namespace furrow::txn
