// Coordinator: a worker's part as the one who begins, reads for and commits transactions (SOSP'15 section 4,
// FaRMv2 section 4.2), and who asks other nodes (validation by message, slot leases, block cuts).
//
// Phases of a commit, each a step of Commit() in commit.cc:
//
//   reserve -> LOCK -> W -> VALIDATE -> COMMIT-BACKUP -> COMMIT-PRIMARY -> report -> (all acknowledged) ->
//   truncatable
//                |               |
//                +-- conflict ---+--> ABORT to every primary that was sent LOCK --> complete
//
// A transaction whose objects are all primary here goes through all of it without suspending.
#ifndef FURROW_TXN_COORDINATOR_H_
#define FURROW_TXN_COORDINATOR_H_

#include <coroutine>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/pinned.h"
#include "rdma/operation.h"
#include "txn/lease_cache.h"
#include "txn/records.h"
#include "txn/scratch_buffer.h"
#include "txn/worker.h"

namespace furrow::txn {

// What the coordinator knows of the way to one node, besides the mesh's link. It goes when its link is gone
// and nobody pins it: a coroutine that suspends, or a transaction that is not complete.
struct LinkState {
  Pinned<rdma::OutboundLink> link;
  uint32_t pins = 0;
  // Transactions with records at that node that may be truncated but have not been told so, oldest first.
  std::deque<uint64_t> untold;
  // Room that their truncation has reserved: kTruncateRoom each.
};
// A whole TRUNCATE record for one id: what each transaction reserves at each participant, so that truncation
// can always be sent.
inline constexpr size_t kMaxRidingIds = 8;
// COMMIT-PRIMARY with the most ids that may ride on it; ABORT takes less.
inline constexpr uint64_t kSmallRecordRoom = rdma::RecordBytes(sizeof(LogHeader) + 8 * kMaxRidingIds);
inline constexpr uint64_t kTruncateRoom = rdma::RecordBytes(sizeof(LogHeader) + 8);
// Room that an answer may take in the reply ring.
inline constexpr uint64_t kLockReplyRoom = rdma::RecordBytes(sizeof(MessageHeader) + sizeof(LockReply));

// A transaction between LOCK and the acknowledgement of the last COMMIT-PRIMARY. Outlives its coroutine's
// interest: primaries may acknowledge after the report.
struct CommitOp : rdma::Operation {
  explicit CommitOp(Coordinator& owner);

  Coordinator& coordinator;
  uint64_t local = 0;
  absl::InlinedVector<NodeId, 4> owing;  // nodes whose LOCK-REPLY is not here
  uint32_t replies_pending = 0;          // LOCK-REPLYs
  uint32_t primaries_pending = 0;        // COMMIT-PRIMARY acknowledgements
  bool primary_acknowledged = false;
  bool refused = false;  // some primary refused the LOCK
  bool lost = false;     // a participant is gone
  bool timed_out = false;
  bool complete = false;                     // everything acknowledged (or aborted): truncatable
  ConfigId config;                           // of its id
  absl::InlinedVector<RegionId, 4> regions;  // that it writes
  // It recovers: no acknowledgement and no answer counts any more, nothing is posted for it; its end is
  // recovery's (recovery/decision.h). Then also `lost`.
  bool recovering = false;
  enum class Decision : uint8_t { kOpen, kCommitted, kAborted } decision = Decision::kOpen;
  Timestamp decided_w;
  Conflict conflict;
  std::coroutine_handle<> waiter;
  absl::InlinedVector<Pinned<LinkState>, 4> links;  // participants, for truncation
  std::vector<std::span<std::byte>> limbo;          // staged bodies that go back with the last LOCK-REPLY
  bool released = false;                            // its commit has no interest in it any more
};

class Coordinator {
 public:
  static constexpr Nanos kNoDeadline = std::numeric_limits<Nanos>::max();

