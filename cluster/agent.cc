#include "cluster/agent.h"

#include <latch>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/secret.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {

constexpr Nanos kLinkTimeoutNs = 10 * kSecond;  // between admission and the first beat
constexpr Nanos kHelloTimeoutNs = 5 * kSecond;
constexpr int kLeaveAttempts = 3;
// Of the control thread. It does little, and when its turn comes late, so do leases.
constexpr int kControlPriority = 50;
// Below it a host must grant that priority, and memory that stays, for leases not to be lost for nothing.
constexpr Nanos kShortLeaseNs = kSecond;

// Leases are from milliseconds to hours.
std::string Seconds(Nanos ns) {
  const double seconds = static_cast<double>(ns) / kSecond;
  return ns < kSecond ? absl::StrFormat("%.3g s", seconds) : absl::StrFormat("%.1f s", seconds);
}

std::string HelloText(const std::string& nonce, const std::string& cluster_id) {
  return absl::StrCat("hello\n", nonce, "\n", cluster_id);
}

}  // namespace

absl::StatusOr<Introduction> SayHello(ControlClient& client, const std::string& secret,
                                      const std::string& address, Role role, NodeId id, bool wait,
                                      Nanos timeout_ns) {
  pb::HelloRequest request;
  request.set_protocol(kControlProtocol);
  request.set_nonce(absl::StrFormat("%016x%016x", EntropySeed(), EntropySeed()));
  request.set_role(role == Role::kCompute ? 1 : 0);
  request.set_id(id.value());
  std::string at = address;
  for (int hop = 0; hop < 2; ++hop) {
    pb::HelloReply reply;
    FURROW_RETURN_IF_ERROR(client.Call(at, request, &reply, timeout_ns, wait));
    if (reply.protocol() != kControlProtocol) {
      return absl::FailedPreconditionError(absl::StrCat("the cluster at ", at, " runs Furrow ",
                                                        reply.version(), ", this is ", kVersion,
                                                        ": run the same version on all members"));
    }
    if (!ProofMatches(secret, HelloText(request.nonce(), reply.cluster_id()), reply.proof())) {
      return absl::PermissionDeniedError(
          absl::StrCat("what answers at ", at,
                       " does not hold this cluster's secret: it is "
                       "another cluster; check MemberOptions::cluster and MemberOptions::secret_file"));
    }
    if (!reply.nonce().empty()) {
      return Introduction{reply.cluster_id(),
                          reply.nonce(),
                          at,
                          NodeId(reply.id()),
                          Incarnation(reply.incarnation()),
                          reply.replicas(),
                          reply.region_bytes(),
                          reply.fabric()};
    }
    at = reply.manager_address();
  }
  return absl::UnavailableError(
      absl::StrCat("the member at ", address, " does not know the configuration manager: try again"));
}

Agent::Agent(Options options, MemberHost& host, const Clock& clock, rdma::Fabric& fabric,
             ClusterClock& cluster_clock, SafePoint& safe_point, RegionDirectory& directory)
    : options_(std::move(options)),
      lease_ns_(options_.lease_ns),
      host_(host),
      clock_(clock),
      fabric_(fabric),
      cluster_clock_(cluster_clock),
      safe_point_(safe_point),
      directory_(directory),
      started_(clock.Now()),
      lease_(cluster_clock),
      client_(options_.secret),
      plane_client_(options_.secret),
      control_plane_(plane_client_, directory) {}

Agent::~Agent() { Stop(); }

absl::Status Agent::Listen(const std::string& address) {
  FURROW_ASSIGN_OR_RETURN(queue_, fabric_.CreateCompletionQueue());
  loop_ = std::make_unique<EventLoop>(clock_, queue_->parker(), IdlePolicy{.spin_ns = 0, .yields = 0});
  FURROW_ASSIGN_OR_RETURN(server_, ControlServer::Start(address, options_.secret, *this));
  options_.self.control_address = server_->address();
  return absl::OkStatus();
}

