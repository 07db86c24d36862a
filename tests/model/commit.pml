/* The commit: what txn/commit.cc (coordinator) and txn/participant.cc do without a failure. */

/* Reads are of one snapshot (opacity), so one instant stands for all of them; a locked object is waited for. The
 * region must be active: who serves no locks yet hands out no values. */
#define READABLE(t, c, o) (!IN(o, reads[t]) || (IN(PRIMARY(c, o), alive) && ACTIVE(c, o) && HOLDERS(PRIMARY(c, o), o) == 0))
#define CAN_READ(t) (phase[t] == IDLE && reads[t] != 0 && !lost_region && IN(coordinator[t], alive) && LEASE(coordinator[t]) && READABLE(t, adopted[coordinator[t]], A) && READABLE(t, adopted[coordinator[t]], B))
inline read_one(t, c, o) {
  observed[2 * t + o] = (IN(o, reads[t]) -> VERSION(PRIMARY(c, o), o) : 0)
}
inline read(t) {
  planned[t] = adopted[coordinator[t]];
  read_one(t, planned[t], A);
  read_one(t, planned[t], B);
  after[t] = (reported[1 - t] == COMMITTED);
  phase[t] = READING;
  COVER(READ_LATER, committed > 1)
}

/* A read-only transaction commits without a message; who has no lease reports nothing. */
#define CAN_REPORT_READ(t) (phase[t] == READING && writes[t] == 0 && IN(coordinator[t], alive))
inline report_read(t) {
  COVER(READ_WITHOUT_LEASE, !LEASE(coordinator[t]));
  reported[t] = (LEASE(coordinator[t]) -> COMMITTED : UNREPORTED);
  phase[t] = OVER
}

/* The configuration of the id and the participants are of one view. */
#define CAN_LOCK(t) (phase[t] == READING && writes[t] != 0 && IN(coordinator[t], alive))
inline lock(t) {
  began[t] = adopted[coordinator[t]];
  planned[t] = (fault == STALE_PLAN -> planned[t] : began[t]);
  post_lock[t] = PRIMARIES_OF(t);
  phase[t] = LOCKING;
  COVER(LOCK_LATER, began[t] > 1)
}

/* At a primary, all or nothing. Who is not the primary, or has not recovered the locks, refuses. */
#define SERVES(n, o) (PRIMARY(adopted[n], o) == n && (fault == LOCK_BEFORE_ACTIVE || ACTIVE(adopted[n], o)))
#define HERE(t, n, o) (WRITES(t, o) && PRIMARY(planned[t], o) == n)
#define LOCKABLE(t, n, o) (!HERE(t, n, o) || fault == SKIP_LOCK || (SERVES(n, o) && VERSION(n, o) == observed[2 * t + o] && HOLDERS(n, o) == 0))
inline lock_one(t, n, o) {
  if
  :: HERE(t, n, o) ->
     SEEN(t, n, o) = LOCK_SEEN;
     HOLDERS(n, o) = HOLDERS(n, o) | (y << t)
  :: else
  fi
}
inline take_lock(t, n) {
  y = LOCKABLE(t, n, A) && LOCKABLE(t, n, B);
  COVER(REFUSED, !y);
  COVER(REFUSED_INACTIVE, (HERE(t, n, A) && !SERVES(n, A)) || (HERE(t, n, B) && !SERVES(n, B)));
  lock_one(t, n, A);
  lock_one(t, n, B);
  locked_at[t] = locked_at[t] | (y << n);
  refused[t] = refused[t] | !y;
  y = 0
}

/* W is taken once all locks are held. */
#define ALL_LOCKED(t) (phase[t] == LOCKING && IN(coordinator[t], alive) && locked_at[t] == PRIMARIES_OF(t))
inline all_locked(t) {
  clock++;
  w[t] = clock;
  locked_at[t] = 0;
  if
  :: VALIDATES(t) -> phase[t] = VALIDATING
  :: else -> post_commit_backup(t)
  fi
}

inline post_commit_backup(t) {
  post_backup[t] = BACKUPS_OF(t);
  phase[t] = BACKING_UP
}

