// MemberLease: the lease that a member has of the configuration manager.
#ifndef FURROW_CLUSTER_MEMBER_LEASE_H_
#define FURROW_CLUSTER_MEMBER_LEASE_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "cluster/cluster_clock.h"
#include "cluster/seams.h"

namespace furrow::cluster {

// Of `ns` that one side may have granted, for how long the other may use it: less twice the drift bound, so
// that it is over first, even if the one's clock is fast and the other's slow by as much as is allowed.
inline Nanos TermOf(Nanos ns, int64_t drift_ppm) { return ns - 2 * (ns / 1'000'000 + 1) * drift_ppm; }

// The lease of this process: valid from its admission until the cluster has ended, it has left or lost its
// connection to the manager, or until its term has passed: on a member since it sent the last request that
// the manager has granted, on the manager by what its members have granted (LeaseBook). So a process that was
// stopped for longer has no lease when it goes on, before anything else of it has noticed. Thread-safe.
class MemberLease final : public Lease {
 public:
  static constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
  // Time is clock.LocalNow(); the clock outlives the lease.
  explicit MemberLease(const ClusterClock& clock) : clock_(clock) {}
  bool valid() const override {
    if (phase_.load(std::memory_order_acquire) != Phase::kGranted) return false;
    const Nanos until = until_.load(std::memory_order_acquire);
    return until == kForever || clock_.LocalNow() < until;
  }
  // Member: the manager has granted `term` in answer to a request that was sent at `sent`. Before Grant(),
  // too; an older answer shortens nothing.
  void Answered(Nanos sent, Nanos term) {
    const Nanos until = sent + TermOf(term, clock_.drift_ppm());
    Nanos now = until_.load(std::memory_order_relaxed);
    while (now < until &&
           !until_.compare_exchange_weak(now, until, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
  // Manager: what LeaseBook::right() says. It may be less than before: when the first other storage member
  // comes. One thread.
  void SetUntil(Nanos until) { until_.store(until, std::memory_order_release); }
  // Once it is over it stays so.
  void Grant() {
    Phase before = Phase::kNotYet;
    phase_.compare_exchange_strong(before, Phase::kGranted, std::memory_order_acq_rel);
  }
  void Expire() { phase_.store(Phase::kOver, std::memory_order_release); }

 private:
  enum class Phase : uint8_t { kNotYet, kGranted, kOver };
  const ClusterClock& clock_;
  std::atomic<Phase> phase_{Phase::kNotYet};
  std::atomic<Nanos> until_{std::numeric_limits<Nanos>::min()};
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_MEMBER_LEASE_H_