absl::Status Agent::StartLink(Manager* manager) {
  ControlLink::Options options;
  options.self = options_.self.id;
  options.manager = manager != nullptr;
  options.schedule = options_.schedule;
  options.lease_ns = lease_ns_;
  options.renewals = options_.lease_renewals;
  options.lease = [this, manager](NodeId node, Nanos now, Nanos counter) {
    const Manager::Leased leased = manager->Lease(node, now, counter);
    lease_.SetUntil(leased.right);
    return leased.term;
  };
  options.answered = [this](Nanos sent, Nanos term) { lease_.Answered(sent, term); };
  options.report = [manager](NodeId node, Timestamp oldest, Timestamp known) {
    Manager::Safe safe = manager->Report(node, oldest, known);
    return ControlLink::Safe{safe.global_oldest, safe.safe_point};
  };
  options.lost = [this](NodeId node, ControlLink::Loss how) { OnLost(node, how); };
  options.bad_clock = [this](absl::Status why) { End({false, WithAbsence(std::string(why.message()))}); };
  auto link = std::make_unique<ControlLink>(std::move(options), *loop_, fabric_, *queue_, cluster_clock_,
                                            safe_point_);
  FURROW_RETURN_IF_ERROR(link->Start());
  {
    MutexLock lock(&mutex_);
    link_ = std::move(link);
  }
  control_thread_ =
      Thread({.name = "control", .realtime_priority = kControlPriority, .cpu = {}}, [this] { loop_->Run(); });
  if (lease_ns_ < kShortLeaseNs) {
    absl::Status granted = control_thread_.settings();
    granted.Update(LockMemory());
    if (!granted.ok()) {
      FURROW_LOG(WARNING) << "a lease of " << Seconds(lease_ns_) << " may be lost for nothing: " << granted;
    }
  }
  return absl::OkStatus();
}

absl::Status Agent::Bootstrap(std::unique_ptr<ConfigStore> store, uint32_t replicas, uint64_t region_bytes,
                              Timestamp start) {
  cluster_clock_.StartMaster(start);
  Manager::Options options;
  options.self = options_.self.id;
  options.lease_ns = lease_ns_;
  options.clock_domain = options_.clock_domain;
  options.lost = [this](std::string why) { End({false, WithAbsence(std::move(why))}); };
  options.founded = [this](RegionId first_region) { return host_.OnFounded(first_region); };
  options.changed = [this](const Configuration& configuration, NodeId left) {
    loop_->Post([this, configuration, left, link = link()] {
      if (left != NodeId()) {
        link->Forget(left);
        lease_.SetUntil(manager()->right());  // without it fewer grants are enough
      }
      for (const Member& m : configuration.members) {
        if (m.id != options_.self.id) link->Expect(m.id, loop_->Now() + kLinkTimeoutNs);
      }
    });
    if (watcher_) watcher_(configuration);
  };
  Configuration first;
  first.cluster_id = options_.cluster_id;
  first.id = ConfigId(1);
  first.manager = options_.self.id;
  first.replicas = replicas;
  first.region_bytes = region_bytes;
  first.lease_ns = lease_ns_;
  first.fabric = options_.fabric;
  first.Add(options_.self, options_.region_capacity);
  auto manager =
      std::make_unique<Manager>(std::move(options), std::move(store), client_, *this, cluster_clock_);
  {
    MutexLock lock(&mutex_);
    state_ = State::kMember;
    manager_ = std::move(manager);
  }
  control_plane_.SetManager(control_address());
  lease_.SetUntil(MemberLease::kForever);
  Manager* const made = this->manager();
  FURROW_RETURN_IF_ERROR(StartLink(made));
  FURROW_RETURN_IF_ERROR(made->Bootstrap(first));
  if (watcher_) watcher_(first);
  lease_.Grant();
  return absl::OkStatus();
}

absl::Status Agent::Join(const Introduction& introduction) {
  {
    MutexLock lock(&mutex_);
    state_ = State::kJoining;
  }
  control_plane_.SetManager(introduction.manager_address);
  pb::JoinRequest request;
  request.set_protocol(kControlProtocol);
  request.set_cluster_id(introduction.cluster_id);
  request.set_nonce(introduction.nonce);
  request.set_clock_domain(options_.clock_domain);
  ToProto(options_.self, options_.region_capacity, request.mutable_member());
  pb::JoinReply reply;
  const absl::Status joined =
      client_.Call(introduction.manager_address, request, &reply, options_.join_timeout_ns);
  const absl::Status begun = joined.ok() ? BeginMembership(reply) : joined;
  if (joined.ok() ? !begun.ok() : IsNoAnswer(joined)) GiveUpJoining();
  return begun;
}

