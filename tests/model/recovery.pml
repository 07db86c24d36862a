/* Deaths, evictions, reconfiguration (SOSP'15 section 5.2) and transaction recovery (section 5.3). */

/* --- the configuration --- */

#define CAN_DIE(n) (deaths < max_deaths && IN(n, members[config] & alive) && !lost_region)
inline forget_records(t, n) {
  SEEN(t, n, A) = 0; SEEN(t, n, B) = 0;
  ABORT_SEEN(t, n) = 0;
  TRUNCATED(t, n) = 0;
  RING(t, n) = 0
}
inline forget_coordinator(t, n) {
  if
  :: coordinator[t] == n ->
     COVER(DIED_LOCKING, phase[t] == LOCKING);
     COVER(DIED_BACKING_UP, phase[t] == BACKING_UP);
     COVER(DIED_COMMITTING, phase[t] == COMMITTING);
     COVER(DIED_TRUNCATING, phase[t] == TRUNCATING);
     post_lock[t] = 0; post_backup[t] = 0; post_primary[t] = 0; post_abort[t] = 0; post_truncate[t] = 0;
     locked_at[t] = 0;
     refused[t] = 0;
     phase[t] = DEAD
  :: else
  fi
}
inline die_coordinator(n) {
  deaths++;
  alive = alive & ~BIT(n);
  forget_coordinator(0, n);
  forget_coordinator(1, n)
}
inline die(n) {
  VERSION(n, A) = 0; VERSION(n, B) = 0;
  HOLDERS(n, A) = 0; HOLDERS(n, B) = 0;
  forget_records(0, n);
  forget_records(1, n);
  die_coordinator(n)
}

/* One change removes everybody who is dead, and perhaps one who lives. It may come before the last one is
 * committed. A primary that goes is replaced by a backup with all data. Copies are brought back to their number on
 * members that have none. (That the manager may die too adds nothing here: the store has one configuration after
 * another, whoever writes it.) */
#define MEMBER_DIED (!lost_region && (members[config] & ~alive) != 0)
#define CAN_EVICT(n) (evictions < max_evictions && IN(n, members[config] & alive) && !lost_region)
inline remap(o) {
  REPLICAS(config, o) = REPLICAS(config - 1, o) & members[config];
  complete[o] = complete[o] & members[config];
  copied[o] = copied[o] & members[config];
  lost_region = lost_region || complete[o] == 0;
  x = PRIMARY(config - 1, o);
  COVER(PROMOTED, !IN(x, members[config]));
  PRIMARY(config, o) = (IN(x, members[config]) -> x : LOWEST(complete[o]));
  x = 0;
  z = members[config] & STORAGE & ~REPLICAS(config, o);
  if
  :: z != 0 && COUNT(REPLICAS(config, o)) < COUNT(first_replicas[o]) ->
     COVER(NEW_BACKUP, 1);
     REPLICAS(config, o) = REPLICAS(config, o) | BIT(LOWEST(z))
  :: else
  fi;
  z = 0
}
inline reconfigure(n) {
  config++;
  members[config] = members[config - 1] & alive & ~BIT(n);
  COVER(OVERTAKEN, committed < config - 1);
  COVER(TWO_GONE, COUNT(members[config]) == 1);
  remap(A);
  remap(B)
}

/* NEW-CONFIG at a member. From here on it ignores acknowledgements of transactions that recover, and aborts those
 * that do not, if the primary of what they validate has changed and their validation has not ended. */
