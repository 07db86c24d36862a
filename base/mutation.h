// Mutation switches: each names one protocol step that a test build can turn off, to show that a test fails
// without it. In other builds Mutated() is constant false and costs nothing.
#ifndef FURROW_BASE_MUTATION_H_
#define FURROW_BASE_MUTATION_H_

#include <string_view>

namespace furrow {

enum class Mutation {
  kNone,
  kSkipLock,                   // LOCK answers yes without looking at the header
  kSkipValidate,               // VALIDATE is not sent
  kSkipBackupWait,             // COMMIT-PRIMARY goes out before every COMMIT-BACKUP is acknowledged
  kSkipInvalidLineVersions,    // an install does not write INVALID first
  kSkipLineVersionCheck,       // a reader does not compare line versions
  kReadLockedHead,             // a reader takes a locked head whose timestamp is at most R
  kSkipReadWait,               // R is used before L has reached it
  kSkipWriteWait,              // W is used before L has reached it
  kIgnoreFloor,                // a read below a region's floor follows the chain
  kApplyOlderWrite,            // a backup applies a write that is older than its copy
  kSkipReservation,            // records are appended without a reservation
  kReuseOldVersionsEarly,      // an old-version block is freed without regard to the safe point
  kOneRoundSafePoint,          // the safe point is the first-round OAT
  kSkipTombstoneCheck,         // a reader takes an unallocated object
  kIgnoreLeaseTimestamp,       // LOCK of an allocation does not check the leased timestamp
  kTruncateBeforeApply,        // TRUNCATE drops a record that was not applied
  kSkipRingChecksum,           // a ring record is taken without its checksum
  kSkipDrain,                  // recovery begins without a look at what lies in the rings
  kSkipRejection,              // after the drain late records of what recovers are taken
  kKeepAcknowledgements,       // acknowledgements count for transactions that recover
  kSkipNeedRecovery,           // a backup does not tell the primary what it has seen
  kSkipLockRecovery,           // a new primary takes no locks before its region is active
  kForgetWhatBackupsHaveSeen,  // a primary keeps what backups have told it for one configuration only
  kSkipReplication,            // backups that lack a record do not get it
  kSkipWaitForVotes,           // a decision is made before every region has voted
};

// "skip-lock" etc.; kNone for an unknown name.
Mutation ParseMutation(std::string_view name);

#ifdef FURROW_MUTATIONS
// The switch of this process, set by SetMutation or by the environment variable FURROW_MUTATION.
bool Mutated(Mutation step);
void SetMutation(Mutation step);
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace furrow

#endif  // FURROW_BASE_MUTATION_H_
