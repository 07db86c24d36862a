// What the agent answers to control messages.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "cluster/agent.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/secret.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {
constexpr size_t kLookupAhead = 256;  // mappings in one answer
}

absl::Status Agent::OnlyManager() const {
  MutexLock lock(&mutex_);
  if (manager_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("node ", options_.self.id.value(),
                                                    " is not the configuration manager: ask node ",
                                                    view_ == nullptr ? 0 : view_->manager().value()));
}

absl::Status Agent::CheckConfig(uint64_t config) const {
  MutexLock lock(&mutex_);
  const uint64_t mine = view_ == nullptr ? 0 : view_->id().value();
  if (config == mine) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the request belongs to configuration ", config,
                                                    ", node ", options_.self.id.value(),
                                                    " is in configuration ", mine));
}

absl::Status Agent::Hello(const pb::HelloRequest& request, pb::HelloReply* reply) {
  reply->set_protocol(kControlProtocol);
  reply->set_version(kVersion);
  Manager* manager;
  {
    MutexLock lock(&mutex_);
    if (view_ == nullptr)
      return absl::UnavailableError("this member has not joined its cluster yet: try again");
    reply->set_cluster_id(options_.cluster_id);
    reply->set_manager(view_->manager().value());
    if (const Member* m = view_->Find(view_->manager())) reply->set_manager_address(m->control_address);
    manager = manager_.get();
  }
  reply->set_proof(
      Proof(options_.secret, absl::StrCat("hello\n", request.nonce(), "\n", reply->cluster_id())));
  return manager == nullptr ? absl::OkStatus() : manager->Hello(request, reply);
}

absl::Status Agent::Join(const pb::JoinRequest& request, pb::JoinReply* reply) {
  FURROW_RETURN_IF_ERROR(OnlyManager());
  return manager()->Join(request, reply);
}

absl::Status Agent::Ready(const pb::ReadyRequest& request, pb::ReadyReply*) {
  FURROW_RETURN_IF_ERROR(OnlyManager());
  return manager()->Ready(request);
}

absl::Status Agent::Leave(const pb::LeaveRequest& request, pb::LeaveReply*) {
  FURROW_RETURN_IF_ERROR(OnlyManager());
  return manager()->Leave(request);
}

absl::Status Agent::AllocateRegion(const pb::AllocateRegionRequest& request, pb::AllocateRegionReply* reply) {
  FURROW_RETURN_IF_ERROR(OnlyManager());
  FURROW_ASSIGN_OR_RETURN(RegionMapping mapping,
                          manager()->Allocate({.near = RegionId(request.near()),
                                               .newest_known = RegionId(request.newest_known()),
                                               .preferred_primary = NodeId(request.preferred_primary()),
                                               .ahead = request.ahead(),
                                               .name = request.name()}));
  ToProto(mapping, reply->mutable_region());
  return absl::OkStatus();
}

absl::Status Agent::LookupRegion(const pb::LookupRegionRequest& request, pb::LookupRegionReply* reply) {
  Manager* const manager = this->manager();
  if (manager == nullptr) {
    const RegionMapping* known =
        request.id() < RegionDirectory::kMaxRegions ? directory_.Find(RegionId(request.id())) : nullptr;
    if (known == nullptr)
      return absl::NotFoundError(absl::StrCat("region ", request.id(), " is not known here"));
    ToProto(*known, reply->add_regions());
    return absl::OkStatus();
  }
  FURROW_ASSIGN_OR_RETURN(std::vector<RegionMapping> mappings,
                          manager->Lookup(RegionId(request.id()), kLookupAhead));
  for (const RegionMapping& m : mappings) ToProto(m, reply->add_regions());
  return absl::OkStatus();
}

absl::Status Agent::ClusterStatus(const pb::ClusterStatusRequest&, pb::ClusterStatusReply* reply) {
  FURROW_RETURN_IF_ERROR(OnlyManager());
  return manager()->Status(reply);
}

absl::Status Agent::NewConfig(const pb::NewConfigRequest& request, pb::NewConfigReply*) {
  FURROW_ASSIGN_OR_RETURN(Configuration configuration, FromProto(request.configuration()));
  std::shared_ptr<const ClusterView> view = configuration.View();
  bool joining;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return absl::UnavailableError("this member is stopping");
    if (configuration.cluster_id != options_.cluster_id) {
      return absl::FailedPreconditionError("the configuration belongs to another cluster");
    }
    if (view_ != nullptr && view->id() <= view_->id()) return absl::OkStatus();  // a repetition
    if (!view->Contains(options_.self.id)) {
      return absl::FailedPreconditionError("the configuration lacks this member");
    }
    joining = state_ == State::kJoining;
    // From here on the acceptor lets the new members in, before they are told that they may come.
    view_ = view;
  }
  FURROW_RETURN_IF_ERROR(host_.OnNewConfiguration(view, joining));
  return absl::OkStatus();
}