#define CAN_ADOPT(n) (IN(n, members[config] & alive) && adopted[n] < config && !lost_region)
#define VALIDATION_LOST(t) (phase[t] <= VALIDATING && VALIDATES(t) && PRIMARY(config, VALIDATED_OBJECT(t)) != PRIMARY(began[t], VALIDATED_OBJECT(t)))
inline adopt_coordinator(t, n) {
  if
  :: coordinator[t] == n && phase[t] >= LOCKING && phase[t] <= COMMITTING ->
     COVER(NOT_TOUCHED, !RECOVERING(t, config));
     COVER(VALIDATION_LOST_BY_CHANGE, !RECOVERING(t, config) && VALIDATION_LOST(t));
     if
     :: RECOVERING(t, config) ->
        locked_at[t] = 0;
        refused[t] = 0;
        phase[t] = STOPPED
     :: !RECOVERING(t, config) && VALIDATION_LOST(t) && fault != VALIDATE_STALE_PRIMARY -> abort_locked(t)
     :: else
     fi
  :: else
  fi
}
inline adopt(n) {
  adopted[n] = config;
  adopt_coordinator(0, n);
  adopt_coordinator(1, n)
}

/* NEW-CONFIG-COMMIT: every member has acknowledged, and the leases of those who were evicted are over (LEASE). */
#define ACKNOWLEDGED(n) (!IN(n, members[config]) || adopted[n] == config || fault == SKIP_ACKNOWLEDGEMENTS)
#define CAN_COMMIT_CONFIG (committed < config && !lost_region && (members[config] & ~alive) == 0 && ACKNOWLEDGED(0) && ACKNOWLEDGED(1) && ACKNOWLEDGED(2) && ACKNOWLEDGED(COMPUTE))
inline commit_config() {
  committed = config;
  vote[0] = 0; vote[1] = 0; vote[2] = 0; vote[3] = 0;
  told[0] = 0; told[1] = 0;
  untruncated[0] = 0; untruncated[1] = 0
}

/* --- recovery of transactions, all of it in the committed configuration --- */

/* A node takes part in the recovery of the configuration that it has adopted. */
#define TAKES_PART(n) (IN(n, alive) && adopted[n] == committed && IN(n, members[committed]))

/* Drain: the node has looked at whatever lies in its rings. Then it rejects what comes for recovering transactions. */
#define CAN_DRAIN(n) (TAKES_PART(n) && drained[n] < committed && ((RING(0, n) == 0 && RING(1, n) == 0) || fault == SKIP_DRAIN))
inline drain(n) {
  RING(0, n) = 0;
  RING(1, n) = 0;
  drained[n] = committed
}

/* Lock recovery, at the primary, once it and all backups have drained. It learns what the backups have seen
 * (NEED-RECOVERY, FETCH-TX-STATE): of a recovering transaction that does not change between a backup's drain and
 * the decision, so that it may be read now. A primary that was none before locks what recovering transactions
 * write, unless it was aborted here or is installed here: the copy is not older than W. (To have seen a commit is not
 * to have installed: a backup that was told COMMIT-RECOVERY applies at truncation.) One that was primary before has
 * the locks, or has installed. */
#define INSTALLED(t, n, o) (fault == COMMIT_SEEN_IS_INSTALLED -> SEEN(t, n, o) == COMMIT_SEEN : (MOST_SEEN(t, o) >= BACKUP_SEEN && VERSION(n, o) >= w[t]))
#define HAS_DRAINED(n, o) (!IN(n, REPLICAS(committed, o)) || drained[n] == committed || (fault == SKIP_NEED_RECOVERY && n != PRIMARY(committed, o)))
#define CAN_RECOVER_LOCKS(o) (lock_recovered[o] < committed && TAKES_PART(PRIMARY(committed, o)) && HAS_DRAINED(0, o) && HAS_DRAINED(1, o) && HAS_DRAINED(2, o))
#define SEEN_AT(t, n, o) (IN(n, REPLICAS(committed, o)) -> SEEN(t, n, o) : NOTHING)
#define MOST_SEEN(t, o) MAX(MAX(SEEN_AT(t, 0, o), SEEN_AT(t, 1, o)), SEEN_AT(t, 2, o))
inline recover_lock(t, o) {
  if
  :: WRITES(t, o) && RECOVERING(t, committed) && !HAS_TRUNCATED(t, x, o) ->
     y = MOST_SEEN(t, o);
     COVER(FETCHED, SEEN(t, x, o) == NOTHING && y != NOTHING);
     if
     :: fault != SKIP_LOCK_RECOVERY && !ACTIVE(committed, o) && !INSTALLED(t, x, o) && y != NOTHING && !ABORT_SEEN(t, x) ->
        COVER(LOCK_RECOVERED, 1);
        COVER(TWO_HOLDERS, HOLDERS(x, o) != 0);
        HOLDERS(x, o) = HOLDERS(x, o) | BIT(t)
     :: else
     fi;
     SEEN(t, x, o) = y;
     y = 0
  :: else
  fi
}
inline recover_locks(o) {
  x = PRIMARY(committed, o);
  recover_lock(0, o);
  recover_lock(1, o);
  lock_recovered[o] = committed;
  x = 0
}