/* Refused, or a participant is gone before anything was backed up: nothing can have committed. */
#define LOST_PARTICIPANT(t) (((PRIMARIES_OF(t) | BACKUPS_OF(t)) & ~alive) != 0)
#define MUST_ABORT(t) ((phase[t] == LOCKING || phase[t] == VALIDATING) && IN(coordinator[t], alive) && (refused[t] || LOST_PARTICIPANT(t) || (phase[t] == VALIDATING && !IN(VALIDATED_AT(t), alive))))
inline abort_locked(t) {
  COVER(ABORTED_LOST, !refused[t] && LOST_PARTICIPANT(t));
  post_abort[t] = PRIMARIES_OF(t);
  reported[t] = ABORTED;
  locked_at[t] = 0;
  refused[t] = 0;
  phase[t] = ABORTING
}

/* By a READ of word 0, at the primary in the view that the coordinator has when it consumes the completion (if that
 * has changed since it began, it has aborted: adopt()), and not before that primary has said that it is active: a
 * READ asks nobody's leave. */
#define VALIDATED_AT(t) PRIMARY((fault == VALIDATE_STALE_PRIMARY -> planned[t] : adopted[coordinator[t]]), VALIDATED_OBJECT(t))
#define VALIDATION_SERVED(t) (fault == VALIDATE_BEFORE_ACTIVE || fault == VALIDATE_STALE_PRIMARY || ACTIVE(adopted[coordinator[t]], VALIDATED_OBJECT(t)))
#define CAN_VALIDATE(t) (phase[t] == VALIDATING && IN(coordinator[t], alive) && IN(VALIDATED_AT(t), alive) && VALIDATION_SERVED(t))
#define VALID(t) (fault == SKIP_VALIDATE || (VERSION(VALIDATED_AT(t), VALIDATED_OBJECT(t)) == observed[2 * t + VALIDATED_OBJECT(t)] && HOLDERS(VALIDATED_AT(t), VALIDATED_OBJECT(t)) == 0))
inline validate(t) {
  COVER(INVALID, !VALID(t));
  if
  :: VALID(t) -> post_commit_backup(t)
  :: else -> abort_locked(t)
  fi
}

/* Every COMMIT-BACKUP is acknowledged: it is in a ring. */
#define ALL_BACKED_UP(t) (phase[t] == BACKING_UP && IN(coordinator[t], alive) && (fault == SKIP_WAIT_ALL_BACKUPS || post_backup[t] == 0))
inline post_commit_primary(t) {
  post_primary[t] = PRIMARIES_OF(t);
  reported[t] = (fault == REPORT_AFTER_BACKUPS -> COMMITTED : reported[t]);
  phase[t] = COMMITTING
}

/* The first acknowledgement of a COMMIT-PRIMARY lets the coordinator report. It may report later, or die before:
 * then less is promised, so only the earliest report is looked at. */
#define CONSUMES(t) (phase[t] == COMMITTING || (fault == KEEP_ACKNOWLEDGEMENTS && phase[t] == STOPPED))
inline acknowledge_primary(t) {
  COVER(ACKNOWLEDGED_WITHOUT_LEASE, phase[t] == COMMITTING && !LEASE(coordinator[t]));
  COVER(ACKNOWLEDGED_WHEN_STOPPED, phase[t] == STOPPED && reported[t] == UNREPORTED);
  reported[t] = (CONSUMES(t) && reported[t] == UNREPORTED && LEASE(coordinator[t]) -> COMMITTED : reported[t])
}

#define ALL_COMMITTED(t) (phase[t] == COMMITTING && IN(coordinator[t], alive) && (post_primary[t] == 0 || (fault == TRUNCATE_BEFORE_ALL_PRIMARIES && post_primary[t] != PRIMARIES_OF(t))))
inline post_truncation(t) {
  /* Lazy: it is as good as not posted until it lands. */
  post_truncate[t] = PRIMARIES_OF(t) | BACKUPS_OF(t);
  phase[t] = TRUNCATING
}

/* --- a WRITE lands --- */

/* Before it acknowledges NEW-CONFIG a node takes the right to write into its rings from those who are evicted: their
 * WRITEs fail from then on. What has landed stays, for the drain. */
