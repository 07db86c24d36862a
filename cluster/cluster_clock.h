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
// When the manager is replaced, cluster time goes on above all that anybody has seen of it (FaRMv2
// section 4.1; clock_failover.h): each member disables its clock and reports how far that has come; the new
// manager takes the greatest of these as the new beginning. Cluster time never goes back, and may jump ahead.
//
//                    StartMaster, StartShared; StartSampled and the first sample
//       disabled ------------------------------------------------------------------> enabled
//          ^  Restart...: the same, at or above fast_forward()                          |
//          +---------------------------- Disable() -----------------------------------+
//
// Thread-safe. Now() takes no lock: one clock read, and a sequence lock over a few words.
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
  bool sampled() const { return wants_samples_.load(std::memory_order_relaxed); }

  // The manager is replaced: from the return on Now() says no, and nothing that it has said, to any thread,
  // is above the timestamp that is returned. Samples are refused, and old ones forgotten. Idempotent.
  Timestamp Disable() ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing below it will be said any more: ADVANCE. It only grows. Returns where it stands.
  Timestamp FastForward(Timestamp to) ABSL_LOCKS_EXCLUDED(mutex_);
  Timestamp fast_forward() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Disabled before. This member is the manager: cluster time goes on at fast_forward(). / It follows the new
  // manager, whose clock it shares, or which it samples.
  void RestartMaster() ABSL_LOCKS_EXCLUDED(mutex_);
  void RestartShared(uint64_t origin) ABSL_LOCKS_EXCLUDED(mutex_);
  void RestartSampled() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sampled mode. Any thread. Ignored while the clock is disabled for a fail-over. FailedPrecondition: the
  // sample contradicts the drift bound, or what was said before a fail-over; the clock is disabled for good,
  // since nothing that it says can be trusted.
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
  // By how much the processor may read the clock before it loads what stands before that in the program.
  static constexpr uint64_t kReorderNs = 1000;
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
  bool NowIn(Mode mode, ClockInterval* interval) const;
  void SetMode(Mode mode, uint64_t origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t OriginFor(Timestamp start) const;

  const Clock& clock_;
  const Options options_;
  std::atomic<bool> wants_samples_{false};  // between Start or Restart and the next
  std::atomic<Mode> mode_{Mode::kDisabled};
  std::atomic<uint64_t> origin_{0};
  // Of mode and origin: it changes with them, so that who has read them before and after a clock read knows
  // that they were in force at that.
  std::atomic<uint64_t> epoch_{0};

  mutable Mutex mutex_;  // writers
  bool sampled_ ABSL_GUARDED_BY(mutex_) = false;
  bool disabled_ ABSL_GUARDED_BY(mutex_) = false;  // by Disable()
  Timestamp fast_forward_ ABSL_GUARDED_BY(mutex_);
  // Odd while the words change. A reader takes the words only if it saw the same even number before and after
  // them; every access is sequentially consistent, since words and sequence are separate.
  std::atomic<uint64_t> sequence_{0};
  std::atomic<int64_t> words_[4] = {};
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CLUSTER_CLOCK_H_
