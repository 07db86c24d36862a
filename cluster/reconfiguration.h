// Initiator: a member's part in deciding that the configuration must change, and in carrying the change
// through when it falls to this member (SOSP'15 section 5.2, steps 1 to 7). A plain state machine: input in,
// outputs out; it sends nothing, waits for nothing and knows no clock. What the messages carry is the
// caller's business, as are the regions (RegionTable) and the leases (LeaseBook).
//
//                    the manager suspects a member          another member suspects the manager
//                  +----------------- idle -------------------------+
//                  |                  ^ |                           v
//                  |                  | | asked by another       asking --- NEW-CONFIG ---> idle
//                  v                  | v                           | timeout; at once: its first successor
//   +---------> probing <------------------------------------------ +
//   |              | every member has answered or is suspected
//   |              +--- fewer than half of the storage members are there -----------------> stopped
//   |              v
//   |           swapping --- another has won ---> following --- NEW-CONFIG ---> idle
//   |              | won                              | timeout: the winner is suspected --> asking
//   |              v
//   +--------- collecting   (a new manager only)
//   |              v
//   |          remapping --- a region has no copy left ------------------------------------> stopped
//   |              v
//   +--------- announcing --- all have acknowledged, no evicted member can have a lease: COMMIT ---> idle
//    a member is lost
//
// Invariants:
//  (1) A configuration is announced only by the member whose compare-and-swap has stored it; one swap of it
//  is
//      repeated, never another with the same id, until its result is known.
//  (2) It is committed only when each of its members has adopted it, and when no member of an earlier
//      configuration that is not in it can still have a lease.
//  (3) Whoever reaches fewer than half of the storage members stops, and never answers.
//  (4) Each change removes a member or is the last: so changes end.
// Not thread-safe.
#ifndef FURROW_CLUSTER_RECONFIGURATION_H_
#define FURROW_CLUSTER_RECONFIGURATION_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cluster/configuration.h"

namespace furrow::cluster {

class Initiator {
 public:
  struct Options {
    NodeId self;
    Nanos probe_timeout_ns = kSecond;  // a member that has not answered PROBE is suspected, too
    Nanos ask_timeout_ns = kSecond;    // for the backup managers to begin, before this member does itself
    Nanos swap_retry_ns = kSecond;     // between two attempts at a store that does not answer
    Nanos announce_timeout_ns = 20 * kSecond;  // for a member to adopt a configuration
    Nanos follow_timeout_ns = kSecond;         // for NEW-CONFIG of one that has won
    uint32_t backup_managers = 2;  // the k storage members that follow the manager, by id, in a ring
    // The manager's: the time by which every lease that it has granted to this member is over. It grants none
    // to a member from Remap without it on.
    std::function<Nanos(NodeId)> lease_end;
  };
  enum class State {
    kIdle,
    kAsking,
    kProbing,
    kSwapping,
    kCollecting,
    kRemapping,
    kAnnouncing,
    kFollowing,
    kStopped
  };

  // --- outputs ---
  struct Ask {  // of backup managers: replace the manager
    std::vector<NodeId> nodes;
    NodeId suspect;
  };
  struct Probe {  // its answers name this round
    uint64_t round = 0;
    std::vector<NodeId> nodes;
  };
  struct Swap {  // in the store, where a configuration with the id before must be
    Configuration next;
  };
  // Of a new manager, to every member, this one too: what do you know of regions? From its answer on a member
  // refuses what belongs to an earlier configuration: an old manager must not allocate behind this one's
  // back.
  struct Collect {
    Configuration next;
  };
  struct Remap {  // RegionTable: of a new manager first Collect() in a new table, from the answers
    Configuration next;
    bool collected = false;
  };
  struct Announce {  // NEW-CONFIG to every member, this one too, with the mappings of configurations above
                     // `since`
    Configuration next;
    ConfigId since;
  };
  struct Commit {  // NEW-CONFIG-COMMIT to every member
    ConfigId config;
  };
  struct Recovered {  // no member has transactions that recover: new backups may become complete
    ConfigId config;
  };
  struct Stop {  // this member's part is over: it has no lease, serves nothing and answers nothing
    std::string why;
  };
  using Output = std::variant<Ask, Probe, Swap, Collect, Remap, Announce, Commit, Recovered, Stop>;

