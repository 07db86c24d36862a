// Decisions: a worker's part as recovery coordinator (SOSP'15 section 5.3, steps 6 and 7): votes in, one
// decision per transaction out, to every replica of every region that it writes.
//
//   Start() or a vote --> open -- a commit-primary vote, or all votes --> decided
//        (250 us: REQUEST-VOTE to who has not voted)
//   decided: DECISION to the replicas of each region once that has voted: then they have drained, recovered
//   their locks, and have the record  -- every replica of every region has acknowledged --> TRUNCATE to all
//   -- all have acknowledged --> over
// Owner thread only. A new configuration ends all of it.
#ifndef FURROW_TXN_RECOVERY_DECISION_H_
#define FURROW_TXN_RECOVERY_DECISION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/event_loop.h"
#include "base/ids.h"
#include "base/task.h"
#include "txn/recovery/records.h"

namespace furrow::txn {

class Worker;
class RecoveryPost;

class Decisions {
 public:
  // `decided` and `over`: told of transactions of this very coordinator thread, which lives.
  struct Hooks {
    std::function<void(uint64_t local, bool committed, Timestamp w)> decided;
    std::function<void(uint64_t local)> over;
  };
  Decisions(Worker& worker, RecoveryPost& post, Hooks hooks);
  ~Decisions();

  void Clear();
  bool empty() const { return open_.empty(); }

  // A coordinator knows that this one recovers, whether or not anybody has a record of it.
  void Start(const TxId& id, std::span<const RegionId> regions);
  void OnVote(const RecoveryItem& vote);
  void OnDecided(const RecoveryItem& item);
  void OnTruncated(const RecoveryItem& item);

 private:
  static constexpr Nanos kRequestVoteNs = 250 * kMicrosecond;
  enum class Outcome : uint8_t { kOpen, kCommit, kAbort };
  struct Part {
    RegionId region;
    Vote vote = Vote::kNone;
    std::vector<NodeId> nodes{};  // replicas, from the vote
    bool told = false;
    size_t owing = 0;  // acknowledgements of what was told last
  };
  struct Deciding {
    TxId id;
    std::vector<Part> parts;
    Outcome outcome = Outcome::kOpen;
    Timestamp w{};
    bool truncating = false;
    EventLoop::TimerId timer = 0;
  };
  Deciding& Find(const TxId& id, std::span<const RegionId> regions);
  void Decide(Deciding& deciding);
  void Tell(Deciding& deciding);
  void TellAll(const Deciding& deciding, Part& part, RecoveryType type);
  void TellCoordinator(const Deciding& deciding, RecoveryType type);
  void RequestVotes(const TxId& id);
  Task<void> RequestVote(TxId id, RegionId region, std::vector<RegionId> regions);
  // Null: not open, or a region that it does not write.
  Part* Owing(const RecoveryItem& item, Deciding** deciding);

  Worker& worker_;
  RecoveryPost& post_;
  const Hooks hooks_;
  uint64_t round_ = 0;  // grows with Clear(): coroutines of an earlier one end
  std::map<TxId, std::unique_ptr<Deciding>> open_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_DECISION_H_
