#include "base/mutation.h"

#ifdef FURROW_MUTATIONS
#include <atomic>
#include <cstdio>
#include <cstdlib>
#endif

namespace furrow {
namespace {

struct Name {
  std::string_view name;
  Mutation step;
};

constexpr Name kNames[] = {
    {"skip-lock", Mutation::kSkipLock},
    {"skip-validate", Mutation::kSkipValidate},
    {"skip-backup-wait", Mutation::kSkipBackupWait},
    {"skip-invalid-line-versions", Mutation::kSkipInvalidLineVersions},
    {"skip-line-version-check", Mutation::kSkipLineVersionCheck},
    {"read-locked-head", Mutation::kReadLockedHead},
    {"skip-read-wait", Mutation::kSkipReadWait},
    {"skip-write-wait", Mutation::kSkipWriteWait},
    {"ignore-floor", Mutation::kIgnoreFloor},
    {"apply-older-write", Mutation::kApplyOlderWrite},
    {"skip-reservation", Mutation::kSkipReservation},
    {"reuse-old-versions-early", Mutation::kReuseOldVersionsEarly},
    {"one-round-safe-point", Mutation::kOneRoundSafePoint},
    {"skip-tombstone-check", Mutation::kSkipTombstoneCheck},
    {"ignore-lease-timestamp", Mutation::kIgnoreLeaseTimestamp},
    {"truncate-before-apply", Mutation::kTruncateBeforeApply},
    {"skip-ring-checksum", Mutation::kSkipRingChecksum},
    {"skip-drain", Mutation::kSkipDrain},
    {"skip-rejection", Mutation::kSkipRejection},
    {"keep-acknowledgements", Mutation::kKeepAcknowledgements},
    {"skip-need-recovery", Mutation::kSkipNeedRecovery},
    {"skip-lock-recovery", Mutation::kSkipLockRecovery},
    {"forget-what-backups-have-seen", Mutation::kForgetWhatBackupsHaveSeen},
    {"skip-replication", Mutation::kSkipReplication},
    {"skip-wait-for-votes", Mutation::kSkipWaitForVotes},
};

}  // namespace

Mutation ParseMutation(std::string_view name) {
  for (const Name& known : kNames) {
    if (known.name == name) return known.step;
  }
  return Mutation::kNone;
}

#ifdef FURROW_MUTATIONS
namespace {

// A misspelt switch would look like a test that does not notice its mutation, so it ends the process.
Mutation FromEnvironment() {
  const char* name = std::getenv("FURROW_MUTATION");
  if (name == nullptr || *name == '\0') return Mutation::kNone;
  Mutation step = ParseMutation(name);
  if (step == Mutation::kNone) {
    std::fprintf(stderr, "FURROW_MUTATION=%s names no mutation; see base/mutation.cc for the names\n", name);
    std::exit(2);
  }
  return step;
}

std::atomic<Mutation>& Current() {
  static std::atomic<Mutation> current{FromEnvironment()};
  return current;
}

}  // namespace

bool Mutated(Mutation step) { return Current().load(std::memory_order_relaxed) == step; }
void SetMutation(Mutation step) { Current().store(step, std::memory_order_relaxed); }
#endif

}  // namespace furrow