  // `adopted`: the configuration that this member is in.
  Initiator(Options options, const Configuration& adopted);

  // A lease has ended, a connection has broken, a message was not answered. `gone`: the member is known to
  // have no lease any more (its process has ended, and the fabric proves it). Ignored on a member other than
  // the manager for anybody but the manager: that finds out itself.
  void Suspect(NodeId node, bool gone, Nanos now);
  // Another member asks this one to replace the manager of configuration `config`.
  void OnAsked(NodeId suspect, ConfigId config, Nanos now);
  // `adopted`: the configuration that the member is in.
  void OnProbed(NodeId node, uint64_t round, ConfigId adopted, Nanos now);
  void OnProbeFailed(NodeId node, uint64_t round, bool gone, Nanos now);
  // The result of the swap. OK: stored. Aborted: `stored` is there instead. Others: tried again.
  void OnSwapped(const absl::Status& result, const Configuration* stored, Nanos now);
  void OnCollected(NodeId node, ConfigId config, Nanos now);
  // The regions have their new mappings; or the error says which cannot.
  void OnRemapped(ConfigId config, const absl::Status& result, Nanos now);
  // A member, perhaps this one, has adopted the configuration.
  void OnAcknowledged(NodeId node, ConfigId config, Nanos now);
  // A member has no transaction any more that recovers in the configuration.
  void OnRecovered(NodeId node, ConfigId config);
  // NEW-CONFIG has come from another member, read from no store. False: refuse it, since this member knows a
  // newer one. / NEW-CONFIG-COMMIT of it.
  bool OnNewConfiguration(const Configuration& next, Nanos now);
  void OnCommitted(ConfigId config);
  // The time has come to `now`: at the latest at NextDeadline().
  void Tick(Nanos now);
  Nanos NextDeadline() const { return deadline_; }

  // What is to be done, in this order. Empties the list.
  std::vector<Output> TakeOutputs() { return std::exchange(outputs_, {}); }
  State state() const { return state_; }
  // The newest that this member knows to be stored.
  const Configuration& configuration() const { return base_; }

 private:
  bool IsManager() const { return base_.manager == options_.self; }
  bool IsStorage() const;
  // The storage members after the manager, by id, in a ring; without those that are suspected.
  std::vector<NodeId> Successors() const;
  void Enter(State state, Nanos deadline);
  void BeginReplacing(bool asked, Nanos now);
  void AskBackups(Nanos now);
  void StartProbing(Nanos now);
  void EndProbingIfAnswered(Nanos now);
  void EmitSwap();
  void Won(Nanos now);
  void WaitForAll();
  void Follow(const Configuration& stored, Nanos now);
  void CommitIfPossible(Nanos now);
  void End(std::string why);
  // The time by which no member that this change, or one before it that was not committed, has evicted can
  // have a lease.
  Nanos EvictedLeaseEnd() const;

  const Options options_;
  State state_ = State::kIdle;
  Nanos deadline_ = kNever;
  std::vector<Output> outputs_;

  Configuration base_;               // the newest that is known to be stored
  ConfigId adopted_;                 // that this member is in
  std::map<NodeId, bool> suspects_;  // of base_'s members; true: gone
  int asks_ = 0;

  // While probing, and until the announcement.
  uint64_t round_ = 0;
  std::set<NodeId> waiting_;   // for answers, or acknowledgements
  std::set<NodeId> answered_;  // PROBE
  ConfigId since_;             // the oldest configuration that a member is in
  // While swapping.
  Configuration next_;
  bool uncertain_ = false;  // a swap of next_ may have happened, or may yet

  // From a change's swap until a commit.
  std::map<NodeId, bool> evicted_;  // true: gone
  bool new_manager_ = false;        // others granted the leases of the evicted
  bool uncommitted_ = false;        // base_ is another's, and may have evicted members that have leases
  Nanos last_acknowledged_ = 0;

  ConfigId recovering_;  // on the manager, committed; 0: none
  std::set<NodeId> not_recovered_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_RECONFIGURATION_H_
