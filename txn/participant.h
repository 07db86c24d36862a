// Participant: a worker's part as primary and backup. A state machine: log records and requests in, changes
// of memory and answers out; it never blocks.
//
// Per sender (a coordinator thread) it keeps the records that wait for truncation, in ring order, and the
// transactions that they belong to:
//
//   at a primary:  LOCK ok -> locked -- COMMIT-PRIMARY --> installed -- truncation --> gone
//                  LOCK refused -> refused -- ABORT --> gone      locked -- ABORT --> gone (unlocked)
//   at a backup:   COMMIT-BACKUP -> stored -- truncation: applied if W is newer than the copy --> gone
// One transaction may be both here: primary for some objects, backup for others. What recovers (recovery/)
// leaves these ways once this worker has drained its rings: late records and truncations of it are dropped.
#ifndef FURROW_TXN_PARTICIPANT_H_
#define FURROW_TXN_PARTICIPANT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "rdma/ring/mesh.h"
#include "storage/old_versions.h"
#include "txn/outcomes.h"
#include "txn/pending_table.h"
#include "txn/records.h"
#include "txn/worker.h"

namespace furrow::txn {

class Participant {
 public:
  explicit Participant(Worker& worker);
  ~Participant();

  // A log record of the ring's sender, in ring order. A malformed one closes the ring (a peer that writes
  // garbage is not served any further); its memory does not wait for it.
  void OnLog(rdma::InboundRing& ring, const rdma::RingRecord& record);
  void OnRequest(rdma::InboundRing& ring, const rdma::RingRecord& record);
  void OnRingClosed(rdma::InboundRing& ring);

  // Frees old versions, emptied blocks, and what is remembered of senders that have left for long; called by
  // a timer of the worker.
  void Collect();

  // --- for recovery; owner thread ---

  // A pending transaction that recovers. The records lie in its sender's ring until FinishRecovered().
  struct Recovering {
    TxId id{};
    std::span<const std::byte> lock{};           // empty: none is here
    std::span<const std::byte> commit_backup{};  // empty: none is here
    bool locked = false;                         // holds its locks here
    bool installed = false;
    Timestamp timestamp{};  // W, where a record has brought it
  };
  // The rings have been drained under the current view, in which `drained` is the configuration: which
  // pending transactions recover. From now on their records are late, and dropped.
  std::vector<Recovering> FindRecovering(ConfigId drained);
  // The transaction has been decided and truncated everywhere by recovery: its records go.
  void FinishRecovered(const TxId& id, bool committed);
  // The coordinator thread has said that it is over, or its outcome bit says that it was committed here.
  bool HasTruncated(const TxId& id);
  // The effects of a decision on one object, at a primary: `w` is only installed if it is newer than what is
  // there. The transaction holds the object no more.
  void InstallObject(const ObjectEntry& entry, std::span<const std::byte> payload, Timestamp w,
                     const TxId& id);
  // At a backup, likewise.
  void ApplyWrite(const ObjectEntry& entry, std::span<const std::byte> payload, Timestamp w);

  // Records held for truncation, all senders.
  size_t held_records() const { return held_; }
  uint64_t malformed() const { return malformed_; }
  // Coordinator threads that records came from and whose rings are not closed, or hold records.
  size_t senders() const { return senders_.size(); }

 private:
  enum class State : uint8_t { kNone, kLocked, kRefused, kInstalled };
  struct Pending {
    State state = State::kNone;
    bool recovering = false;                   // its end is recovery's
    Timestamp timestamp;                       // W, once a record has brought it
    std::span<const std::byte> lock;           // LOCK record in the ring
    std::span<const std::byte> commit_backup;  // COMMIT-BACKUP record in the ring
    uint64_t records[3] = {};                  // numbers of its records in `held`, from 1; at most three
  };
  struct Held {
    uint64_t end;  // ring position behind the record
    bool done;     // nobody needs it any more
  };
  struct Sender {
    Pinned<rdma::InboundRing> ring;
    std::deque<Held> held;
    uint64_t first_held = 1;        // number of held.front()
    PendingTable<Pending> pending;  // by local id
    uint64_t low_bound = 0;
    std::vector<uint64_t> scratch;
    OutcomeBits outcomes;
  };

