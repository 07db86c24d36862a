#include "cluster/cluster_clock.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow::cluster {

void ClusterClock::SetMode(Mode mode, uint64_t origin) {
  epoch_.fetch_add(1);
  origin_.store(origin);
  mode_.store(mode);
  epoch_.fetch_add(1);
}

// The knob stays out of the interval's lower end: that too must be above `start`.
uint64_t ClusterClock::OriginFor(Timestamp start) const {
  return start.value() + static_cast<uint64_t>(options_.uncertainty_ns) - static_cast<uint64_t>(LocalNow());
}

void ClusterClock::StartMaster(Timestamp start) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(mode_.load() == Mode::kDisabled);
  SetMode(Mode::kExact, OriginFor(start));
}

void ClusterClock::StartShared(uint64_t origin) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(mode_.load() == Mode::kDisabled);
  SetMode(Mode::kExact, origin);
}

void ClusterClock::StartSampled() {
  FURROW_CHECK(mode_.load() == Mode::kDisabled);
  wants_samples_.store(true);
}

Timestamp ClusterClock::Disable() {
  MutexLock lock(&mutex_);
  const Mode before = mode_.load();
  SetMode(Mode::kDisabled, origin_.load());
  disabled_ = true;
  sampled_ = false;
  wants_samples_.store(false);
  ClockInterval last;
  if (NowIn(before, &last)) fast_forward_ = std::max(fast_forward_, last.upper.Plus(kReorderNs));
  return fast_forward_;
}

Timestamp ClusterClock::FastForward(Timestamp to) {
  MutexLock lock(&mutex_);
  fast_forward_ = std::max(fast_forward_, to);
  return fast_forward_;
}

Timestamp ClusterClock::fast_forward() const {
  MutexLock lock(&mutex_);
  return fast_forward_;
}

void ClusterClock::RestartMaster() {
  MutexLock lock(&mutex_);
  FURROW_CHECK(std::exchange(disabled_, false));
  SetMode(Mode::kExact, OriginFor(fast_forward_.Next()));
}

void ClusterClock::RestartShared(uint64_t origin) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(std::exchange(disabled_, false));
  SetMode(Mode::kExact, origin);
}

void ClusterClock::RestartSampled() {
  MutexLock lock(&mutex_);
  FURROW_CHECK(std::exchange(disabled_, false));
  wants_samples_.store(true);
}

bool ClusterClock::NowIn(Mode mode, ClockInterval* interval) const {
  int64_t lower;
  int64_t upper;
  if (mode == Mode::kExact) {
    lower = upper = static_cast<int64_t>(origin_.load() + static_cast<uint64_t>(LocalNow()));
  } else if (mode == Mode::kSampled) {
    const Lines lines = Load();
    const Nanos now = LocalNow();  // after the lines: the bounds hold from their samples on, not before
    lower = LowerAt(lines, now);
    upper = std::max(lower, UpperAt(lines, now));
  } else {
    return false;
  }
  interval->lower = Timestamp(static_cast<uint64_t>(lower - options_.uncertainty_ns));
  interval->upper = Timestamp(static_cast<uint64_t>(upper + options_.uncertainty_ns));
  return true;
}

bool ClusterClock::Now(ClockInterval* interval) const {
  while (true) {
    const uint64_t epoch = epoch_.load();
    const bool enabled = NowIn(mode_.load(), interval);
    // What Disable() has reported is above what was read before it.
    if (epoch % 2 == 0 && epoch_.load() == epoch) return enabled;
  }
}

absl::Status ClusterClock::AddSample(Nanos send, Timestamp master, Nanos receive) {
  FURROW_CHECK(send <= receive);
  const int64_t cluster = static_cast<int64_t>(master.value());
  MutexLock lock(&mutex_);
  if (disabled_) return absl::OkStatus();
  Lines sample{receive, cluster, send, cluster};
  if (!sampled_) {
    if (master <= fast_forward_ && fast_forward_ != Timestamp()) {
      return absl::FailedPreconditionError(
          "the new configuration manager's clock is behind what this node has seen of cluster time");
    }
    sampled_ = true;
    Store(sample);
    SetMode(Mode::kSampled, origin_.load());
    return absl::OkStatus();
  }
  Lines lines = Load();
  if (LowerAt(lines, receive) > UpperAt(sample, receive) ||
      UpperAt(lines, receive) < LowerAt(sample, receive)) {
    SetMode(Mode::kDisabled, origin_.load());
    return absl::FailedPreconditionError(absl::StrCat(
        "this host's clock and the manager's differ by more than the drift bound of ", options_.drift_ppm,
        " ppm allows: the node cannot take part; check the clock source (/sys/devices/system/clocksource)"));
  }
  if (LowerAt(sample, receive) > LowerAt(lines, receive)) {
    lines.lower_local = sample.lower_local;
    lines.lower_cluster = sample.lower_cluster;
  }
  if (UpperAt(sample, receive) < UpperAt(lines, receive)) {
    lines.upper_local = sample.upper_local;
    lines.upper_cluster = sample.upper_cluster;
  }
  Store(lines);
  return absl::OkStatus();
}

Nanos ClusterClock::Uncertainty() const {
  ClockInterval interval;
  if (!Now(&interval)) return 0;
  return static_cast<Nanos>(interval.upper.value() - interval.lower.value());
}

ClusterClock::Lines ClusterClock::Load() const {
  while (true) {
    const uint64_t before = sequence_.load();
    Lines lines{words_[0].load(), words_[1].load(), words_[2].load(), words_[3].load()};
    if (before % 2 == 0 && sequence_.load() == before) return lines;
  }
}

void ClusterClock::Store(const Lines& lines) {
  const uint64_t sequence = sequence_.load();
  sequence_.store(sequence + 1);
  words_[0].store(lines.lower_local);
  words_[1].store(lines.lower_cluster);
  words_[2].store(lines.upper_local);
  words_[3].store(lines.upper_cluster);
  sequence_.store(sequence + 2);
}

}  // namespace furrow::cluster
