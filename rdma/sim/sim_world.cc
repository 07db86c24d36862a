#include "rdma/sim/sim_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace furrow::rdma {

namespace {

// Kinds of steps in the digest; callers of At() have 0 to 0xef.
constexpr uint64_t kLoopStep = 0xf0;
constexpr uint8_t kSegmentKind = 0xf1;
constexpr uint64_t kFateStep = 0xf2;

}  // namespace

// A host's clock; shared by all lives of the node's process.
struct SimProcess::NodeClock final : public Clock {
  NodeClock(SimWorld& w, NodeId id, DriftingTime t) : world(w), node(id), time(t) {}
  Nanos Now() const override {
    world.OnClockRead(world.options_.clock_read_ns);
    return time.LocalAt(world.now_);
  }
  SimWorld& world;
  const NodeId node;
  DriftingTime time;
};

struct SimWorld::TrueClock final : public Clock {
  explicit TrueClock(SimWorld& w) : world(w) {}
  Nanos Now() const override {
    world.OnClockRead(1);
    return world.now_;
  }
  SimWorld& world;
};

// --- processes and parkers ---

SimProcess::SimProcess(SimWorld& world, NodeId node, uint32_t serial, NodeClock& clock)
    : world_(world), node_(node), serial_(serial), clock_(clock) {}

SimProcess::~SimProcess() = default;

const Clock& SimProcess::clock() const { return clock_; }

SimParker& SimProcess::NewParker() {
  parkers_.push_back(std::make_unique<SimParker>(*this));
  return *parkers_.back();
}

void SimProcess::Attach(EventLoop& loop, Parker& parker) {
  for (auto& known : parkers_) {
    if (known.get() != &parker) continue;
    FURROW_CHECK(known->loop_ == nullptr);
    known->loop_ = &loop;
    known->index_ = world_.next_loop_index_++;
    known->poked_ = true;
    known->busy_until_ = world_.now_;
    world_.loops_.push_back(known.get());
    world_.UpdateNextRun(*known);
    return;
  }
  FURROW_CHECK(false && "the parker was not made by this process");
}

void SimProcess::Detach(EventLoop& loop) {
  std::erase_if(world_.loops_, [&](SimParker* parker) {
    if (parker->loop_ != &loop) return false;
    parker->loop_ = nullptr;
    return true;
  });
  world_.earliest_known_ = false;
}

void SimParker::Wake() {
  poked_ = true;
  process_.world_.UpdateNextRun(*this);
}

void SimParker::ArrivedQuietly() {
  if (process_.world_.now_ <= spins_until_) Wake();
}

// --- the world ---

SimWorld::SimWorld(uint64_t seed, SimWorldOptions options)
    : seed_(seed),
      options_(options),
      random_(seed),
      schedule_random_(random_.Fork()),
      entropy_(random_.Fork()),
      outer_entropy_(SetEntropySource(&entropy_)),
      now_(options.start),
      digest_(seed),
      true_clock_(std::make_unique<TrueClock>(*this)) {
  FURROW_CHECK(options.step_min > 0 && options.step_max >= options.step_min && options.spin_max >= 0);
}

SimWorld::~SimWorld() { SetEntropySource(outer_entropy_); }

const Clock& SimWorld::true_clock() const { return *true_clock_; }

std::string SimWorld::Where() const {
  return absl::StrFormat("seed %d at virtual time %d.%09d s", seed_, now_ / kSecond, now_ % kSecond);
}

SimProcess& SimWorld::StartProcess(NodeId node) {
  SimProcess::NodeClock* clock = nullptr;
  for (auto& known : clocks_) {
    if (known->node == node) clock = known.get();
  }
  if (clock == nullptr) {
    clocks_.push_back(std::make_unique<SimProcess::NodeClock>(
        *this, node, DriftingTime(now_, options_.clocks, random_.Fork())));
    clock = clocks_.back().get();
    StartSegment(*clock);
  }
  for (auto& process : processes_) FURROW_CHECK(process->node() != node || process->dead());
  processes_.push_back(std::unique_ptr<SimProcess>(
      new SimProcess(*this, node, static_cast<uint32_t>(processes_.size()), *clock)));
  return *processes_.back();
}

void SimWorld::StartSegment(SimProcess::NodeClock& clock) {
  Nanos end = clock.time.NextSegment(now_);
  UpdateAll();  // timers are due at other true times now
  At(end, [this, &clock] { StartSegment(clock); }, kSegmentKind, clock.node.value());
}

void SimWorld::Kill(SimProcess& process) {
  if (process.dead()) return;
  process.state_ = SimProcess::State::kDead;
  Record(kFateStep << 32 | process.serial() << 2);
  for (SimProcessObserver* observer : observers_) observer->OnKilled(process);
  UpdateAll();
}

void SimWorld::Pause(SimProcess& process) {
  if (process.state_ != SimProcess::State::kRunning) return;
  process.state_ = SimProcess::State::kPaused;
  Record(kFateStep << 32 | process.serial() << 2 | 1);
  for (SimProcessObserver* observer : observers_) observer->OnPaused(process);
  UpdateAll();
}

void SimWorld::Resume(SimProcess& process) {
  if (process.state_ != SimProcess::State::kPaused) return;
  process.state_ = SimProcess::State::kRunning;
  Record(kFateStep << 32 | process.serial() << 2 | 2);
  for (SimProcessObserver* observer : observers_) observer->OnResumed(process);
  UpdateAll();
}