  Sender& SenderOf(rdma::InboundRing& ring);
  // A record of what recovers, or of what is not known here any more since it did, after the drain.
  bool IsLate(Sender& sender, const LogView& record);
  bool RecoversNow(const Sender& sender, const LogView& record) const;
  // Forgets a sender whose ring is over and of which nothing is held.
  void ForgetIfOver(Sender& sender);
  Sender* SenderOf(const TxId& id);
  // What the newest record of the sender says.
  void Take(Sender& sender, std::span<const std::byte> body);
  void OnLock(Sender& sender, const LogView& record, std::span<const std::byte> body);
  void OnCommitPrimary(Sender& sender, const LogView& record);
  void OnAbort(Sender& sender, const LogView& record);
  // Takes what the record says about truncation.
  void Truncate(Sender& sender, const LogView& record);
  void TruncateOne(Sender& sender, uint64_t local);
  // The record that is being looked at belongs to `pending` and stays until that is finished.
  void Keep(Sender& sender, Pending& pending);
  // Nobody needs the records of the transaction any more; it is forgotten.
  void Finish(Sender& sender, uint64_t local, const Pending& pending);
  void ReleaseFront(Sender& sender);

  bool LockAll(const LogView& record, LockReply* in_the_way);
  bool LockObject(const ObjectEntry& entry, size_t payload, const TxId& id, LockReply* in_the_way);
  void UnlockFirst(const LogView& record, uint32_t count);
  void RemoveWriters(const LogView& record);
  bool CanInstall(const LogView& record, Timestamp w) const;
  void InstallAll(const LogView& record, Timestamp w, const TxId& id);
  void ApplyBackup(const LogView& record, Timestamp w);
  void ApplyObject(storage::Region& region, Address address, const ObjectEntry& entry,
                   std::span<const std::byte> payload, Timestamp w);
  void ReplyToLock(Sender& sender, const LogView& record, const LockReply& reply, AnswerCode code);

  void OnValidate(rdma::InboundRing& ring, const MessageHeader& header, std::span<const std::byte> body);
  void OnCutBlock(rdma::InboundRing& ring, const MessageHeader& header, std::span<const std::byte> body);
  void OnUnlease(rdma::InboundRing& ring, const MessageHeader& header, std::span<const std::byte> body);
  void OnLease(rdma::InboundRing& ring, const MessageHeader& header, std::span<const std::byte> body);
  Task<void> ServeLease(Pinned<rdma::InboundRing> ring, uint64_t request, LeaseRequest lease);
  Task<void> ServeCut(Pinned<rdma::InboundRing> ring, uint64_t request, CutRequest cut);
  void AnswerWith(rdma::InboundRing& ring, uint64_t request, AnswerCode code, uint32_t count,
                  std::span<const std::byte> elements);
  void Malformed(rdma::InboundRing& ring, std::string_view what);

  Worker& worker_;
  Node& node_;
  std::unique_ptr<storage::OldVersionWriter> old_versions_;
  std::vector<std::unique_ptr<Sender>> senders_;
  // What is remembered of threads that have left, the first to leave first: for kOutcomesKeptNs, and of no
  // more than kMaxDeparted; further ones make the oldest expire.
  static constexpr Nanos kOutcomesKeptNs = 600 * kSecond;
  static constexpr size_t kMaxDeparted = 256;
  struct Departed {
    rdma::WorkerIdentity thread;
    Nanos until;
    uint64_t low_bound;
    OutcomeBits outcomes;
  };
  std::deque<Departed> departed_;
  size_t held_ = 0;
  uint64_t malformed_ = 0;
  ConfigId drained_;  // the newest configuration in which this worker has drained its rings
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_PARTICIPANT_H_
