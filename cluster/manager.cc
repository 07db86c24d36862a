#include "cluster/manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/manager_internal.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/region_directory.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {

// Nonces of callers that said hello and have not joined: the oldest are forgotten.
constexpr size_t kMaxNonces = 1024;

}  // namespace

Manager::Manager(Options options, std::unique_ptr<ConfigStore> store, ControlClient& client,
                 ControlHandler& local, ClusterClock& clock)
    : options_(std::move(options)),
      store_(std::move(store)),
      client_(client),
      local_(local),
      clock_(clock),
      leases_(options_.lease_ns, clock.drift_ppm()) {}

absl::Status Manager::Lost(const Member& member, const absl::Status& why, absl::string_view what) {
  std::string sentence = absl::StrCat("node ", member.id.value(), " at ", member.control_address,
                                      " is lost: it did not ", what, " (", why.message(), ")");
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("the cluster is ending");
  }
  options_.lost(sentence);
  return absl::UnavailableError(sentence);
}

absl::Status Manager::Bootstrap(const Configuration& first) {
  absl::StatusOr<StoredConfiguration> stored = store_->Read();
  if (stored.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the config store holds cluster ", stored->configuration.cluster_id, " (configuration ",
                     stored->configuration.id.value(),
                     ") already, and a cluster cannot be restarted yet: give a fresh directory, or remove "
                     "this one if that cluster's data is not needed"));
  }
  if (!absl::IsNotFound(stored.status())) return stored.status();
  FURROW_RETURN_IF_ERROR(Swap(*store_, 0, first));
  ChangeScope change(*this);
  {
    MutexLock lock(&mutex_);
    version_ = 1;
    configuration_ = first;
    regions_.SetConfiguration(first);
    rounds_.Add(options_.self);
  }
  return Adopt(first, NodeId());
}

absl::Status Manager::Hello(const pb::HelloRequest& request, pb::HelloReply* reply) {
  MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the cluster is ending");
  std::string nonce = absl::StrFormat("%016x%016x", EntropySeed(), EntropySeed());
  if (nonce_order_.size() >= kMaxNonces) {
    nonces_.erase(nonce_order_.front());
    nonce_order_.erase(nonce_order_.begin());
  }
  nonces_.insert(nonce);
  nonce_order_.push_back(nonce);
  reply->set_nonce(nonce);
  reply->set_id(request.id());
  if (request.id() == 0 && request.role() == 1) reply->set_id(next_compute_id_++);
  // Above every incarnation given out in this configuration and the earlier ones.
  reply->set_incarnation((configuration_.id.value() << 20) + (++hellos_ & 0xfffff));
  reply->set_replicas(configuration_.replicas);
  reply->set_region_bytes(configuration_.region_bytes);
  reply->set_fabric(configuration_.fabric);
  return absl::OkStatus();
}

absl::Status Manager::CheckJoin(const pb::JoinRequest& request, const Member& member) {
  MutexLock lock(&mutex_);
  if (request.protocol() != kControlProtocol) {
    return absl::FailedPreconditionError(absl::StrCat("this member speaks control protocol ",
                                                      request.protocol(), ", the cluster ", kControlProtocol,
                                                      ": run the same version of Furrow on all members"));
  }
  if (request.cluster_id() != configuration_.cluster_id) {
    return absl::FailedPreconditionError(absl::StrCat("this is cluster ", configuration_.cluster_id, ", not ",
                                                      request.cluster_id(),
                                                      ": check MemberOptions::cluster"));
  }
  if (nonces_.erase(request.nonce()) == 0) {
    return absl::FailedPreconditionError("the join comes too late or twice: say hello again");
  }
  nonce_order_.erase(std::find(nonce_order_.begin(), nonce_order_.end(), request.nonce()));
  const bool compute_id = member.id.value() >= kFirstComputeId;
  if (compute_id != (member.role == Role::kCompute)) {
    return absl::InvalidArgumentError(absl::StrCat("storage members have ids from 1 to ", kFirstComputeId - 1,
                                                   ", not ", member.id.value(),
                                                   ": choose another MemberOptions::id"));
  }
  if (configuration_.Find(member.id) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("node ", member.id.value(), " is a member already: choose another MemberOptions::id"));
  }
  if (configuration_.members.size() >= kMaxMembers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cluster has its maximum of ", kMaxMembers, " members"));
  }
  if (configuration_.region_bytes == 0) return absl::InternalError("no region size");
  if (member.role == Role::kStorage && request.member().region_capacity() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the member's memory holds no region of ",
                                                   configuration_.region_bytes,
                                                   " bytes: give it more MemberOptions::memory_bytes"));
  }
  return absl::OkStatus();
}