  explicit Coordinator(Worker& worker);
  ~Coordinator();
  absl::Status Start();

  // --- transactions ---
  Task<absl::Status> Begin(Transaction& tx);
  void End(Transaction& tx);
  Task<CommitResult> Commit(Transaction& tx);

  // --- reads (read_remote.cc) ---
  // All inside the call, where the fabric can. False: not possible now, or the object is locked or changing.
  bool TryReadRemote(Transaction& tx, const cluster::RegionMapping& mapping, Address address, uint32_t bytes,
                     bool hint, ReadResult* result);
  Task<ReadResult> ReadRemote(Transaction& tx, Address address, uint32_t bytes, bool hint);

  void PrefetchRemote(const cluster::RegionMapping& mapping, Address address, size_t bytes);

  // True if a read from the region's primary ends without waiting for the fabric.
  bool ReadsAtOnce(const cluster::RegionMapping& mapping) {
    LinkState* state = LinkTo(mapping.primary().node);
    return state != nullptr && !state->link->gone &&
           (state->link->connection == nullptr || state->link->connection->completes_at_once());
  }

  // --- allocation (allocate.cc) ---
  LeaseCache& leases() { return leases_; }
  // Fills the cache for (locality, size class) or says why not: all who want the same wait for one refill,
  // each until its own deadline. The refill goes on without them: slots that a primary has leased are here,
  // whoever still wants them.
  Task<absl::Status> RefillLeases(RegionId locality, storage::SizeClass size_class, Nanos deadline);
  // At the primary: leases slots to whoever asks, cutting blocks and growing the group as needed.
  Task<absl::Status> LeaseHere(RegionId locality, storage::SizeClass size_class, uint32_t count,
                               NodeId holder, Nanos deadline, std::vector<storage::SlotLease>* out);
  // How long it may take: shorter than a call, so that what was leased is not given to one who is gone.
  static constexpr Nanos kLeaseNs = 8 * kSecond;
  // Returns every cached lease to its primary.
  void ReturnLeases();

  // --- requests to other nodes (request.cc) ---
  // One call under way. Who lets go of it before it is done gives it up: its answer, if it comes, is dropped.
  struct PendingCall {
    explicit PendingCall(Coordinator& c) : coordinator(c) {}
    ~PendingCall() { coordinator.GiveUp(*this); }
    PendingCall(const PendingCall&) = delete;
    PendingCall& operator=(const PendingCall&) = delete;

    Coordinator& coordinator;
    NodeId node{};
    uint64_t request = 0;  // 0: not sent
    uint64_t room = 0;     // of the reply ring
    bool done = false;
    absl::Status status{};
    std::vector<std::byte> answer{};  // header and body
    std::coroutine_handle<> waiter{};
    EventLoop::TimerId timer = 0;
  };
  // Sends a request; waits only for room. `answer_bytes` bounds the answer's body, `deadline` the whole call,
  // which never takes longer than ten seconds.
  Task<absl::Status> StartCall(PendingCall& call, NodeId node, MessageType type, uint32_t count,
                               std::span<const std::byte> body, size_t answer_bytes,
                               Nanos deadline = kNoDeadline);
  // Waits for the answer of a call that was started: OK when call.answer is there.
  Task<absl::Status> FinishCall(PendingCall& call);
  // Both: sends a request and waits for the answer's bytes (header and body).
  Task<absl::StatusOr<std::vector<std::byte>>> Call(NodeId node, MessageType type, uint32_t count,
                                                    std::span<const std::byte> body, size_t answer_bytes);
  absl::Status Send(NodeId node, MessageType type, uint32_t count, std::span<const std::byte> body,
                    uint64_t request = 0);
  // An answer that came back on a reply ring.
  void OnAnswer(rdma::InboundRing& ring, const rdma::RingRecord& record);
  // Sends an answer to the worker at the other end of `ring`, now or when there is a free request for it.
  void Answer(rdma::InboundRing& ring, std::span<const std::byte> answer);

