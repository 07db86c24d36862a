#include "cluster/reconfiguration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace furrow::cluster {
namespace {

// A compute member asks so often; then there is nobody who could replace the manager.
constexpr int kMaxAsks = 10;

size_t StorageMembers(const Configuration& c) {
  return static_cast<size_t>(std::count_if(c.members.begin(), c.members.end(),
                                           [](const Member& m) { return m.role == Role::kStorage; }));
}

}  // namespace

Initiator::Initiator(Options options, const Configuration& adopted)
    : options_(std::move(options)), base_(adopted), adopted_(adopted.id) {}

bool Initiator::IsStorage() const {
  const Member* self = base_.Find(options_.self);
  return self != nullptr && self->role == Role::kStorage;
}

std::vector<NodeId> Initiator::Successors() const {
  std::vector<NodeId> ring;
  for (const Member& m : base_.members) {
    if (m.role == Role::kStorage && m.id != base_.manager && !suspects_.contains(m.id)) ring.push_back(m.id);
  }
  std::sort(ring.begin(), ring.end(), [&](NodeId a, NodeId b) {
    return std::pair(a < base_.manager, a) < std::pair(b < base_.manager, b);
  });
  return ring;
}

void Initiator::Enter(State state, Nanos deadline) {
  state_ = state;
  deadline_ = deadline;
}

void Initiator::End(std::string why) {
  Enter(State::kStopped, kNever);
  outputs_.clear();
  outputs_.push_back(Stop{std::move(why)});
}

void Initiator::Suspect(NodeId node, bool gone, Nanos now) {
  if (state_ == State::kStopped || node == options_.self || base_.Find(node) == nullptr) return;
  const bool initiates = state_ != State::kIdle && state_ != State::kFollowing;
  if (!IsManager() && !initiates && node != base_.manager) return;
  suspects_[node] |= gone;
  switch (state_) {
    case State::kIdle:
    case State::kFollowing:
      return IsManager() ? StartProbing(now) : BeginReplacing(/*asked=*/false, now);
    case State::kCollecting:
    case State::kAnnouncing:
      return StartProbing(now);
    case State::kProbing:
      waiting_.erase(node);
      answered_.erase(node);
      return EndProbingIfAnswered(now);
    case State::kAsking:
    case State::kSwapping:  // the next change removes it
    case State::kRemapping:
    case State::kStopped:
      return;
  }
}

void Initiator::OnAsked(NodeId suspect, ConfigId config, Nanos now) {
  if (config != base_.id || suspect != base_.manager || IsManager()) return;
  if (state_ != State::kIdle && state_ != State::kAsking && state_ != State::kFollowing) return;
  suspects_.try_emplace(suspect, false);
  BeginReplacing(/*asked=*/true, now);
}

// Step 1. The backup managers come first, so that not all members try at once.
void Initiator::BeginReplacing(bool asked, Nanos now) {
  const std::vector<NodeId> successors = Successors();
  const bool first = !successors.empty() && successors[0] == options_.self;
  if (IsStorage() && (asked || first)) return StartProbing(now);
  asks_ = 0;
  AskBackups(now);
}

void Initiator::AskBackups(Nanos now) {
  ++asks_;
  std::vector<NodeId> backups = Successors();
  if (backups.size() > options_.backup_managers) backups.resize(options_.backup_managers);
  std::erase(backups, options_.self);
  if (!backups.empty()) outputs_.push_back(Ask{std::move(backups), base_.manager});
  Enter(State::kAsking, now + options_.ask_timeout_ns);
}

// Step 2. All but the suspects, so that several that died together go with one change.
void Initiator::StartProbing(Nanos now) {
  waiting_.clear();
  answered_.clear();
  since_ = adopted_;
  Probe probe{++round_, {}};
  for (const Member& m : base_.members) {
    if (m.id == options_.self || suspects_.contains(m.id)) continue;
    probe.nodes.push_back(m.id);
    waiting_.insert(m.id);
  }
  Enter(State::kProbing, now + options_.probe_timeout_ns);
  if (!probe.nodes.empty()) outputs_.push_back(std::move(probe));
  EndProbingIfAnswered(now);
}

