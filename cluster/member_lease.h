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

// The lease of a member: valid from its admission until the cluster has ended, it has left or lost its
// connection to the manager, or, except on the manager itself, until its term has passed since it sent the
// last beat that the manager has answered. The term is a lease less twice the drift bound: the manager counts
// another member as lost no earlier, even if its clock is fast and this one slow by as much as is allowed. So
// a process that was stopped for longer has no lease when it goes on, before anything else of it has noticed.
// Thread-safe.
class MemberLease final : public Lease {
 public:
  // Time is clock.LocalNow(); the clock outlives the lease.
  explicit MemberLease(const ClusterClock& clock) : clock_(clock) {}
  bool valid() const override {
    if (phase_.load(std::memory_order_acquire) != Phase::kGranted) return false;
    const Nanos until = until_.load(std::memory_order_acquire);
    return until == kForever || clock_.LocalNow() < until;
  }
  // Of `lease_ns` that a member may be silent, how long its own lease runs.
  Nanos TermOf(Nanos lease_ns) const {
    return lease_ns - 2 * (lease_ns / 1'000'000 + 1) * clock_.drift_ppm();
  }
  // The manager has answered a beat that was sent at `sent`. Before the grant, too; an older answer shortens
  // nothing.
  void Answered(Nanos sent, Nanos lease_ns) {
    const Nanos until = sent + TermOf(lease_ns);
    Nanos now = until_.load(std::memory_order_relaxed);
    while (now < until &&
           !until_.compare_exchange_weak(now, until, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
  // Once it is over it stays so.
  void Grant() {
    Phase before = Phase::kNotYet;
    phase_.compare_exchange_strong(before, Phase::kGranted, std::memory_order_acq_rel);
  }
  void GrantForever() {
    until_.store(kForever, std::memory_order_release);
    Grant();
  }
  void Expire() { phase_.store(Phase::kOver, std::memory_order_release); }

 private:
  enum class Phase : uint8_t { kNotYet, kGranted, kOver };
  static constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
  const ClusterClock& clock_;
  std::atomic<Phase> phase_{Phase::kNotYet};
  std::atomic<Nanos> until_{std::numeric_limits<Nanos>::min()};
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_MEMBER_LEASE_H_
