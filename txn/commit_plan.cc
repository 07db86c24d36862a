// The plan of a commit: which objects go through it together, who takes part, and as what.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "txn/commit_run.h"
#include "txn/coordinator.h"

namespace furrow::txn {

CommitRun::Party& CommitRun::PartyOf(NodeId node) {
  for (Party& party : parties_) {
    if (party.node == node) return party;
  }
  parties_.push_back(Party{.node = node});
  return parties_.back();
}

bool CommitRun::Moved() const {
  const ConfigId planned = view_->id();
  return std::any_of(regions_.begin(), regions_.end(), [&](uint32_t region) {
    return node_.directory.Find(RegionId(region))->last_replica_change > planned;
  });
}

absl::Status CommitRun::Plan() {
  // The view before the mappings, as they are changed in the other order.
  view_ = node_.current_view();
  const cluster::ClusterView* view = view_;
  AccessSet& accesses = tx_.accesses_;
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    Access& access = accesses.at(i);
    if (!access.written() || (access.allocates && access.frees)) continue;  // born and gone: nothing to do
    const cluster::RegionMapping* mapping = node_.directory.Find(access.address.region());
    if (mapping == nullptr)
      return absl::UnavailableError("a region that the transaction writes is not mapped");
    // What has moved is written again when every member knows it, and its new primary is active.
    if (mapping->config > view->id() || mapping->last_replica_change > node_.committed_config() ||
        !mapping->active) {
      return ToStatus({.reason = AbortReason::kReconfigured, .address = access.address});
    }
    uint32_t region = access.address.region().value();
    if (std::find(regions_.begin(), regions_.end(), region) == regions_.end()) regions_.push_back(region);
    Group* group = nullptr;
    for (Group& g : groups_) {
      if (g.mapping == mapping || std::equal(g.mapping->replicas.begin(), g.mapping->replicas.end(),
                                             mapping->replicas.begin(), mapping->replicas.end(),
                                             [](const auto& a, const auto& b) { return a.node == b.node; })) {
        group = &g;
        break;
      }
    }
    if (group == nullptr) {
      if (groups_.size() == 64)
        return absl::ResourceExhaustedError("a transaction writes regions of over 64 placements");
      group = &groups_.emplace_back(Group{.mapping = mapping});
    }
    group->writes.push_back(&access);
    group->bytes += EntryBytes(access.frees ? 0 : access.write_bytes);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& replicas = groups_[g].mapping->replicas;
    for (size_t r = 0; r < replicas.size(); ++r) {
      Party& party = PartyOf(replicas[r].node);
      (r == 0 ? party.primary_of : party.backup_of) |= uint64_t{1} << g;
    }
  }
  for (Party& party : parties_) {
    party.state = coordinator_.LinkTo(party.node);
    if (party.state == nullptr || party.state->link->gone) {
      if (node_.recovery != nullptr) return ToStatus({.reason = AbortReason::kReconfigured});
      return absl::UnavailableError(absl::StrCat("member ", party.node.value(), " is gone"));
    }
    if (party.primary_of != 0 && !party.self()) tx_.distributed_ = true;
  }
  return absl::OkStatus();
}

}  // namespace furrow::txn
