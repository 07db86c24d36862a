// Messages of recovery (docs/internals/recovery.md has who sends which, and what it does): bytes, builder,
// parser. Parsers take bytes of a peer: everything is checked.
//
// A message (little-endian); it may be longer than a record of the message ring and then comes in parts:
//   off  size  field        meaning
//   0    1     type         RecoveryType
//   1    1     format       kRecoveryFormat
//   2    2     to_worker    of the receiving node: who serves the coordinator threads in question
//   4    2     from_worker  of the sending node
//   6    2     zero
//   8    8     config       the receiver ignores those of an older one, and keeps those of a newer one
//   16   4     count        items that follow
//   20   4     zero
//   24   ...   items
// An item:
//   off  size  field         meaning
//   0    8     config        of the transaction's id
//   8    8     local         of the transaction's id
//   16   8     timestamp     W, 0 where it is not known; REGION-ACTIVE: the floor
//   24   4     node          of the transaction's id
//   28   2     worker        of the transaction's id
//   30   1     seen          SeenBits
//   31   1     vote          Vote; DECISION and OUTCOME: kCommitPrimary commits, kAbort aborts
//   32   4     region        that the item is about; 0: none
//   36   2     region_count  of all regions that the transaction writes
//   38   2     node_count    of replicas of `region`
//   40   4     record_bytes  of a LOCK or COMMIT-BACKUP
//   44   4     zero
//   48   4*r   regions, 4*n nodes, padded to 8; the record, padded to 8
#ifndef FURROW_TXN_RECOVERY_RECORDS_H_
#define FURROW_TXN_RECOVERY_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace furrow::txn {

inline constexpr uint8_t kRecoveryFormat = 1;

enum class RecoveryType : uint8_t {
  kNeedRecovery = 1,   // backup -> primary: what it has seen of recovering transactions; one part per worker
  kFetch = 2,          // FETCH-TX-STATE: primary -> backup
  kState = 3,          // SEND-TX-STATE: the record
  kReplicate = 4,      // REPLICATE-TX-STATE: primary -> backup
  kReplicated = 5,     // its acknowledgement
  kVote = 6,           // RECOVERY-VOTE: primary -> recovery coordinator
  kRequestVote = 7,    // REQUEST-VOTE: recovery coordinator -> primary
  kDecision = 8,       // COMMIT-RECOVERY, ABORT-RECOVERY: recovery coordinator -> replica
  kDecided = 9,        // its acknowledgement
  kTruncate = 10,      // TRUNCATE-RECOVERY: recovery coordinator -> replica
  kTruncated = 11,     // its acknowledgement
  kRecover = 12,       // coordinator -> recovery coordinator on another node: decide this one
  kOutcome = 13,       // recovery coordinator -> coordinator: decided
  kOver = 14,          // recovery coordinator -> coordinator: truncated everywhere
  kRegionActive = 15,  // REGION-ACTIVE: primary -> all members
};

// What a replica has seen of a transaction, for one region. Bits are only ever added.
enum SeenBits : uint8_t { kSeenLock = 1, kSeenBackup = 2, kSeenCommit = 4, kSeenAbort = 8 };

enum class Vote : uint8_t {
  kNone = 0,
  kCommitPrimary = 1,
  kAbort = 2,
  kCommitBackup = 3,
  kLock = 4,
  kTruncated = 5,
  kUnknown = 6,
};

// What a region with a record votes, whose replicas have seen this: the first that is true.
Vote VoteOf(uint8_t seen);

struct RecoveryItem {
  TxId id{};
  RegionId region{};
  uint8_t seen = 0;
  Vote vote = Vote::kNone;
  Timestamp timestamp{};
  std::vector<RegionId> regions{};
  std::vector<NodeId> nodes{};
  std::vector<std::byte> record{};
};

struct RecoveryMessage {
  RecoveryType type{};
  ConfigId config{};
  WorkerId from_worker{};
  WorkerId to_worker{};
  std::vector<RecoveryItem> items{};
};

std::vector<std::byte> Encode(const RecoveryMessage& message);
// Nothing: malformed.
std::optional<RecoveryMessage> ParseRecovery(std::span<const std::byte> bytes);

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_RECORDS_H_