void Initiator::OnProbed(NodeId node, uint64_t round, ConfigId adopted, Nanos now) {
  if (state_ != State::kProbing || round != round_ || waiting_.erase(node) == 0) return;
  answered_.insert(node);
  since_ = std::min(since_, adopted);
  EndProbingIfAnswered(now);
}

void Initiator::OnProbeFailed(NodeId node, uint64_t round, bool gone, Nanos now) {
  if (state_ != State::kProbing || round != round_ || waiting_.erase(node) == 0) return;
  suspects_[node] |= gone;
  EndProbingIfAnswered(now);
}

void Initiator::EndProbingIfAnswered(Nanos now) {
  if (!waiting_.empty()) return;
  size_t there = 1;  // this one
  for (NodeId node : answered_) {
    if (base_.Find(node)->role == Role::kStorage) ++there;
  }
  // With exactly half of them the store decides, which has one winner.
  const size_t all = StorageMembers(base_);
  if (2 * there < all) {
    return End(absl::StrCat("node ", options_.self.value(), " reaches ", there, " of ", all,
                            " storage members, itself included, and fewer than half of them must not go on: "
                            "others may have done so without this node; start the cluster anew if they have "
                            "not"));
  }
  uncertain_ = false;
  EmitSwap();
}

// Step 3.
void Initiator::EmitSwap() {
  if (!uncertain_) {
    next_ = base_;
    next_.id = ConfigId(base_.id.value() + 1);
    for (const auto& [node, gone] : suspects_) next_.Remove(node);
    next_.manager = options_.self;
    // The last manager may have given out any id of its range.
    if (!IsManager()) next_.first_region += kRegionRange;
  }
  outputs_.push_back(Swap{next_});
  Enter(State::kSwapping, kNever);
}

void Initiator::OnSwapped(const absl::Status& result, const Configuration* stored, Nanos now) {
  if (state_ != State::kSwapping) return;
  if (result.ok()) return Won(now);
  if (absl::IsAborted(result) && stored != nullptr) {
    // An attempt whose answer was lost.
    if (Encode(*stored) == Encode(next_)) return Won(now);
    return Follow(*stored, now);
  }
  uncertain_ |= !absl::IsUnavailable(result);
  deadline_ = now + options_.swap_retry_ns;
}

void Initiator::Won(Nanos now) {
  new_manager_ |= !IsManager();
  for (const Member& m : base_.members) {
    if (next_.Find(m.id) != nullptr) continue;
    evicted_[m.id] |= suspects_[m.id];
    suspects_.erase(m.id);
  }
  base_ = next_;
  recovering_ = ConfigId();
  if (!new_manager_) {
    outputs_.push_back(Remap{base_, false});
    return Enter(State::kRemapping, kNever);
  }
  WaitForAll();
  outputs_.push_back(Collect{base_});
  Enter(State::kCollecting, now + options_.announce_timeout_ns);
  if (!suspects_.empty()) StartProbing(now);  // lost meanwhile
}

void Initiator::WaitForAll() {
  waiting_.clear();
  for (const Member& m : base_.members) waiting_.insert(m.id);
}

void Initiator::OnCollected(NodeId node, ConfigId config, Nanos now) {
  if (state_ != State::kCollecting || config != base_.id) return;
  waiting_.erase(node);
  if (!waiting_.empty()) return;
  outputs_.push_back(Remap{base_, true});
  Enter(State::kRemapping, kNever);
}

void Initiator::Follow(const Configuration& stored, Nanos now) {
  if (stored.Find(options_.self) == nullptr) {
    return End(absl::StrCat("node ", options_.self.value(), " was evicted by node ", stored.manager.value(),
                            " with configuration ", stored.id.value(),
                            ": it was silent for a lease, or could not be reached"));
  }
  uncommitted_ = true;
  base_ = stored;
  suspects_.clear();
  Enter(State::kFollowing, now + options_.follow_timeout_ns);
}