absl::Status Agent::NewConfigCommit(const pb::NewConfigCommitRequest& request, pb::NewConfigCommitReply*) {
  FURROW_RETURN_IF_ERROR(CheckConfig(request.config()));
  host_.OnConfigurationCommitted(ConfigId(request.config()));
  return absl::OkStatus();
}

absl::Status Agent::PrepareRegion(const pb::PrepareRegionRequest& request, pb::PrepareRegionReply* reply) {
  FURROW_RETURN_IF_ERROR(CheckConfig(request.config()));
  if (options_.self.role != Role::kStorage)
    return absl::FailedPreconditionError("a compute member holds no region");
  ReplicaSpec spec{RegionId(request.id()), RegionId(request.locality()), request.bytes(),
                   ConfigId(request.config()), request.primary()};
  FURROW_ASSIGN_OR_RETURN(rdma::RemoteAddress memory, host_.CreateReplica(spec));
  reply->set_address(memory.address);
  reply->set_key(memory.key.value());
  return absl::OkStatus();
}

absl::Status Agent::CommitRegion(const pb::CommitRegionRequest& request, pb::CommitRegionReply*) {
  FURROW_RETURN_IF_ERROR(CheckConfig(request.config()));
  FURROW_ASSIGN_OR_RETURN(RegionMapping mapping, FromProto(request.region()));
  const RegionMapping* known = directory_.Put(std::move(mapping));
  const bool here = std::any_of(known->replicas.begin(), known->replicas.end(),
                                [&](const Replica& r) { return r.node == options_.self.id; });
  if (here) host_.CommitReplica(*known);
  return absl::OkStatus();
}

absl::Status Agent::AbortRegion(const pb::AbortRegionRequest& request, pb::AbortRegionReply*) {
  FURROW_RETURN_IF_ERROR(CheckConfig(request.config()));
  host_.ReleaseReplica(RegionId(request.id()));
  return absl::OkStatus();
}

absl::Status Agent::MemberStatus(const pb::MemberStatusRequest&, pb::MemberStatusReply* reply) {
  const MemberReport report = host_.Report();
  reply->set_id(options_.self.id.value());
  {
    MutexLock lock(&mutex_);
    if (view_ != nullptr) {
      reply->set_config(view_->id().value());
      if (const Member* self = view_->Find(options_.self.id))
        reply->set_incarnation(self->incarnation.value());
    }
  }
  reply->set_memory_limit(report.memory_limit);
  reply->set_memory_used(report.memory_used);
  for (const auto& [kind, bytes] : report.memory_by_kind) (*reply->mutable_memory_by_kind())[kind] = bytes;
  reply->set_huge_page_bytes(report.huge_page_bytes);
  reply->set_committed(report.committed);
  reply->set_read_only(report.read_only);
  reply->set_unknown(report.unknown);
  for (const auto& [reason, count] : report.aborted) (*reply->mutable_aborted())[reason] = count;
  reply->set_local_reads(report.local_reads);
  reply->set_remote_reads(report.remote_reads);
  reply->set_distributed(report.distributed);
  reply->set_applied(report.applied);
  reply->set_written(report.written);
  ClockInterval now;
  if (cluster_clock_.Now(&now)) {
    reply->set_clock_lower(now.lower.value());
    reply->set_clock_upper(now.upper.value());
  }
  reply->set_safe_point(safe_point_.safe_point().value());
  reply->set_uptime_ns(static_cast<uint64_t>(clock_.Now() - started_));
  return absl::OkStatus();
}

absl::Status Agent::EndCluster(const pb::EndClusterRequest& request, pb::EndClusterReply*) {
  // On the manager: somebody wants the cluster stopped. Elsewhere: the manager says that it has ended.
  const std::string absence = Absence();
  if (request.in_good_order()) {
    End({true, request.why()});
  } else if (NodeId(request.lost()) == options_.self.id && !absence.empty()) {
    End({false, LostByAll(absence), options_.self.id});
  } else {
    End({false, WithAbsence(request.why()), NodeId(request.lost())});
  }
  return absl::OkStatus();
}

}  // namespace furrow::cluster
