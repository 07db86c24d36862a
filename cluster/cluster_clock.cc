#include "cluster/cluster_clock.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow::cluster {

void ClusterClock::StartMaster(Timestamp start) {
  FURROW_CHECK(mode_.load(std::memory_order_relaxed) == Mode::kDisabled);
  // The knob stays out of the interval's lower end: that too must be above `start`.
  origin_.store(
      start.value() + static_cast<uint64_t>(options_.uncertainty_ns) - static_cast<uint64_t>(LocalNow()),
      std::memory_order_relaxed);
  mode_.store(Mode::kExact, std::memory_order_release);
}

void ClusterClock::StartShared(uint64_t origin) {
  FURROW_CHECK(mode_.load(std::memory_order_relaxed) == Mode::kDisabled);
  origin_.store(origin, std::memory_order_relaxed);
  mode_.store(Mode::kExact, std::memory_order_release);
}

void ClusterClock::StartSampled() {
  FURROW_CHECK(mode_.load(std::memory_order_relaxed) == Mode::kDisabled);
  wants_samples_ = true;
}

bool ClusterClock::Now(ClockInterval* interval) const {
  const Mode mode = mode_.load(std::memory_order_acquire);
  int64_t lower;
  int64_t upper;
  if (mode == Mode::kExact) {
    lower = upper =
        static_cast<int64_t>(origin_.load(std::memory_order_relaxed) + static_cast<uint64_t>(LocalNow()));
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

absl::Status ClusterClock::AddSample(Nanos send, Timestamp master, Nanos receive) {
  FURROW_CHECK(send <= receive);
  const int64_t cluster = static_cast<int64_t>(master.value());
  MutexLock lock(&mutex_);
  Lines sample{receive, cluster, send, cluster};
  if (!sampled_) {
    sampled_ = true;
    Store(sample);
    mode_.store(Mode::kSampled, std::memory_order_release);
    return absl::OkStatus();
  }
  Lines lines = Load();
  if (LowerAt(lines, receive) > UpperAt(sample, receive) ||
      UpperAt(lines, receive) < LowerAt(sample, receive)) {
    mode_.store(Mode::kDisabled, std::memory_order_release);
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