// Steps 4 and 5.
void Initiator::OnRemapped(ConfigId config, const absl::Status& result, Nanos now) {
  if (state_ != State::kRemapping || config != base_.id) return;
  if (!result.ok()) return End(std::string(result.message()));
  if (!suspects_.empty()) return StartProbing(now);  // lost meanwhile
  WaitForAll();
  outputs_.push_back(Announce{base_, since_});
  Enter(State::kAnnouncing, now + options_.announce_timeout_ns);
}

void Initiator::OnAcknowledged(NodeId node, ConfigId config, Nanos now) {
  if (config != base_.id || !IsManager()) return;
  if (node == options_.self) adopted_ = config;
  if (state_ != State::kAnnouncing || waiting_.erase(node) == 0) return;
  last_acknowledged_ = now;
  CommitIfPossible(now);
}

Nanos Initiator::EvictedLeaseEnd() const {
  // Whoever has acknowledged grants the old manager nothing any more, and so that has nothing to pass on.
  const Nanos unknown = last_acknowledged_ + base_.lease_ns;
  Nanos end = uncommitted_ ? unknown : std::numeric_limits<Nanos>::min();
  for (const auto& [node, gone] : evicted_) {
    if (!gone) end = std::max(end, new_manager_ ? unknown : options_.lease_end(node));
  }
  return end;
}

// Step 7.
void Initiator::CommitIfPossible(Nanos now) {
  if (!waiting_.empty()) return;
  const Nanos lease_end = EvictedLeaseEnd();
  if (now < lease_end) {
    deadline_ = lease_end;
    return;
  }
  evicted_.clear();
  new_manager_ = false;
  uncommitted_ = false;
  recovering_ = base_.id;
  not_recovered_.clear();
  for (const Member& m : base_.members) not_recovered_.insert(m.id);
  outputs_.push_back(Commit{base_.id});
  Enter(State::kIdle, kNever);
}

void Initiator::OnRecovered(NodeId node, ConfigId config) {
  if (config == ConfigId() || config != recovering_) return;
  not_recovered_.erase(node);
  if (!not_recovered_.empty()) return;
  recovering_ = ConfigId();
  outputs_.push_back(Recovered{config});
}

bool Initiator::OnNewConfiguration(const Configuration& next, Nanos now) {
  if (state_ == State::kStopped) return false;
  if (next.id == adopted_) return true;  // a repetition
  // While this member's own change of it is being stored, that decides.
  const bool superseded = next.id < base_.id || (next.id == base_.id && state_ == State::kSwapping);
  if (superseded || next.manager == options_.self) return false;
  if (next.Find(options_.self) == nullptr) {
    Follow(next, now);
    return false;
  }
  base_ = next;
  adopted_ = next.id;
  uncommitted_ = true;
  suspects_.clear();
  recovering_ = ConfigId();
  Enter(State::kIdle, kNever);
  return true;
}

void Initiator::OnCommitted(ConfigId config) {
  if (config != base_.id || IsManager()) return;
  evicted_.clear();
  new_manager_ = false;
  uncommitted_ = false;
}

void Initiator::Tick(Nanos now) {
  if (now < deadline_) return;
  switch (state_) {
    case State::kAsking:
      if (IsStorage()) return StartProbing(now);
      if (asks_ < kMaxAsks) return AskBackups(now);
      return End(absl::StrCat("node ", base_.manager.value(),
                              ", the configuration manager, is lost, and no storage member has replaced it"));
    case State::kProbing:
      for (NodeId node : std::exchange(waiting_, {})) suspects_.try_emplace(node, false);
      return EndProbingIfAnswered(now);
    case State::kSwapping:
      return uncertain_ ? EmitSwap() : StartProbing(now);
    case State::kCollecting:
    case State::kAnnouncing:
      if (waiting_.empty()) return CommitIfPossible(now);
      for (NodeId node : waiting_) {
        if (node != options_.self) suspects_.try_emplace(node, false);
      }
      return suspects_.empty()
                 ? End(absl::StrCat("node ", options_.self.value(), " could not adopt its own configuration"))
                 : StartProbing(now);
    case State::kFollowing:
      suspects_.try_emplace(base_.manager, false);
      return BeginReplacing(/*asked=*/false, now);
    case State::kIdle:
    case State::kRemapping:
    case State::kStopped:
      return;
  }
}

}  // namespace furrow::cluster
