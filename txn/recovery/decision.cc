#include "txn/recovery/decision.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/mutation.h"
#include "txn/node.h"
#include "txn/recovery/post.h"
#include "txn/recovery/recovering.h"
#include "txn/worker.h"

namespace furrow::txn {

Decisions::Decisions(Worker& worker, RecoveryPost& post, Hooks hooks)
    : worker_(worker), post_(post), hooks_(std::move(hooks)) {}

Decisions::~Decisions() { Clear(); }

void Decisions::Clear() {
  ++round_;
  for (auto& [id, deciding] : open_) {
    if (deciding->timer != 0) worker_.loop().Cancel(deciding->timer);
  }
  open_.clear();
}

Decisions::Deciding& Decisions::Find(const TxId& id, std::span<const RegionId> regions) {
  std::unique_ptr<Deciding>& deciding = open_[id];
  if (deciding == nullptr) {
    deciding = std::make_unique<Deciding>(Deciding{.id = id, .parts = {}});
    for (RegionId region : regions) deciding->parts.push_back({.region = region});
    deciding->timer =
        worker_.loop().CallAt(worker_.loop().Now() + kRequestVoteNs, [this, id] { RequestVotes(id); });
  }
  return *deciding;
}

void Decisions::Start(const TxId& id, std::span<const RegionId> regions) { Find(id, regions); }

void Decisions::OnVote(const RecoveryItem& vote) {
  Deciding& deciding = Find(vote.id, vote.regions);
  const auto part = std::find_if(deciding.parts.begin(), deciding.parts.end(),
                                 [&](const Part& p) { return p.region == vote.region; });
  if (part == deciding.parts.end() || part->vote != Vote::kNone || vote.vote == Vote::kNone) return;
  part->vote = vote.vote;
  part->nodes = vote.nodes;
  deciding.w = std::max(deciding.w, vote.timestamp);
  Decide(deciding);
  Tell(deciding);
}

void Decisions::Decide(Deciding& deciding) {
  if (deciding.outcome != Outcome::kOpen) return;
  const auto any = [&](Vote vote) {
    return std::any_of(deciding.parts.begin(), deciding.parts.end(),
                       [=](const Part& p) { return p.vote == vote; });
  };
  if (any(Vote::kCommitPrimary)) {
    deciding.outcome = Outcome::kCommit;
  } else if (any(Vote::kNone) && !Mutated(Mutation::kSkipWaitForVotes)) {
    return;
  } else {
    const bool commits = any(Vote::kCommitBackup) && !any(Vote::kAbort) && !any(Vote::kUnknown);
    deciding.outcome = commits ? Outcome::kCommit : Outcome::kAbort;
  }
  TellCoordinator(deciding, RecoveryType::kOutcome);
}

void Decisions::TellAll(const Deciding& deciding, Part& part, RecoveryType type) {
  part.owing = part.nodes.size();
  for (NodeId node : part.nodes) {
    const cluster::Member* member = worker_.node().current_view()->Find(node);
    if (member == nullptr) continue;  // the next configuration decides anew
    post_.Add(node, WorkerFor(deciding.id, member->workers), type,
              {.id = deciding.id,
               .region = part.region,
               .vote = deciding.outcome == Outcome::kCommit ? Vote::kCommitPrimary : Vote::kAbort,
               .timestamp = deciding.w});
  }
}

void Decisions::Tell(Deciding& deciding) {
  if (deciding.outcome == Outcome::kOpen) return;
  for (Part& part : deciding.parts) {
    if (part.vote == Vote::kNone || std::exchange(part.told, true)) continue;
    TellAll(deciding, part, RecoveryType::kDecision);
  }
}

Decisions::Part* Decisions::Owing(const RecoveryItem& item, Deciding** deciding) {
  auto it = open_.find(item.id);
  if (it == open_.end()) return nullptr;
  *deciding = it->second.get();
  for (Part& part : (*deciding)->parts) {
    if (part.region == item.region && part.owing > 0) return &part;
  }
  return nullptr;
}

void Decisions::OnDecided(const RecoveryItem& item) {
  Deciding* deciding = nullptr;
  Part* part = Owing(item, &deciding);
  if (part == nullptr || deciding->truncating) return;
  --part->owing;
  const bool all = std::all_of(deciding->parts.begin(), deciding->parts.end(),
                               [](const Part& p) { return p.told && p.owing == 0; });
  if (!all) return;
  deciding->truncating = true;
  for (Part& p : deciding->parts) TellAll(*deciding, p, RecoveryType::kTruncate);
}

void Decisions::OnTruncated(const RecoveryItem& item) {
  Deciding* deciding = nullptr;
  Part* part = Owing(item, &deciding);
  if (part == nullptr || !deciding->truncating) return;
  --part->owing;
  if (std::any_of(deciding->parts.begin(), deciding->parts.end(), [](const Part& p) { return p.owing > 0; }))
    return;
  TellCoordinator(*deciding, RecoveryType::kOver);
  if (deciding->timer != 0) worker_.loop().Cancel(deciding->timer);
  open_.erase(item.id);
}

// Its coordinator, if it lives: the thread itself, or on another member.
void Decisions::TellCoordinator(const Deciding& deciding, RecoveryType type) {
  const Node& node = worker_.node();
  const bool committed = deciding.outcome == Outcome::kCommit;
  if (deciding.id.node == node.options.id && deciding.id.worker == worker_.id()) {
    if (type == RecoveryType::kOutcome) return hooks_.decided(deciding.id.local, committed, deciding.w);
    return hooks_.over(deciding.id.local);
  }
  if (!node.current_view()->Contains(deciding.id.node)) return;
  post_.Add(
      deciding.id.node, deciding.id.worker, type,
      {.id = deciding.id, .vote = committed ? Vote::kCommitPrimary : Vote::kAbort, .timestamp = deciding.w});
}

void Decisions::RequestVotes(const TxId& id) {
  auto it = open_.find(id);
  if (it == open_.end()) return;
  Deciding& deciding = *it->second;
  deciding.timer = 0;
  std::vector<RegionId> regions;
  for (const Part& part : deciding.parts) regions.push_back(part.region);
  for (const Part& part : deciding.parts) {
    if (part.vote == Vote::kNone) worker_.loop().Spawn(RequestVote(id, part.region, regions));
  }
}

Task<void> Decisions::RequestVote(TxId id, RegionId region, std::vector<RegionId> regions) {
  Node& node = worker_.node();
  const uint64_t round = round_;
  const cluster::RegionMapping* mapping = node.directory.Find(region);
  while (mapping == nullptr && node.control != nullptr) {
    absl::StatusOr<const cluster::RegionMapping*> found = co_await node.control->LookupRegion(region);
    if (round != round_) co_return;
    if (found.ok()) {
      mapping = *found;
    } else {
      FURROW_LOG_EVERY(WARNING, kSecond) << "recovery of " << ToString(id) << " asks where region "
                                         << region.value() << " is: " << found.status().ToString();
      co_await worker_.loop().SleepFor(kMillisecond);
      if (round != round_) co_return;
    }
  }
  if (mapping == nullptr) co_return;
  const cluster::Member* primary = node.current_view()->Find(mapping->primary().node);
  if (primary == nullptr) co_return;  // the next configuration is on its way
  post_.Add(primary->id, WorkerFor(id, primary->workers), RecoveryType::kRequestVote,
            {.id = id, .region = region, .regions = std::move(regions)});
}

}  // namespace furrow::txn
