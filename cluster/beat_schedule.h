// BeatSchedule: how often a member reports to the manager: every `fast` while anybody in the cluster has
// transactions open, and ever more rarely, down to every `slow`, while nobody has: an idle cluster uses next
// to no CPU. The last reports of a busy period are fast ones, so that its old versions are collected soon
// after it. Not thread-safe.
#ifndef FURROW_CLUSTER_BEAT_SCHEDULE_H_
#define FURROW_CLUSTER_BEAT_SCHEDULE_H_

#include <algorithm>

#include "base/clock.h"

namespace furrow::cluster {

class BeatSchedule {
 public:
  struct Options {
    Nanos fast_ns = 10 * kMillisecond;
    Nanos slow_ns = kSecond;
    int extra_fast =
        4;  // reports at the fast rate after the last sign of activity: both rounds are done then
  };
  BeatSchedule() = default;
  explicit BeatSchedule(Options options) : options_(options) {}

  // The time until the next report, given whether anybody was active when this one was made.
  Nanos Next(bool active) {
    if (active) {
      idle_ = 0;
      period_ = options_.fast_ns;
    } else if (++idle_ > options_.extra_fast) {
      period_ = std::min(period_ * 2, options_.slow_ns);
    }
    return period_;
  }
  bool fast() const { return period_ == options_.fast_ns; }

 private:
  Options options_{};
  Nanos period_ = options_.fast_ns;
  int idle_ = 0;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_BEAT_SCHEDULE_H_