absl::Status Manager::Join(const pb::JoinRequest& request, pb::JoinReply* reply) {
  FURROW_ASSIGN_OR_RETURN(Member member, FromProto(request.member()));
  FURROW_RETURN_IF_ERROR(CheckJoin(request, member));
  ChangeScope change(*this);
  absl::Status changed = Change(
      [&](Configuration* next) {
        if (next->Find(member.id) != nullptr) {
          return absl::AlreadyExistsError(absl::StrCat("node ", member.id.value(), " is a member already"));
        }
        if (member.role == Role::kCompute) {
          next->next_compute_id = std::max(next->next_compute_id, member.id.value() + 1);
        }
        next->Add(member, request.member().region_capacity());
        return absl::OkStatus();
      },
      member.id, NodeId());
  if (!changed.ok()) return changed;
  reply->set_shared_clock(!request.clock_domain().empty() && request.clock_domain() == options_.clock_domain);
  reply->set_clock_origin(clock_.origin());
  MutexLock lock(&mutex_);
  ToProto(configuration_, reply->mutable_configuration());
  reply->set_oldest_active(rounds_.global_oldest().value());
  reply->set_safe_point(rounds_.safe_point().value());
  return absl::OkStatus();
}

absl::Status Manager::Ready(const pb::ReadyRequest& request) {
  const NodeId node(request.node());
  {
    MutexLock lock(&mutex_);
    const Member* member = configuration_.Find(node);
    if (member == nullptr || member->incarnation != Incarnation(request.incarnation())) {
      return absl::NotFoundError(absl::StrCat("node ", node.value(), " is no member"));
    }
    regions_.SetReady(node);
  }
  return FoundIfPossible();
}

absl::Status Manager::Leave(const pb::LeaveRequest& request) {
  const NodeId node(request.node());
  ChangeScope change(*this);
  {
    MutexLock lock(&mutex_);
    const Member* member = configuration_.Find(node);
    if (member == nullptr || member->incarnation != Incarnation(request.incarnation())) {
      return absl::NotFoundError(absl::StrCat("node ", node.value(), " is no member"));
    }
    if (node == configuration_.manager) {
      return absl::FailedPreconditionError(absl::StrCat("node ", node.value(),
                                                        " is the configuration manager, which cannot "
                                                        "leave yet: stop the whole cluster instead"));
    }
    if (uint64_t held = regions_.ReplicasAt(node); held > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", node.value(), " holds copies of ", held,
                       " regions, and regions cannot be moved yet: it stays until the "
                       "whole cluster is stopped"));
    }
  }
  return Change(
      [&](Configuration* next) {
        next->Remove(node);
        return absl::OkStatus();
      },
      NodeId(), node);
}

absl::Status Manager::Change(const Edit& edit, NodeId joining, NodeId left) {
  Configuration next;
  uint64_t version;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::UnavailableError("the cluster is ending");
    next = configuration_;
    version = version_;
  }
  next.id = ConfigId(next.id.value() + 1);
  FURROW_RETURN_IF_ERROR(edit(&next));
  FURROW_RETURN_IF_ERROR(Swap(*store_, version, next));
  {
    MutexLock lock(&mutex_);
    version_ = version + 1;
    configuration_ = next;
    regions_.SetConfiguration(next);
    if (joining != NodeId()) {
      rounds_.Add(joining);
      leases_.AddNew(joining, next.Find(joining)->role);
    }
    if (left != NodeId()) {
      rounds_.Remove(left);
      leases_.Remove(left);
    }
  }
  absl::Status adopted = Adopt(next, joining);
  if (!adopted.ok() && joining != NodeId() && !absl::IsUnavailable(adopted)) {
    // Only the new member has failed: the change is undone by another one.
    absl::Status undone = Change(
        [&](Configuration* without) {
          without->Remove(joining);
          return absl::OkStatus();
        },
        NodeId(), joining);
    if (!undone.ok()) return undone;
  }
  if (adopted.ok()) options_.changed(next, left);
  return adopted;
}