// The manager has admitted this member, or may have: if it just went away, that would be a loss.
void Agent::GiveUpJoining() {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return;
    leaving_ = true;
  }
  pb::LeaveRequest request;
  request.set_node(options_.self.id.value());
  request.set_incarnation(options_.self.incarnation.value());
  pb::LeaveReply reply;
  // The connection may have been what failed, and one that is just failing may take the call with it: it is
  // made again, since leaving twice is leaving.
  absl::Status left;
  for (int attempt = 0; attempt < kLeaveAttempts; ++attempt) {
    left = client_.Call(control_plane_.manager(), request, &reply, kHelloTimeoutNs, /*wait=*/true);
    if (!IsNoAnswer(left) || absl::IsDeadlineExceeded(left)) break;
  }
  if (!left.ok() && !absl::IsNotFound(left)) {
    FURROW_LOG(WARNING) << "the cluster does not know that this member gave up joining: " << left;
  }
}

absl::Status Agent::BeginMembership(const pb::JoinReply& reply) {
  FURROW_ASSIGN_OR_RETURN(Configuration configuration, FromProto(reply.configuration()));
  const Member* self = configuration.Find(options_.self.id);
  const Member* manager = configuration.Find(configuration.manager);
  if (self == nullptr || manager == nullptr) return absl::InternalError("the configuration lacks this node");
  lease_ns_ = configuration.lease_ns;
  if (reply.shared_clock()) {
    cluster_clock_.StartShared(reply.clock_origin());
  } else {
    cluster_clock_.StartSampled();
    // Between samples the interval grows by twice the drift bound: 100 microseconds in this time.
    options_.schedule.slow_ns = std::min(options_.schedule.slow_ns, 50 * kMillisecond);
  }
  safe_point_.Advance(Timestamp(reply.oldest_active() & Timestamp::kMaxValue),
                      Timestamp(reply.safe_point() & Timestamp::kMaxValue));
  FURROW_RETURN_IF_ERROR(StartLink(nullptr));
  struct First {
    std::latch answered{1};
    absl::Status status;
  };
  auto first = std::make_shared<First>();
  loop_->Post([link = link(), first, id = manager->id, endpoint = manager->fabric_endpoint] {
    link->Connect(id, endpoint, kLinkTimeoutNs, [first](absl::Status status) {
      first->status = std::move(status);
      first->answered.count_down();
    });
  });
  first->answered.wait();
  if (!first->status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the configuration manager does not answer over the fabric at ",
                     manager->fabric_endpoint, ": ", first->status.message()));
  }
  MutexLock lock(&mutex_);
  if (state_ == State::kEnded) return absl::UnavailableError("the cluster ended while this member joined");
  state_ = State::kMember;
  lease_.Grant();
  return absl::OkStatus();
}

absl::Status Agent::Ready() {
  pb::ReadyRequest request;
  request.set_node(options_.self.id.value());
  request.set_incarnation(options_.self.incarnation.value());
  pb::ReadyReply reply;
  return client_.Call(control_plane_.manager(), request, &reply, options_.join_timeout_ns);
}

absl::Status Agent::Leave() {
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kMember) return absl::OkStatus();
    leaving_ = true;
  }
  pb::LeaveRequest request;
  request.set_node(options_.self.id.value());
  request.set_incarnation(options_.self.incarnation.value());
  pb::LeaveReply reply;
  absl::Status left = client_.Call(control_plane_.manager(), request, &reply, options_.join_timeout_ns);
  MutexLock lock(&mutex_);
  leaving_ = false;
  if (!left.ok()) return left;
  state_ = State::kEnded;
  lease_.Expire();
  return absl::OkStatus();
}

absl::Status Agent::EndCluster(std::string why) {
  pb::EndClusterRequest request;
  request.set_in_good_order(true);
  request.set_why(std::move(why));
  pb::EndClusterReply reply;
  return client_.Call(control_plane_.manager(), request, &reply, kHelloTimeoutNs);
}

void Agent::End(ClusterEnd end) {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded || stopped_) return;
    state_ = State::kEnded;
  }
  Manager* const manager = this->manager();
  if (manager == nullptr) {
    // First the reason, then its effects.
    TellHost(end);
    lease_.Expire();
    plane_client_.Shutdown();
    return StopLink();
  }
  lease_.Expire();
  plane_client_.Shutdown();
  manager->Stop();
  manager->Announce(end, [this, end] {
    TellHost(end);
    StopLink();  // not before: the members shall hear the reason first
  });
}

