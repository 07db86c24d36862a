// ReplicaRecovery: what a worker does as replica of regions for transactions that recover: as backup it says
// what it has seen, as primary it recovers locks, replicates records and votes (SOSP'15 section 5.3, steps 3
// to 6), as either it takes decisions and truncation. It serves the coordinator threads whose rings end here.
//
// A transaction and a region at the primary:
//
//   known (own record, or a backup's NEED-RECOVERY) --no record here--> fetching
//     --> new primary: locked; with the last one of the region: REGION-ACTIVE
//     --> replicating to backups without a record --all have it--> voted
//
// What was seen of a transaction stays across configurations; how far its recovery is does not.
// Owner thread only.
#ifndef FURROW_TXN_RECOVERY_REPLICA_H_
#define FURROW_TXN_RECOVERY_REPLICA_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "cluster/view.h"
#include "txn/participant.h"
#include "txn/recovery/records.h"

namespace furrow::txn {

class Worker;
class RecoveryPost;

class ReplicaRecovery {
 public:
  // `locked`: this worker has recovered all locks of a region that becomes active with the configuration.
  ReplicaRecovery(Worker& worker, RecoveryPost& post, std::function<void(RegionId)> locked);
  ~ReplicaRecovery();

  // A new configuration: recovery begins again.
  void Reset();
  // The rings are drained: what recovers here. Tells the primaries.
  void Begin(std::span<const Participant::Recovering> found);
  // All members have told what they have seen.
  void Ready();
  // No transaction recovers here (any more).
  bool empty() const { return transactions_.empty(); }
  // "2 transactions recover (c1.n2.w0.l7, ...)".
  std::string Describe() const;

  void OnNeedRecovery(NodeId from, std::span<const RecoveryItem> items);
  void OnFetch(NodeId from, const RecoveryItem& item);
  void OnState(const RecoveryItem& item);
  void OnReplicate(NodeId from, RecoveryItem item);
  void OnReplicated(const RecoveryItem& item);
  void OnRequestVote(const RecoveryItem& item);
  void OnDecision(NodeId from, const RecoveryItem& item);
  void OnTruncate(NodeId from, const RecoveryItem& item);

 private:
  enum class Step : uint8_t { kNone, kFetching, kReplicating, kVoted };
  // A transaction in one region of which this node is a replica.
  struct Share {
    RegionId region;
    uint8_t seen = 0;                     // here
    Timestamp w{};                        // once it is known
    std::span<const std::byte> record{};  // in a ring, or `copy`
    std::vector<std::byte> copy{};
    bool counted = false;    // as a writer of the objects' blocks
    bool truncated = false;  // nothing is left to do here
    // At the primary, in this configuration.
    Step step = Step::kNone;
    uint8_t region_seen = 0;  // by any replica
    Timestamp region_w{};
    std::vector<NodeId> holders{};  // backups that have a record
    size_t lacking = 0;             // REPLICATEs that are not acknowledged
    bool awaits_locks = false;      // the region waits for it to become active
  };
  struct Known {
    TxId id;
    std::vector<RegionId> regions;  // all that it writes
    std::vector<Share> shares;
  };

  Known& Enter(const TxId& id, std::span<const RegionId> regions);
  Share& ShareOf(Known& known, RegionId region);
  Share* Find(const RecoveryItem& item, Known** known);
  void TakeRecord(Known& known, std::span<const std::byte> record, const Participant::Recovering& found,
                  bool lock);
  // Calls fn(entry, payload) for each object of the share.
  template <class Fn>
  bool ForEachObject(const Share& share, Fn fn) const;
  bool IsPrimary(RegionId region) const;
  void SayWhatWasSeen();
  void StartPrimary(Known& known, Share& share);
  void Advance(Known& known, Share& share);
  void RecoverLocks(const Known& known, Share& share);
  void LocksAreRecovered(Share& share);
  void Replicate(Known& known, Share& share);
  void Cast(const TxId& id, std::span<const RegionId> regions, RegionId region, Vote vote, Timestamp w);
  void Fetch(const Known& known, Share& share);
  void Unlock(const Known& known, const Share& share);
  void EndShare(Known& known, Share& share);
  bool Truncated(const TxId& id);
  void Answer(NodeId to, const RecoveryItem& item, RecoveryType type);

  Worker& worker_;
  RecoveryPost& post_;
  const std::function<void(RegionId)> locked_;
  bool ready_ = false;
  // In order, so that a simulated run is the same each time.
  std::map<TxId, std::unique_ptr<Known>> transactions_;
  // Regions that become active here, and how many transactions have yet to lock.
  std::map<RegionId, size_t> awaiting_;
  std::vector<RecoveryItem> requested_;  // REQUEST-VOTEs that came before Ready()
  // Transactions that recovery has committed and truncated here; the oldest are forgotten.
  static constexpr size_t kMaxRemembered = 65536;
  absl::flat_hash_map<TxId, bool> remembered_;  // committed?
  std::deque<TxId> remembered_order_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_REPLICA_H_
