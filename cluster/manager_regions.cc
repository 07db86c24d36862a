// Manager: founding, and the allocation of regions by prepare and commit.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/manager.h"
#include "cluster/manager_internal.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {

constexpr int kMaxPlans = 16;  // of one allocation, when members turn out to be full

}  // namespace

absl::StatusOr<RegionMapping> Manager::Allocate(AllocateRegionRequest request) {
  {
    MutexLock lock(&mutex_);
    // Founding itself may need another region near the first one.
    while (founding_ == Founding::kUnderWay && request.near == RegionId() && !stopped_)
      progress_.Wait(&mutex_);
    if (founding_ == Founding::kNotYet) {
      return absl::UnavailableError(
          absl::StrCat("the cluster waits until it has ", configuration_.replicas,
                       " storage members, one for each copy of a region: start more of them"));
    }
  }
  return AllocateNow(request);
}

absl::Status Manager::FoundIfPossible() {
  {
    MutexLock lock(&mutex_);
    if (founding_ != Founding::kNotYet || regions_.ready_members() < configuration_.replicas)
      return absl::OkStatus();
    founding_ = Founding::kUnderWay;
  }
  absl::StatusOr<RegionMapping> first = AllocateNow({});
  absl::Status founded = first.ok() ? options_.founded(first->id) : first.status();
  {
    MutexLock lock(&mutex_);
    founding_ = founded.ok() ? Founding::kDone : Founding::kNotYet;
    progress_.SignalAll();
    if (founded.ok() || stopped_) return founded;
  }
  options_.lost(absl::StrCat("the cluster cannot be founded: ", founded.message()));
  return founded;
}

absl::StatusOr<RegionMapping> Manager::AllocateNow(const AllocateRegionRequest& request) {
  for (int attempt = 0; attempt < kMaxPlans; ++attempt) {
    RegionTable::Decision decision;
    {
      AllocationScope allocation(*this);
      {
        MutexLock lock(&mutex_);
        if (stopped_) return absl::UnavailableError("the cluster is ending");
        FURROW_ASSIGN_OR_RETURN(decision, regions_.Begin(request));
        if (decision.kind == RegionTable::Kind::kExisting) return *decision.existing;
        if (decision.kind == RegionTable::Kind::kWait) {
          const uint64_t seen = region_changes_;
          while (!stopped_ && region_changes_ == seen) progress_.Wait(&mutex_);
          --attempt;
          continue;
        }
      }
      if (decision.kind == RegionTable::Kind::kPrepare) {
        absl::StatusOr<RegionMapping> mapping = PrepareAndCommit(decision.plan);
        // A replica without memory counts as full from now on: try elsewhere, unless the group has no
        // elsewhere.
        if (!absl::IsResourceExhausted(mapping.status())) return mapping;
        continue;
      }
    }
    ChangeScope change(*this);
    FURROW_RETURN_IF_ERROR(Change(
        [&](Configuration* next) {
          MutexLock lock(&mutex_);
          next->first_region = regions_.next_id();
          return absl::OkStatus();
        },
        NodeId(), NodeId()));
  }
  return absl::ResourceExhaustedError(
      "no set of storage members has memory for another region: add members or memory");
}

absl::StatusOr<RegionMapping> Manager::PrepareAndCommit(const RegionTable::Plan& plan) {
  std::vector<Member> members;
  std::vector<pb::PrepareRegionRequest> requests;
  {
    MutexLock lock(&mutex_);
    for (NodeId node : plan.replicas) members.push_back(*configuration_.Find(node));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    pb::PrepareRegionRequest& request = requests.emplace_back();
    request.set_config(plan.config.value());
    request.set_id(plan.id.value());
    request.set_locality(plan.locality.value());
    request.set_bytes(plan.bytes);
    request.set_primary(i == 0);
  }
  std::vector<pb::PrepareRegionReply> replies;
  std::vector<absl::Status> prepared = SendAll(members, requests, &replies, options_.prepare_timeout_ns);
  absl::Status failure;
  NodeId full;
  std::vector<rdma::RemoteAddress> memories;
  for (size_t i = 0; i < members.size(); ++i) {
    memories.push_back({replies[i].address(), rdma::RemoteKey(replies[i].key())});
    if (prepared[i].ok()) continue;
    if (absl::IsUnavailable(prepared[i]) || absl::IsDeadlineExceeded(prepared[i])) {
      failure = Lost(members[i], prepared[i], "prepare a region");
    } else if (failure.ok()) {
      failure = absl::Status(prepared[i].code(),
                             absl::StrCat("node ", members[i].id.value(), " cannot hold region ",
                                          plan.id.value(), ": ", prepared[i].message()));
      if (absl::IsResourceExhausted(prepared[i])) full = members[i].id;
    }
  }
  if (failure.ok()) {
    RegionMapping mapping;
    {
      MutexLock lock(&mutex_);
      mapping = *regions_.Prepared(plan, std::move(memories));
    }
    failure = CommitAtReplicas(mapping);
  } else {
    std::vector<Member> undo;
    for (size_t i = 0; i < members.size(); ++i) {
      if (prepared[i].ok()) undo.push_back(members[i]);
    }
    pb::AbortRegionRequest abort;
    abort.set_config(plan.config.value());
    abort.set_id(plan.id.value());
    std::vector<pb::AbortRegionReply> done;
    SendAll(undo, std::vector<pb::AbortRegionRequest>(undo.size(), abort), &done, options_.change_timeout_ns);
  }
  MutexLock lock(&mutex_);
  ++region_changes_;
  progress_.SignalAll();
  if (!failure.ok()) {
    regions_.Failed(plan, full);
    return failure;
  }
  return *regions_.Committed(plan);
}

absl::Status Manager::CommitAtReplicas(const RegionMapping& mapping) {
  std::vector<Member> members;
  {
    MutexLock lock(&mutex_);
    for (const Replica& r : mapping.replicas) members.push_back(*configuration_.Find(r.node));
    // The manager answers for every region: it needs the mapping too.
    if (std::none_of(members.begin(), members.end(),
                     [&](const Member& m) { return m.id == options_.self; })) {
      members.push_back(*configuration_.Find(options_.self));
    }
  }
  pb::CommitRegionRequest commit;
  commit.set_config(mapping.config.value());
  ToProto(mapping, commit.mutable_region());
  std::vector<pb::CommitRegionReply> replies;
  std::vector<absl::Status> committed =
      SendAll(members, std::vector<pb::CommitRegionRequest>(members.size(), commit), &replies,
              options_.change_timeout_ns);
  for (size_t i = 0; i < members.size(); ++i) {
    if (!committed[i].ok()) return Lost(members[i], committed[i], "commit a region");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RegionMapping>> Manager::Lookup(RegionId id, size_t limit) {
  MutexLock lock(&mutex_);
  const RegionMapping* found = regions_.Find(id);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("there is no region ", id.value()));
  std::vector<RegionMapping> mappings;
  for (const RegionMapping* m : regions_.From(id, limit)) mappings.push_back(*m);
  return mappings;
}

}  // namespace furrow::cluster
