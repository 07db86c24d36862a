// CommitRun: one commit under way; lives in the frame of Coordinator::Commit. Owner thread only.
//   commit_plan.cc     who takes part
//   commit_reserve.cc  room for all that follows
//   commit.cc          the steps, and the whole
//   validate.cc        VALIDATE
#ifndef FURROW_TXN_COMMIT_RUN_H_
#define FURROW_TXN_COMMIT_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "base/mutation.h"
#include "rdma/operation.h"
#include "txn/coordinator.h"
#include "txn/records.h"
#include "txn/transaction.h"

namespace furrow::txn {

class CommitRun {
 public:
  CommitRun(Coordinator& coordinator, Transaction& tx)
      : coordinator_(coordinator),
        worker_(coordinator.worker()),
        node_(worker_.node()),
        tx_(tx),
        backups_(worker_.loop()) {}
  ~CommitRun();

  Task<CommitResult> Run();

 private:
  // The written objects whose regions have the same replicas; they go through the commit together.
  struct Group {
    const cluster::RegionMapping* mapping;
    absl::InlinedVector<Access*, 32> writes{};
    size_t bytes = 0;  // of their entries
  };
  // A node that takes part, and the groups that it is primary or backup of, as bit sets.
  struct Party {
    NodeId node;
    Pinned<LinkState> state{};
    uint64_t primary_of = 0;
    uint64_t backup_of = 0;
    uint64_t reserved = 0;  // log room that is not used yet, without that for truncation
    bool reply_reserved = false;
    bool lock_sent = false;
    bool self() const { return state->link->connection == nullptr; }
  };
  // A staged record body for a set of groups; LOCK and COMMIT-BACKUP of the same set share it.
  struct Body {
    uint64_t groups;
    std::span<std::byte> bytes;
    uint64_t hash = 0;
    LogType written_as{};  // its header is rewritten only between phases, never while a WRITE reads it
  };

  absl::Status Plan();
  // A region that is written has other replicas than when it was planned.
  bool Moved() const;
  Party& PartyOf(NodeId node);
  size_t RecordBodyBytes(uint64_t groups) const;
  uint64_t LogRoom(const Party& party) const;
  Task<absl::Status> Reserve();
  bool TryReserve();
  bool StageBodies();
  absl::StatusOr<Body*> Build(uint64_t groups);
  LogHeader Header(LogType type, Timestamp w) const;
  absl::Status AppendBody(Party& party, LogType type, uint64_t groups, Timestamp w, uint64_t done_id,
                          rdma::WorkRequest::Notify notify);
  absl::Status AppendSmall(Party& party, LogType type, Timestamp w, CommitOp* op);

  const Access* ChangedLocally() const;
  absl::Status SendLock(Party& party);
  Task<absl::Status> Lock();
  // Max: the clock did not get there before the deadline.
  Task<Timestamp> WriteTimestamp();
  bool ValidateLocal(const Access& access);
  Task<bool> Validate();
  struct RemoteReads;
  std::optional<bool> ValidateNow(const RemoteReads& reads);
  Task<bool> ValidateRemote(std::span<std::unique_ptr<RemoteReads>> remote);
  Task<bool> StartReads(RemoteReads& reads);
  Task<bool> StartMessages(RemoteReads& reads);
  Task<bool> TakeWords(std::span<std::unique_ptr<RemoteReads>> remote);
  bool CompareWords(const RemoteReads& reads);
  Task<bool> CompareAnswers(RemoteReads& reads);
  Task<bool> CommitBackups(Timestamp w);
  Task<bool> CommitPrimaries(Timestamp w);
  // The outcome is open: recovery decides it, where there is recovery.
  Task<CommitResult> AwaitRecovery(std::string_view why);
  // A region that was read and is not written has another primary than when the commit began.
  bool ReadRegionsMoved();
  Task<void> AbortLocked();
  CommitResult Aborted(Conflict conflict);
  CommitResult UnknownOutcome(std::string_view why);
  CommitResult Committed(Timestamp w);
  void GiveBackReservations();
  void DropReservations();
  // Nothing is posted for it any more.
  bool Stops() const { return op_->recovering && !Mutated(Mutation::kKeepAcknowledgements); }
  Conflict WhyLost() const { return {.reason = coordinator_.LossReason()}; }

  Coordinator& coordinator_;
  Worker& worker_;
  Node& node_;
  Transaction& tx_;
  const cluster::ClusterView* view_ = nullptr;  // in which it was planned
  CommitOp* op_ = nullptr;
  TxId id_;
  absl::InlinedVector<Group, 2> groups_;
  absl::InlinedVector<Party, 4> parties_;
  absl::InlinedVector<Body, 4> bodies_;
  absl::InlinedVector<uint32_t, 4> regions_;
  rdma::OperationGroup backups_;  // COMMIT-BACKUPs that are not acknowledged
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_COMMIT_RUN_H_