#define MAY_WRITE(t, n) (fault == DRAIN_BEFORE_CLOSING || IN(coordinator[t], members[adopted[n]]))
#define CAN_LAND(t, n, post) (IN(n, post) && IN(n, alive) && IN(coordinator[t], alive) && MAY_WRITE(t, n))
/* After its drain a node rejects records of transactions that recover; a member's WRITE is acknowledged all the
 * same, since nothing tells its NIC. */
#define REJECTED(t, n) (fault != SKIP_REJECTION && RECOVERING(t, drained[n]))
/* Unless lazy the receiver looks at a record when it lands (then z is left 1). What that leaves out: a record whose
 * sender dies between the two, and one that waits in the ring until the drain. Lazy instances have both. */
inline land(t, n, post, kind) {
  post = post & ~BIT(n);
  COVER(REJECTED_RECORD, REJECTED(t, n));
  z = !REJECTED(t, n) && !lazy;
  RING(t, n) = RING(t, n) | (!REJECTED(t, n) && lazy -> kind : 0)
}
inline land_lock(t, n) {
  land(t, n, post_lock[t], R_LOCK);
  if
  :: z -> z = 0; take_lock(t, n)
  :: else
  fi
}
inline land_backup(t, n) {
  land(t, n, post_backup[t], R_BACKUP);
  if
  :: z -> z = 0; take_backup(t, n, A); take_backup(t, n, B)
  :: else
  fi
}
inline land_primary(t, n) {
  acknowledge_primary(t);
  land(t, n, post_primary[t], R_PRIMARY);
  if
  :: z -> z = 0; take_commit(t, n, A); take_commit(t, n, B)
  :: else
  fi
}
inline land_abort(t, n) {
  land(t, n, post_abort[t], R_ABORT);
  if
  :: z -> z = 0; take_abort(t, n, A); take_abort(t, n, B)
  :: else
  fi
}
inline land_truncation(t, n) {
  land(t, n, post_truncate[t], R_TRUNCATE);
  if
  :: z -> z = 0; take_truncate(t, n, A); take_truncate(t, n, B); TRUNCATED(t, n) = planned[t]
  :: else
  fi
}
/* The oldest record. */
#define CAN_LOOK(t, n) (RING(t, n) != 0 && IN(n, alive))
inline look(t, n) {
  COVER(DRAINED_RECORD, drained[n] < adopted[n] && RECOVERING(t, adopted[n]));
  z = RING(t, n) & (256 - RING(t, n));
  RING(t, n) = RING(t, n) & ~z;
  if
  :: z == R_LOCK -> take_lock(t, n)
  :: z == R_BACKUP -> take_backup(t, n, A); take_backup(t, n, B)
  :: z == R_PRIMARY -> take_commit(t, n, A); take_commit(t, n, B)
  :: z == R_ABORT -> take_abort(t, n, A); take_abort(t, n, B)
  :: z == R_TRUNCATE -> take_truncate(t, n, A); take_truncate(t, n, B); TRUNCATED(t, n) = planned[t]
  fi;
  z = 0
}

inline take_backup(t, n, o) {
  if
  :: WRITES(t, o) && IN(n, BACKUPS(planned[t], o)) -> SEEN(t, n, o) = BACKUP_SEEN
  :: else
  fi
}
/* Install, if newer. */
inline apply(t, n, o) {
  COVER(OLDER_WRITE, VERSION(n, o) > w[t]);
  VERSION(n, o) = (fault == APPLY_OLDER_WRITE -> w[t] : MAX(VERSION(n, o), w[t]))
}
/* A transaction removes only itself. */
inline unlock(t, n, o) {
  HOLDERS(n, o) = (fault == ONE_LOCK_HOLDER -> 0 : HOLDERS(n, o) & ~BIT(t))
}
inline take_commit(t, n, o) {
  if
  :: HERE(t, n, o) ->
     apply(t, n, o);
     unlock(t, n, o);
     SEEN(t, n, o) = COMMIT_SEEN
  :: else
  fi
}
inline take_abort(t, n, o) {
  if
  :: HERE(t, n, o) ->
     unlock(t, n, o);
     SEEN(t, n, o) = NOTHING
  :: else
  fi
}
inline take_truncate(t, n, o) {
  if
  :: WRITES(t, o) && SEEN(t, n, o) == BACKUP_SEEN -> apply(t, n, o)
  :: else
  fi;
  SEEN(t, n, o) = NOTHING
}