void SimWorld::RemoveObserver(SimProcessObserver* observer) { std::erase(observers_, observer); }

void SimWorld::OnStorePoint() {
  if (running_ != nullptr) now_ += options_.store_ns;
  for (SimProcessObserver* observer : observers_) observer->OnStorePointOf(running_);
}

// --- events ---

void SimWorld::At(Nanos when, std::function<void()> fn, uint8_t kind, uint32_t process) {
  uint32_t slot;
  if (free_events_.empty()) {
    slot = static_cast<uint32_t>(events_.size());
    events_.emplace_back();
  } else {
    slot = free_events_.back();
    free_events_.pop_back();
  }
  events_[slot] = {std::move(fn), kind, process};
  heap_.push_back({std::max(when, now_), schedule_random_.Next(), slot});
  std::push_heap(heap_.begin(), heap_.end(), [](const EventKey& a, const EventKey& b) {
    return std::pair(a.when, a.tie) > std::pair(b.when, b.tie);
  });
}

void SimWorld::RunEvent() {
  std::pop_heap(heap_.begin(), heap_.end(), [](const EventKey& a, const EventKey& b) {
    return std::pair(a.when, a.tie) > std::pair(b.when, b.tie);
  });
  uint32_t slot = heap_.back().slot;
  heap_.pop_back();
  EventBody event = std::exchange(events_[slot], {});
  free_events_.push_back(slot);
  Record(static_cast<uint64_t>(now_));
  Record(uint64_t{event.kind} << 32 | event.process);
  event.fn();
  if (event.kind < kFirstInternalKind) UpdateAll();
}

// --- loops ---

void SimWorld::UpdateNextRun(SimParker& parker) {
  earliest_known_ = false;
  if (parker.loop_ == nullptr || parker.process_.state_ != SimProcess::State::kRunning) {
    parker.next_run_ = kNever;
  } else if (parker.poked_ || parker.loop_->HasReady()) {
    parker.next_run_ = parker.busy_until_;
  } else {
    parker.next_run_ =
        std::max(parker.busy_until_, parker.process_.clock_.time.TrueAt(parker.loop_->NextDeadline()));
  }
}

void SimWorld::UpdateAll() {
  for (SimParker* parker : loops_) UpdateNextRun(*parker);
}

Nanos SimWorld::EarliestLoop() {
  if (!earliest_known_) {
    earliest_loop_ = kNever;
    for (const SimParker* parker : loops_) earliest_loop_ = std::min(earliest_loop_, parker->next_run_);
    earliest_known_ = true;
  }
  return earliest_loop_;
}

void SimWorld::RunLoop() {
  SimParker* chosen = nullptr;
  uint64_t due = 0;
  for (SimParker* parker : loops_) {
    if (parker->next_run_ <= now_ && schedule_random_.Below(++due) == 0) chosen = parker;
  }
  SimParker& parker = *chosen;
  Record(static_cast<uint64_t>(now_));
  Record(kLoopStep << 32 | parker.index_);
  parker.poked_ = false;
  running_ = &parker.process_;
  bool worked = parker.loop_->RunOnce();
  running_ = nullptr;
  Nanos cost = schedule_random_.Between(options_.step_min, options_.step_max);
  if (options_.preempt_one_in != 0 && schedule_random_.OneIn(options_.preempt_one_in)) {
    cost += schedule_random_.Between(0, options_.preempt_max);
  }
  parker.busy_until_ = now_ + cost;
  if (worked) {
    parker.poked_ = true;
    parker.spins_until_ = parker.busy_until_ + schedule_random_.Between(0, options_.spin_max);
  }
  UpdateNextRun(parker);
}

bool SimWorld::Step(Nanos limit) {
  Nanos loop = EarliestLoop();
  Nanos event = heap_.empty() ? kNever : heap_.front().when;
  Nanos next = std::min(loop, event);
  if (next > limit || next == kNever) return false;
  now_ = std::max(now_, next);
  bool loop_due = loop <= now_;
  bool event_due = event <= now_;
  if (event_due && (!loop_due || schedule_random_.OneIn(2))) {
    RunEvent();
  } else {
    RunLoop();
  }
  ++steps_;
  return true;
}

absl::Status SimWorld::RunUntil(const std::function<bool()>& done, Nanos limit) {
  StoreObserver* previous = SetStoreObserver(this);
  UpdateAll();  // code outside steps may have given the loops work
  uint64_t last_step = steps_ + options_.max_steps;
  absl::Status status;
  while (!done()) {
    if (steps_ == last_step) {
      status = absl::ResourceExhaustedError(absl::StrCat("simulation took ", options_.max_steps,
                                                         " steps without coming to an end: a livelock? (",
                                                         Where(), ")"));
      break;
    }
    if (Step(limit)) continue;
    bool nothing_left = limit == kNever;
    if (!nothing_left) now_ = std::max(now_, limit);
    status =
        nothing_left
            ? absl::FailedPreconditionError(absl::StrCat("nothing is left that could happen (", Where(), ")"))
            : absl::DeadlineExceededError(absl::StrCat("not done at the time limit (", Where(), ")"));
    break;
  }
  SetStoreObserver(previous);
  return status;
}

absl::Status SimWorld::RunFor(Nanos ns) {
  absl::Status status = RunUntil([] { return false; }, now_ + ns);
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
}

}  // namespace furrow::rdma