void Agent::StopLink() {
  if (ControlLink* link = this->link()) loop_->Post([link] { link->Stop(); });
}

std::string Agent::Absence() const {
  const ControlLink* link = this->link();
  const Nanos absent = link == nullptr ? 0 : link->overslept();
  // Others may count from a beat that was on its way when this process was stopped.
  if (absent < lease_ns_ / 2) return "";
  return absl::StrFormat("node %d did not run for %s (it was stopped, or got no processor)",
                         options_.self.id.value(), Seconds(absent));
}

std::string Agent::LostByAll(const std::string& absence) const {
  return absl::StrFormat(
      "%s, and is lost to the other members, which wait %s: let its host have time, or found clusters "
      "with a longer MemberOptions::lease_ns",
      absence, Seconds(lease_ns_));
}

std::string Agent::WithAbsence(std::string why) const {
  const std::string absence = Absence();
  return absence.empty() ? why : absl::StrCat(why, "; and ", absence);
}

void Agent::TellHost(const ClusterEnd& end) { host_.OnEnded(end); }

std::string Agent::HowLost(ControlLink::Loss how) const {
  switch (how) {
    case ControlLink::Loss::kBroken:
      return " is lost: it crashed or was killed";
    case ControlLink::Loss::kSilent:
      return absl::StrFormat(" is lost: it was silent for %s; it was stopped, or hangs", Seconds(lease_ns_));
    case ControlLink::Loss::kNeverCame:
      return absl::StrFormat(" is lost: it was admitted, and did not connect over the fabric within %.0f s",
                             static_cast<double>(kLinkTimeoutNs) / kSecond);
  }
  return "";
}

void Agent::OnLost(NodeId node, ControlLink::Loss how) {
  {
    MutexLock lock(&mutex_);
    if (leaving_ || state_ == State::kEnded) return;
  }
  const std::string absence = Absence();
  Manager* const manager = this->manager();
  if (manager == nullptr) {
    // Who was away has not lost the manager: the manager has lost it.
    if (!absence.empty()) return End({false, LostByAll(absence), options_.self.id});
    return End(
        {false, absl::StrCat("node ", node.value(), ", the configuration manager,", HowLost(how)), node});
  }
  const Configuration configuration = manager->configuration();
  const Member* member = configuration.Find(node);
  if (member == nullptr) return;
  std::string why = absl::StrCat(member->role == Role::kCompute ? "compute member " : "node ", node.value(),
                                 " at ", member->control_address, HowLost(how));
  if (absence.empty()) return End({false, std::move(why), node});
  // A member that crashed while this one was away, or the first of all the others to show that it has lost
  // this one: that shows when they have had the time.
  ControlLink* const link = this->link();
  loop_->CallAt(loop_->Now() + link->tick_ns(), [this, link, node, absence, why = std::move(why)] {
    if (link->alone()) return End({false, LostByAll(absence), options_.self.id});
    End({false, absl::StrCat(why, "; and ", absence), node});
  });
}

void Agent::Stop() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    state_ = State::kEnded;
  }
  lease_.Expire();
  if (Manager* manager = this->manager()) manager->Stop();
  client_.Shutdown();
  plane_client_.Shutdown();
  if (server_ != nullptr) server_->Stop();
  if (ControlLink* link = this->link()) {
    loop_->Post([this, link] {
      link->Stop();
      loop_->Stop();
    });
    control_thread_.Join();
    data_link_thread_.Join();
  }
}

absl::StatusOr<rdma::AcceptDecision> Agent::Accept(const rdma::ConnectRequest& request) {
  MutexLock lock(&mutex_);
  if (manager_ == nullptr || link_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", options_.self.id.value(), " is not the configuration manager"));
  }
  if (view_ == nullptr || !view_->Contains(request.peer)) {
    return absl::FailedPreconditionError(absl::StrCat("node ", request.peer.value(), " is no member"));
  }
  return link_->Accept(request.peer);
}

std::shared_ptr<const ClusterView> Agent::view() const {
  MutexLock lock(&mutex_);
  return view_;
}

}  // namespace furrow::cluster