/* What follows is per transaction, and transactions meet only in lock tables and versions. Instances that are too
 * large otherwise recover transaction 1 after transaction 0 in each configuration. */
#define HAS_ENDED(t) (!RECOVERING(t, committed) || (decided_in[t] == committed && untruncated[t] == 0) || (lock_recovered[A] == committed && lock_recovered[B] == committed && !KNOWN(t)))
#define MY_TURN(t) ((t) == 0 || !in_turn || HAS_ENDED(0))
#define IN_RECOVERY(t, o) (WRITES(t, o) && lock_recovered[o] == committed && RECOVERING(t, committed) && TAKES_PART(PRIMARY(committed, o)))

/* REPLICATE-TX-STATE to a backup that has no record, and has not truncated. It carries what the primary knows. */
#define LACKS(t, n, o) (WRITES(t, o) && IN(n, BACKUPS(committed, o)) && SEEN(t, n, o) == NOTHING && !HAS_TRUNCATED(t, n, o) && SEEN(t, PRIMARY(committed, o), o) != NOTHING)
#define CAN_REPLICATE(t, n, o) (LACKS(t, n, o) && fault != SKIP_REPLICATION && TAKES_PART(n) && IN_RECOVERY(t, o) && MY_TURN(t))
inline replicate(t, n, o) {
  COVER(REPLICATED, 1);
  SEEN(t, n, o) = (fault == REPLICATE_FORGETS_STATE -> LOCK_SEEN : SEEN(t, PRIMARY(committed, o), o))
}

/* RECOVERY-VOTE, after replication, to the recovery coordinator; also when that asks (REQUEST-VOTE), because another
 * region has voted or because it has begun the transaction itself. */
#define KNOWN(t) ((WRITES(t, A) && MOST_SEEN(t, A) != NOTHING) || (WRITES(t, B) && MOST_SEEN(t, B) != NOTHING) || (phase[t] == STOPPED && IN(coordinator[t], alive)))
#define ALL_REPLICATED(t, o) (fault == SKIP_REPLICATION || (!LACKS(t, 0, o) && !LACKS(t, 1, o) && !LACKS(t, 2, o)))
#define CAN_VOTE(t, o) (vote[2 * (t) + (o)] == NO_VOTE && decided_in[t] < committed && IN_RECOVERY(t, o) && ALL_REPLICATED(t, o) && KNOWN(t) && MY_TURN(t))
#define ABORT_SEEN_AT(t, n, o) (IN(n, REPLICAS(committed, o)) && ABORT_SEEN(t, n))
#define SOME_ABORT_SEEN(t, o) (fault != VOTE_IGNORES_ABORT && (ABORT_SEEN_AT(t, 0, o) || ABORT_SEEN_AT(t, 1, o) || ABORT_SEEN_AT(t, 2, o)))
#define TRUNCATED_AT(t, n, o) (IN(n, REPLICAS(committed, o)) && HAS_TRUNCATED(t, n, o))
#define SOME_TRUNCATED(t, o) (TRUNCATED_AT(t, 0, o) || TRUNCATED_AT(t, 1, o) || TRUNCATED_AT(t, 2, o))
inline cast(t, o) {
  y = MOST_SEEN(t, o);
  if
  :: y == COMMIT_SEEN -> x = VOTE_COMMIT_PRIMARY
  :: y != COMMIT_SEEN && SOME_ABORT_SEEN(t, o) -> x = VOTE_ABORT
  :: y == BACKUP_SEEN && !SOME_ABORT_SEEN(t, o) -> x = VOTE_COMMIT_BACKUP
  :: y == LOCK_SEEN && !SOME_ABORT_SEEN(t, o) -> x = (fault == VOTE_IGNORES_LOCK -> VOTE_UNKNOWN : VOTE_LOCK)
  :: y == NOTHING && !SOME_ABORT_SEEN(t, o) -> x = (SOME_TRUNCATED(t, o) -> VOTE_TRUNCATED : VOTE_UNKNOWN)
  fi;
  COVER(VOTES_COMMIT_PRIMARY, x == VOTE_COMMIT_PRIMARY);
  COVER(VOTES_COMMIT_BACKUP, x == VOTE_COMMIT_BACKUP);
  COVER(VOTES_LOCK, x == VOTE_LOCK);
  COVER(VOTES_ABORT, x == VOTE_ABORT);
  COVER(VOTES_TRUNCATED, x == VOTE_TRUNCATED);
  COVER(VOTES_UNKNOWN, x == VOTE_UNKNOWN);
  vote[2 * t + o] = x;
  x = 0;
  y = 0
}

