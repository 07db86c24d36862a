#include "txn/recovery/worker_recovery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mutation.h"
#include "txn/coordinator.h"
#include "txn/participant.h"
#include "txn/recovery/node_recovery.h"
#include "txn/recovery/recovering.h"
#include "txn/worker.h"

namespace furrow::txn {

WorkerRecovery::WorkerRecovery(Worker& worker)
    : worker_(worker),
      post_(worker, [this](NodeId from, RecoveryMessage message) { OnMessage(from, std::move(message)); }),
      decisions_(worker, post_,
                 {.decided = [this](uint64_t local, bool committed,
                                    Timestamp w) { worker_.coordinator().OnDecided(local, committed, w); },
                  .over = [this](uint64_t local) { worker_.coordinator().OnRecovered(local); }}),
      replica_(worker, post_,
               [this](RegionId region) { worker_.node().recovery->LocksRecovered(region, config_); }) {}

// In this order: nothing goes to who is no member, and such a one can write nothing here; answers to what
// recovers do not count any more.
void WorkerRecovery::Adopt(ConfigId config) {
  const cluster::ClusterView& view = *worker_.node().current_view();
  config_ = config;
  drained_ = ready_ = over_ = false;
  parts_.clear();
  post_.SetConfig(config);
  decisions_.Clear();
  replica_.Reset();
  std::erase_if(early_, [&](const auto& early) { return early.second.config < config; });
  worker_.mesh().Evict([&](const rdma::WorkerIdentity& peer) {
    const cluster::Member* member = view.Find(peer.node);
    return member != nullptr && member->incarnation == peer.incarnation;
  });
  worker_.coordinator().Adopt(view);
}

void WorkerRecovery::Begin(ConfigId config) {
  if (config != config_ || drained_) return;
  // A newer one is on its way: it begins anew, and nothing is judged by its view before.
  if (worker_.node().current_view()->id() != config) return;
  if (!Mutated(Mutation::kSkipDrain)) worker_.mesh().DrainLogs();
  drained_ = true;
  const std::vector<Participant::Recovering> found = worker_.participant().FindRecovering(config);
  replica_.Begin(found);
  if (worker_.id() == WorkerId(0)) worker_.node().recovery->RepeatActive();
  StartOwn();
  for (auto& [from, message] : std::exchange(early_, {})) OnMessage(from, std::move(message));
  BeReadyIfAllHaveTold();
  CheckOver();
}

// Our own transactions that recover: whoever decides them must know of them, also where no replica has a
// record.
void WorkerRecovery::StartOwn() {
  const Node& node = worker_.node();
  worker_.coordinator().ForEachRecovering([&](const TxId& id, std::span<const RegionId> regions) {
    const cluster::Member* decider = RecoveryCoordinatorOf(id, *node.current_view());
    if (decider == nullptr) return;
    if (decider->id == node.options.id) return decisions_.Start(id, regions);
    post_.Add(decider->id, WorkerFor(id, decider->workers), RecoveryType::kRecover,
              {.id = id, .regions = {regions.begin(), regions.end()}});
  });
}

bool WorkerRecovery::HaveAllParts() const {
  const Node& node = worker_.node();
  const cluster::Member* self = node.current_view()->Find(node.options.id);
  if (self == nullptr || self->role != cluster::Role::kStorage)
    return true;  // it is told nothing: it holds nothing
  for (const cluster::Member& member : node.current_view()->members()) {
    if (member.role != cluster::Role::kStorage || member.id == node.options.id) continue;
    for (uint16_t w = 0; w < member.workers; ++w) {
      if (!parts_.contains({member.id, WorkerId(w)})) return false;
    }
  }
  return true;
}

void WorkerRecovery::BeReadyIfAllHaveTold() {
  if (ready_ || !drained_ || !HaveAllParts()) return;
  ready_ = true;
  replica_.Ready();
}

void WorkerRecovery::OnMessage(NodeId from, RecoveryMessage message) {
  if (message.config < config_) return;
  const bool waits_for_drain = message.type != RecoveryType::kRegionActive;
  if (message.config > config_ || (waits_for_drain && !drained_)) {
    early_.emplace_back(from, std::move(message));
    return;
  }
  Handle(from, std::move(message));
  BeReadyIfAllHaveTold();
  CheckOver();
}

void WorkerRecovery::Handle(NodeId from, RecoveryMessage message) {
  if (message.type == RecoveryType::kNeedRecovery) {
    replica_.OnNeedRecovery(from, message.items);
    parts_.insert({from, message.from_worker});
    return;
  }
  for (RecoveryItem& item : message.items) {
    switch (message.type) {
      case RecoveryType::kNeedRecovery:
        break;
      case RecoveryType::kFetch:
        replica_.OnFetch(from, item);
        break;
      case RecoveryType::kState:
        replica_.OnState(item);
        break;
      case RecoveryType::kReplicate:
        replica_.OnReplicate(from, std::move(item));
        break;
      case RecoveryType::kReplicated:
        replica_.OnReplicated(item);
        break;
      case RecoveryType::kVote:
        decisions_.OnVote(item);
        break;
      case RecoveryType::kRequestVote:
        replica_.OnRequestVote(item);
        break;
      case RecoveryType::kDecision:
        replica_.OnDecision(from, item);
        break;
      case RecoveryType::kDecided:
        decisions_.OnDecided(item);
        break;
      case RecoveryType::kTruncate:
        replica_.OnTruncate(from, item);
        break;
      case RecoveryType::kTruncated:
        decisions_.OnTruncated(item);
        break;
      case RecoveryType::kRecover:
        decisions_.Start(item.id, item.regions);
        break;
      case RecoveryType::kOutcome:
        worker_.coordinator().OnDecided(item.id.local, item.vote == Vote::kCommitPrimary, item.timestamp);
        break;
      case RecoveryType::kOver:
        worker_.coordinator().OnRecovered(item.id.local);
        break;
      case RecoveryType::kRegionActive:
        worker_.node().directory.Activate(item.region, item.id.config, item.timestamp);
        break;
    }
  }
}

void WorkerRecovery::SayRegionActive(const cluster::RegionMapping& mapping) {
  const Node& node = worker_.node();
  for (const cluster::Member& member : node.current_view()->members()) {
    if (member.id == node.options.id) continue;
    post_.Add(member.id, WorkerId(0), RecoveryType::kRegionActive,
              {.id = {.config = mapping.config, .node = {}, .worker = {}},
               .region = mapping.id,
               .timestamp = mapping.floor});
  }
}

std::string WorkerRecovery::Describe() const {
  return absl::StrCat("c", config_.value(), ": ", drained_ ? "drained" : "not drained", ", ", parts_.size(),
                      " parts of NEED-RECOVERY", ready_ ? ", ready" : "", ", ", replica_.Describe(),
                      decisions_.empty() ? "" : ", decides",
                      worker_.coordinator().HasRecovering() ? ", own ones recover" : "",
                      over_ ? ", over" : "");
}

void WorkerRecovery::CheckOver() {
  if (over_ || !ready_ || !replica_.empty() || !decisions_.empty() || worker_.coordinator().HasRecovering())
    return;
  over_ = true;
  worker_.node().recovery->WorkerRecovered(config_);
}

}  // namespace furrow::txn