absl::Status Manager::Adopt(const Configuration& next, NodeId joining) {
  pb::NewConfigRequest announcement;
  ToProto(next, announcement.mutable_configuration());
  std::vector<Member> others = next.members;
  if (joining != NodeId()) {
    const Member member = *next.Find(joining);
    pb::NewConfigReply reply;
    absl::Status status =
        client_.Call(member.control_address, announcement, &reply, options_.change_timeout_ns);
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", joining.value(), " was not admitted: it cannot be reached at ",
                       member.control_address, " (", status.message(), "): check MemberOptions::listen"));
    }
    std::erase_if(others, [&](const Member& m) { return m.id == joining; });
  }
  std::vector<pb::NewConfigReply> replies;
  std::vector<absl::Status> acknowledged =
      SendAll(others, std::vector<pb::NewConfigRequest>(others.size(), announcement), &replies,
              options_.change_timeout_ns);
  for (size_t i = 0; i < others.size(); ++i) {
    if (acknowledged[i].ok()) continue;
    // A member that cannot open its rings to the new one says so: then it is the new one that is not
    // admitted.
    if (joining != NodeId() && absl::IsFailedPrecondition(acknowledged[i])) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", joining.value(), " was not admitted: node ", others[i].id.value(),
                       " cannot open its rings to it (", acknowledged[i].message(), ")"));
    }
    return Lost(others[i], acknowledged[i], "acknowledge NEW-CONFIG");
  }
  pb::NewConfigCommitRequest commit;
  commit.set_config(next.id.value());
  std::vector<pb::NewConfigCommitReply> done;
  acknowledged = SendAll(next.members, std::vector<pb::NewConfigCommitRequest>(next.members.size(), commit),
                         &done, options_.change_timeout_ns);
  for (size_t i = 0; i < next.members.size(); ++i) {
    if (acknowledged[i].ok()) continue;
    if (next.members[i].id == joining) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", joining.value(), " went away while it joined"));
    }
    return Lost(next.members[i], acknowledged[i], "acknowledge NEW-CONFIG-COMMIT");
  }
  return absl::OkStatus();
}

absl::Status Manager::Status(pb::ClusterStatusReply* reply) {
  std::vector<Member> members;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::UnavailableError("the cluster is ending");
    ToProto(configuration_, reply->mutable_configuration());
    for (const RegionMapping* m : regions_.From(RegionId(0), RegionDirectory::kMaxRegions))
      ToProto(*m, reply->add_regions());
    members = configuration_.members;
  }
  std::vector<pb::MemberStatusReply> replies;
  std::vector<absl::Status> answered =
      SendAll(members, std::vector<pb::MemberStatusRequest>(members.size()), &replies, 3 * kSecond);
  for (size_t i = 0; i < members.size(); ++i) {
    replies[i].set_id(members[i].id.value());
    if (!answered[i].ok()) continue;  // shown as a member that does not answer
    MutexLock lock(&mutex_);
    const uint64_t primaries = regions_.PrimariesAt(members[i].id);
    replies[i].set_primaries(static_cast<uint32_t>(primaries));
    replies[i].set_backups(static_cast<uint32_t>(regions_.ReplicasAt(members[i].id) - primaries));
    *reply->add_members() = replies[i];
  }
  return absl::OkStatus();
}

void Manager::Announce(const ClusterEnd& end, std::function<void()> told) {
  struct Round {
    std::vector<pb::EndClusterReply> replies;
    std::atomic<size_t> left;
    std::function<void()> told;
  };
  auto round = std::make_shared<Round>();
  std::vector<Member> members = configuration().members;
  std::erase_if(members, [&](const Member& m) { return m.id == options_.self; });
  round->replies.resize(members.size());
  round->left = members.size() + 1;
  round->told = std::move(told);
  auto one = [round](absl::Status) {
    if (round->left.fetch_sub(1) == 1) round->told();
  };
  pb::EndClusterRequest request;
  request.set_in_good_order(end.in_good_order);
  request.set_why(end.why);
  request.set_lost(end.lost.value());
  for (size_t i = 0; i < members.size(); ++i) {
    client_.Start(members[i].control_address, request, &round->replies[i], 2 * kSecond, one);
  }
  one(absl::OkStatus());
}

void Manager::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  progress_.SignalAll();
}

Manager::Safe Manager::Report(NodeId node, Timestamp oldest_active, Timestamp known_global) {
  MutexLock lock(&mutex_);
  rounds_.Report(node, oldest_active, known_global);
  return {rounds_.global_oldest(), rounds_.safe_point()};
}

Manager::Leased Manager::Lease(NodeId node, Nanos now, Nanos counter) {
  MutexLock lock(&mutex_);
  const Nanos term = leases_.OnRequest(node, now, counter);
  return {term, leases_.right()};
}

Nanos Manager::right() const {
  MutexLock lock(&mutex_);
  return leases_.right();
}

Configuration Manager::configuration() const {
  MutexLock lock(&mutex_);
  return configuration_;
}

}  // namespace furrow::cluster