/* Commit as soon as one region votes commit-primary; else all must have voted. */
#define VOTE_IS(t, o, v) (WRITES(t, o) && vote[2 * (t) + (o)] == (v))
#define SOME_VOTE(t, v) (VOTE_IS(t, A, v) || VOTE_IS(t, B, v))
#define MAY_DECIDE(t) (SOME_VOTE(t, VOTE_COMMIT_PRIMARY) || !SOME_VOTE(t, NO_VOTE) || (fault == SKIP_WAIT_ALL_VOTES && SOME_VOTE(t, VOTE_COMMIT_BACKUP)))
#define CAN_DECIDE(t) (decided_in[t] < committed && RECOVERING(t, committed) && TAKES_PART(RECOVERY_COORDINATOR(t)) && MAY_DECIDE(t))
inline decide(t) {
  y = SOME_VOTE(t, VOTE_COMMIT_PRIMARY) || (SOME_VOTE(t, VOTE_COMMIT_BACKUP) && !SOME_VOTE(t, VOTE_ABORT) && !SOME_VOTE(t, VOTE_UNKNOWN));
  COVER(DECIDES_COMMIT, y);
  COVER(DECIDES_ABORT, !y);
  COVER(DECIDES_AGAIN, decided_in[t] != 0);
  COVER(DECIDES_REPORTED, reported[t] != UNREPORTED);
  decision[t] = (y -> COMMITTED : ABORTED);
  decided_in[t] = committed;
  y = 0;
  told[t] = 0;
  untruncated[t] = REPLICAS_OF(committed, t);
  vote[2 * t + A] = NO_VOTE;
  vote[2 * t + B] = NO_VOTE;
  /* Recovery never contradicts what was reported. */
  assert(reported[t] == UNREPORTED || reported[t] == decision[t]);
  if
  :: phase[t] == STOPPED && IN(coordinator[t], members[committed] & alive) ->
     COVER(REPORTED_BY_RECOVERY, reported[t] == UNREPORTED);
     reported[t] = decision[t];
     phase[t] = OVER
  :: else
  fi
}

/* COMMIT-RECOVERY or ABORT-RECOVERY at a replica. Who has adopted a newer configuration ignores it; who has not drained,
 * or is a primary that has not recovered the locks, or lacks the record of what commits, looks at it later: one region's
 * commit-primary decides before the others are that far. */