  void OnLockReply(NodeId from, uint64_t local, AnswerCode code, const LockReply& reply);
  void OnLinkLost(rdma::OutboundLink& link);

  // --- recovery ---
  // A new configuration: marks what recovers in it, and drops what primaries that are gone have leased.
  void Adopt(const cluster::ClusterView& view);
  // Calls fn(id, regions that it writes) for each transaction of this thread that recovers, oldest first.
  template <class Fn>
  void ForEachRecovering(Fn fn) const {
    for (const std::unique_ptr<CommitOp>& op : ops_) {
      if (op != nullptr && op->recovering) fn(IdOf(*op), std::span(op->regions));
    }
  }
  bool HasRecovering() const;
  // Recovery has decided; the commit reports it, if it still waits.
  void OnDecided(uint64_t local, bool committed, Timestamp w);
  // Recovery has ended it everywhere.
  void OnRecovered(uint64_t local);
  // Until recovery has decided, or the deadline passes.
  Task<void> WaitForDecision(CommitOp& op, Nanos deadline);
  // Why a transaction ends whose primary or backup is gone: it is worth a retry where there is recovery.
  AbortReason LossReason() const {
    return node_.recovery == nullptr ? AbortReason::kMemberLost : AbortReason::kReconfigured;
  }

  // Back into the cache, from a transaction that began in this configuration: a primary that has changed
  // since may lease the slot to somebody else.
  void GiveLease(const storage::SlotLease& lease, ConfigId began_in);

  // --- waits of a commit ---
  struct OpAwaiter {
    CommitOp& op;
    bool ready;
    bool await_ready() const noexcept { return ready; }
    void await_suspend(std::coroutine_handle<> h) const noexcept { op.waiter = h; }
    void await_resume() const noexcept {}
  };
  // Until every LOCK-REPLY is here, one refuses, a participant is lost, or the deadline passes.
  Task<void> WaitForReplies(CommitOp& op, Nanos deadline);
  // Until one COMMIT-PRIMARY is acknowledged or all have failed.
  OpAwaiter WaitForPrimary(CommitOp& op) {
    return {op, op.primary_acknowledged || op.primaries_pending == 0};
  }
  // Until the clock's lower bound has reached `t`. False: the deadline passed first, or there is no clock.
  Task<bool> WaitUntilPassed(Timestamp t, Nanos deadline);

  // --- truncation (truncate.cc) ---
  // The transaction is over at all participants: its records may be truncated (committed) or are gone
  // (aborted).
  void Completed(CommitOp& op, bool committed);
  // The commit has reported and does not look at `op` any more.
  void Release(CommitOp& op);
  // Appends a COMMIT-PRIMARY, ABORT or TRUNCATE, with ids to truncate riding on it, out of kSmallRecordRoom.
  // `op`: completed by the acknowledgement (COMMIT-PRIMARY); null: nobody waits for it.
  absl::Status AppendSmall(LinkState& state, LogHeader header, CommitOp* op,
                           rdma::WorkRequest::Notify notify);
  uint64_t low_bound() const { return first_local_; }
  // Sends what waits to be truncated. `wake`: also parked receivers.
  void FlushTruncations(bool wake);
  bool HasUntold() const;

  // The way to a node, or null. It may be gone, and stays as it is until the caller suspends.
  LinkState* LinkTo(NodeId node);
  // Forgets the links of gone members that nobody needs any more; called by a timer of the worker.
  void Collect();
  std::vector<std::unique_ptr<LinkState>>& links() { return links_; }
  Worker& worker() { return worker_; }
  // Where READs of this worker place their bytes.
  rdma::RegisteredPool& scratch() { return scratch_; }

