// The interfaces through which transactions see the cluster. Real implementations stand in this folder; the
// static view and the simulator bring their own.
#ifndef FURROW_CLUSTER_SEAMS_H_
#define FURROW_CLUSTER_SEAMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/task.h"
#include "cluster/view.h"

namespace furrow::cluster {

// True cluster time lies in [lower, upper] at some moment of the call (FaRMv2 section 4.1).
struct ClockInterval {
  Timestamp lower;
  Timestamp upper;
};

class TimestampSource {
 public:
  virtual ~TimestampSource() = default;
  // Any thread. `lower` never decreases on one thread. FailedPrecondition is impossible: a clock that is
  // disabled (failover) returns ok = false, and the caller waits.
  virtual bool Now(ClockInterval* interval) const = 0;
};

// The right to serve and report, granted by the configuration manager for a time.
class Lease {
 public:
  virtual ~Lease() = default;
  // Any thread. False: serve no read, report no outcome.
  virtual bool valid() const = 0;
};

// Oldest active transactions and what may be collected (FaRMv2 section 4.4: two rounds). Worker threads
// publish, the cluster exchanges, storage collects. Thread-safe.
class SafePoint {
 public:
  explicit SafePoint(size_t workers) : oldest_(workers) {
    for (auto& o : oldest_) o.value.store(Timestamp::kMaxValue, std::memory_order_relaxed);
  }
  virtual ~SafePoint() = default;

  // The smallest read timestamp of the worker's open transactions; Max when it has none. Published before the
  // first read of a transaction at that timestamp.
  void PublishOldestActive(WorkerId worker, Timestamp oldest) {
    oldest_[worker.value()].value.store(oldest.value(), std::memory_order_seq_cst);
  }
  // min(workers, `lower`): what this member reports, where `lower` was read from the clock before the call.
  Timestamp OldestActive(Timestamp lower) const;

  // The smallest timestamp at which a transaction may still start to read anywhere; older stale snapshots are
  // refused.
  Timestamp oldest_allowed() const { return Timestamp(global_oldest_.load(std::memory_order_acquire)); }
  // Old versions whose replacing write is older than this have no reader.
  Timestamp safe_point() const { return Timestamp(safe_point_.load(std::memory_order_acquire)); }

  // By the exchange: both only grow.
  void Advance(Timestamp global_oldest, Timestamp safe_point);

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> value;
  };
  std::vector<Slot> oldest_;
  std::atomic<uint64_t> global_oldest_{0};
  std::atomic<uint64_t> safe_point_{0};
};

struct AllocateRegionRequest {
  RegionId near{};          // join this region's locality group; 0: a new group
  RegionId newest_known{};  // the newest region of the group that the caller knows: if there is a newer, that
                            // one is returned
  NodeId preferred_primary{};  // for a new group; 0: by balance
  // For a group that runs low, not for somebody who waits: refused with ResourceExhausted while a member that
  // would hold it is close to its limit.
  bool ahead = false;
  // Of the caller, by its loop's clock: DeadlineExceeded soon after it. 0: the control plane's own alone.
  Nanos deadline{};
  // For a new group: names it among all that were ever asked for, so that a request that is repeated, since
  // its answer was lost or its sender ended, gets the first one's region. 0: no name; a repetition gets
  // another.
  uint64_t name{};
};

// What only the configuration manager can do, for coroutines on a worker.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  // ResourceExhausted: no storage member has room. The mapping is in the directory when it returns.
  virtual Task<absl::StatusOr<const RegionMapping*>> AllocateRegion(AllocateRegionRequest request) = 0;
  // Asks, also for what the directory knows: that may be out of date. NotFound: there is no such region.
  virtual Task<absl::StatusOr<const RegionMapping*>> LookupRegion(RegionId id) = 0;
};

// NEW-CONFIG as transactions see it (SOSP'15 section 5.2, step 5).
struct Reconfiguration {
  std::shared_ptr<const ClusterView> view;
  // The new mapping of every region whose replicas have changed with it; not `active` where its primary has.
  std::vector<RegionMapping> regions{};
};

// Implemented by txn/recovery: told of each change of configuration. Any thread, in the order of the
// configurations; does not block. A newer configuration ends what is under way for an older one: its
// callbacks are dropped.
class ReconfigurationListener {
 public:
  virtual ~ReconfigurationListener() = default;
  // `adopted` is called once, on any thread, when no worker posts anything to a member that is not in the
  // view any more, or takes an answer of one for its transactions, and such members cannot write here: the
  // time to acknowledge NEW-CONFIG.
  virtual void OnNewConfiguration(Reconfiguration change, std::function<void()> adopted) = 0;
  // NEW-CONFIG-COMMIT: recovery of transactions begins. `recovered` is called once, on any thread, when no
  // transaction recovers here any more: the time to tell the manager so (RECOVERED).
  virtual void OnConfigurationCommitted(ConfigId config, std::function<void()> recovered) = 0;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_SEAMS_H_
