// ClusterClock: cluster time as an interval (FaRMv2 section 4.1). Three modes:
//   master     the manager's: its own clock plus a constant is cluster time
//   shared     a member whose monotonic clock is the manager's (same boot, same time namespace): width 0
//   sampled    any other: from two samples of the manager's clock, with the drift bound
//
// Sampled: a sample is (send, master, receive), the outer two on the local clock T.
//   lower(T) = max over samples of master + (T - receive)(1 - drift)
//   upper(T) = min over samples of master + (T - send)(1 + drift)
// Only the sample with the best lower line and the one with the best upper line are kept. A new line replaces
// the old one only if it is better from now on, and all have the same slope, so `lower` never decreases.
//
// Thread-safe. Now() takes no lock: one clock read, and in sampled mode a sequence lock over four words.
#ifndef FURROW_CLUSTER_CLUSTER_CLOCK_H_
#define FURROW_CLUSTER_CLUSTER_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "cluster/seams.h"

namespace furrow::cluster {

class ClusterClock final : public TimestampSource {
 public:
  struct Options {
    Nanos offset_ns = 0;       // test knob: the local clock is off by this much
    Nanos uncertainty_ns = 0;  // test knob: every interval is wider by this much on either side
    int64_t drift_ppm = 1000;
  };
  // `clock` outlives this. Disabled until one of the Start functions is called.
  ClusterClock(const Clock& clock, Options options) : clock_(clock), options_(options) {}

  // The local clock, with the knob: what samples are taken with.
  Nanos LocalNow() const { return clock_.Now() + options_.offset_ns; }
  // By how much any clock of the cluster may be fast or slow.
  int64_t drift_ppm() const { return options_.drift_ppm; }

  // Once, one of them. Master: cluster time starts at `start`, which is above every timestamp found in memory
  // or on disk.
  void StartMaster(Timestamp start);
  // Shared: `origin` is the master's origin().
  void StartShared(uint64_t origin);
  void StartSampled();
  bool sampled() const { return wants_samples_; }

  // Sampled mode. Any thread. FailedPrecondition: the sample contradicts the drift bound; the clock is
  // disabled for good, since nothing that it says can be trusted.
  absl::Status AddSample(Nanos send, Timestamp master, Nanos receive) ABSL_LOCKS_EXCLUDED(mutex_);

  bool Now(ClockInterval* interval) const override;
  // Master and shared: cluster time minus local clock.
  uint64_t origin() const { return origin_.load(std::memory_order_relaxed); }
  // Master: the time that it hands out to those who sample it.
  Timestamp MasterNow() const { return Timestamp(origin() + static_cast<uint64_t>(LocalNow())); }
  // Sampled: width of the interval now; 0 in the other modes (without the knob).
  Nanos Uncertainty() const;

 private:
  enum class Mode : uint8_t { kDisabled, kExact, kSampled };
  // A line through (local, cluster).
  struct Lines {
    int64_t lower_local = 0;
    int64_t lower_cluster = 0;
    int64_t upper_local = 0;
    int64_t upper_cluster = 0;
  };
  int64_t LowerAt(const Lines& lines, int64_t t) const {
    int64_t d = t - lines.lower_local;
    return lines.lower_cluster + d - d / 1'000'000 * options_.drift_ppm -
           d % 1'000'000 * options_.drift_ppm / 1'000'000;
  }
  int64_t UpperAt(const Lines& lines, int64_t t) const {
    int64_t d = t - lines.upper_local;
    return lines.upper_cluster + d + d / 1'000'000 * options_.drift_ppm +
           d % 1'000'000 * options_.drift_ppm / 1'000'000;
  }
  Lines Load() const;
  void Store(const Lines& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const Options options_;
  bool wants_samples_ = false;  // constant after Start
  std::atomic<Mode> mode_{Mode::kDisabled};
  std::atomic<uint64_t> origin_{0};

  Mutex mutex_;  // writers of the lines
  bool sampled_ ABSL_GUARDED_BY(mutex_) = false;
  // Odd while the words change. A reader takes the words only if it saw the same even number before and after
  // them; every access is sequentially consistent, since words and sequence are separate.
  std::atomic<uint64_t> sequence_{0};
  std::atomic<int64_t> words_[4] = {};
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CLUSTER_CLOCK_H_