 private:
  friend class CommitRun;
  friend struct CommitOp;
  CommitOp& NewOp();
  TxId IdOf(const CommitOp& op) const;
  CommitOp* FindOp(uint64_t local);
  static void PrimaryAcknowledged(rdma::Operation* self, rdma::CompletionStatus status);
  void FailCalls(NodeId node);
  void GiveUp(PendingCall& call);
  absl::Status SendAnswer(rdma::RingWriter& writer, std::span<const std::byte> answer);
  Task<void> AnswerLater(Pinned<rdma::InboundRing> ring, std::vector<std::byte> answer);
  // Appends a staged body that nobody else uses and sees to its release: at once where the bytes are gone
  // when Append() returns, otherwise with the completion.
  absl::Status AppendAndRelease(rdma::RingWriter& ring, std::span<std::byte> body, CommitOp* op,
                                rdma::WorkRequest::Notify notify);
  // A refill of the cache under way.
  struct Refill {
    std::vector<std::coroutine_handle<>> waiters{};
    absl::Status status{};  // when nobody waits any more
  };
  Task<void> FillLeases(RegionId locality, storage::SizeClass size_class, std::shared_ptr<Refill> refill);
  Task<absl::Status> FetchLeases(RegionId locality, storage::SizeClass size_class);
  // Asks the primary that the mapping names. FailedPrecondition: it is not the primary.
  Task<absl::Status> LeaseFrom(const cluster::RegionMapping& mapping, RegionId locality,
                               storage::SizeClass size_class, uint32_t count,
                               std::vector<storage::SlotLease>* slots);
  Task<void> CutAhead(RegionId locality, storage::SizeClass size_class);
  // Asks for the next regions of the groups that run low, one after the other, before anybody waits for them.
  Task<void> GrowAhead();
  Task<absl::Status> CutBlock(storage::BlockCut cut);
  void Recycle(CommitOp& op);
  void Wake(CommitOp& op);
  // The ids that a record to this node can tell beyond the low bound, at most kMaxRidingIds.
  size_t RidingIds(const LinkState& state, uint64_t low_bound, uint64_t* ids) const;
  // A record with this low bound and these ids went out: gives the room of what it has told back.
  void Told(LinkState& state, uint64_t low_bound, std::span<const uint64_t> ids);

  Worker& worker_;
  Node& node_;
  rdma::RegisteredPool scratch_;
  std::vector<std::byte> read_now_;  // where TryReadRemote() reads to; grows to the largest object
  LeaseCache leases_;
  ConfigId adopted_{1};  // the last configuration of Adopt(): leases in the cache are of then or later
  std::vector<std::unique_ptr<LinkState>> links_;

  // Transactions in order of their local ids: ops_[i] has id first_local_ + i; null: complete.
  std::deque<std::unique_ptr<CommitOp>> ops_;
  std::vector<std::unique_ptr<CommitOp>> free_ops_;
  uint64_t first_local_ = 1;
  uint64_t next_local_ = 1;

  // Open transactions by their lower clock bound at Begin (which never decreases): the front is the oldest.
  std::deque<std::pair<uint64_t, Timestamp>> open_;
  uint64_t next_open_ = 1;
  void PublishOldest();

  // A body whose WRITE is under way.
  struct SentBody : rdma::Operation {
    explicit SentBody(Coordinator& c) : rdma::Operation(&SentBody::Sent), coordinator(c) {}
    static void Sent(rdma::Operation* self, rdma::CompletionStatus status);
    Coordinator& coordinator;
    std::span<std::byte> body;
  };
  std::vector<std::unique_ptr<SentBody>> sent_;  // all of them; those that are free are in free_sent_
  std::vector<SentBody*> free_sent_;

  absl::flat_hash_map<uint64_t, PendingCall*> calls_;
  uint64_t next_request_ = 1;
  // Calls that were given up: the room that their answers will free, by request.
  absl::flat_hash_map<uint64_t, std::pair<NodeId, uint64_t>> late_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Refill>> refills_;  // by locality and class
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_COORDINATOR_H_