#define LOCKS_RECOVERED(n, o) (PRIMARY(committed, o) != n || lock_recovered[o] == committed)
#define READY_FOR_DECISION(n) (fault == DECISION_BEFORE_DRAIN || (drained[n] == committed && LOCKS_RECOVERED(n, A) && LOCKS_RECOVERED(n, B)))
#define HAS_RECORDS(t, n) (fault == DECISION_WITHOUT_RECORD || (!LACKS(t, n, A) && !LACKS(t, n, B)))
#define CAN_TELL(t, n) (READY_FOR_DECISION(n) && HAS_RECORDS(t, n) && decided_in[t] == committed && IN(n, untruncated[t] & ~told[t]) && TAKES_PART(n) && IN(RECOVERY_COORDINATOR(t), alive))
/* What commits is locked from LOCK, or lock recovery, until it is installed. */
#define HAS_LOCK(t, n, o) (IN(t, HOLDERS(n, o)) || VERSION(n, o) >= w[t] || SEEN(t, n, o) == NOTHING)
inline tell_one(t, n, o) {
  if
  :: WRITES(t, o) && IN(n, REPLICAS(committed, o)) ->
     assert(decision[t] != COMMITTED || PRIMARY(committed, o) != n || HAS_LOCK(t, n, o));
     unlock(t, n, o);
     if
     :: decision[t] == COMMITTED && SEEN(t, n, o) != NOTHING ->
        SEEN(t, n, o) = COMMIT_SEEN;
        if
        :: PRIMARY(committed, o) == n -> apply(t, n, o)
        :: else
        fi
     :: else
     fi
  :: else
  fi
}
inline tell(t, n) {
  ABORT_SEEN(t, n) = ABORT_SEEN(t, n) | (decision[t] == ABORTED);
  tell_one(t, n, A);
  tell_one(t, n, B);
  told[t] = told[t] | BIT(n)
}

/* TRUNCATE-RECOVERY, once every replica has acknowledged the decision: backups apply, records go. */
#define ALL_TOLD(t) (fault == TRUNCATE_RECOVERY_EARLY || told[t] == REPLICAS_OF(committed, t))
#define CAN_TRUNCATE(t, n) (decided_in[t] == committed && IN(n, untruncated[t] & told[t]) && ALL_TOLD(t) && TAKES_PART(n) && IN(RECOVERY_COORDINATOR(t), alive))
inline truncate_one(t, n, o) {
  if
  :: decision[t] == COMMITTED && WRITES(t, o) && IN(n, REPLICAS(committed, o)) && SEEN(t, n, o) != NOTHING -> apply(t, n, o)
  :: else
  fi;
  SEEN(t, n, o) = NOTHING
}
inline truncate_recovered(t, n) {
  truncate_one(t, n, A);
  truncate_one(t, n, B);
  ABORT_SEEN(t, n) = 0;
  TRUNCATED(t, n) = committed;
  untruncated[t] = untruncated[t] & ~BIT(n)
}

/* --- re-replication: a new backup reads the objects that its primary has installed, and takes what is newer; what
 * is committed meanwhile comes by records. It is complete, and may become primary, once the recovery of that
 * configuration has ended everywhere: before, it could not vote for what was truncated before it came. --- */
#define IS_NEW(n, o) (committed == config && IN(n, BACKUPS(committed, o)) && !IN(n, complete[o]) && TAKES_PART(n))
#define CAN_COPY(n, o) (IS_NEW(n, o) && !IN(n, copied[o]) && TAKES_PART(PRIMARY(committed, o)) && lock_recovered[o] == committed)
inline copy(n, o) {
  COVER(COPIED, 1);
  VERSION(n, o) = MAX(VERSION(n, o), VERSION(PRIMARY(committed, o), o));
  copied[o] = copied[o] | BIT(n)
}
/* Every member has said so: who has died without saying it may have held the only record. */
#define RECOVERY_ENDED ((members[committed] & ~alive) == 0 && HAS_ENDED(0) && HAS_ENDED(1))
#define CAN_COMPLETE(n, o) (IS_NEW(n, o) && IN(n, copied[o]) && (fault == COMPLETE_BEFORE_RECOVERY_ENDS || RECOVERY_ENDED))
