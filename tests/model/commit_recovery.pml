/* A model of Furrow's commit and of the recovery of transactions, for spin. docs/internals/recovery.md explains
 * the protocol and what the model leaves out; tests/model/check compiles it once and runs its instances.
 *
 * Three storage nodes and perhaps a compute node, two objects A and B (each a region of its own), two transactions
 * with one attempt each. Nodes die
 * (process and memory are gone) or are evicted while they live (slow: they go on with what they knew). A state is
 * the memory of all nodes; a step is one d_step of the one process below, which chooses any step that is enabled.
 *
 * Why a step may be one d_step: each reads and writes the memory of one node, or is one one-sided operation, which
 * the receiver's NIC carries out at one instant (a record is in a ring or is not: its checksum says so). What a
 * node learns by a message is read at the instant at which the step happens; that is sound where the sender's
 * state cannot change between sending and then, and each place that relies on it says why.
 *
 * Every step uses something up, so that every run ends. The properties are judged where nothing is left to do
 * (properties.pml); a lock that is held for ever is one that is held there.
 */

/* --- sets are bytes, bit i is member i --- */
#define BIT(i) (1 << (i))
#define IN(i, set) (((set) >> (i)) & 1)
#define COUNT(set) (IN(0, set) + IN(1, set) + IN(2, set))
#define LOWEST(set) (IN(0, set) -> 0 : (IN(1, set) -> 1 : 2))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
/* Nodes 0 to 2 are storage members; node 3, if a transaction is coordinated there, is a compute member. */
#define STORAGE 7
#define COMPUTE 3
#define NOBODY 7 /* no node */
#define A 0
#define B 1

/* --- the instance: constants, read from the environment at the start (instance.pml). Hidden variables are no part
 * of the state. --- */
hidden byte coordinator[2];   /* by transaction */
hidden byte writes[2];        /* sets of objects */
hidden byte reads[2];         /* what it writes, too */
hidden byte first_primary[2]; /* by object */
hidden byte first_replicas[2];
hidden byte max_deaths, max_evictions;
hidden byte lazy;             /* a record in a ring is looked at later than it lands; see land() */
hidden byte in_turn;          /* transaction 1 is recovered after transaction 0; see MY_TURN */
hidden byte fault;            /* the step that is done wrong; faults.pml */
hidden byte x, y, z;          /* for use within one step, 0 between steps */

/* --- the cluster; configurations are numbered from 1 --- */
byte alive;             /* processes that run */
byte members[5];        /* by configuration */
byte primary[10];       /* by 2 * configuration + object */
byte replicas[10];
byte config = 1;        /* newest in the store */
byte committed = 1;     /* newest for which NEW-CONFIG-COMMIT was sent */
byte adopted[4];        /* newest whose NEW-CONFIG the node has applied */
byte drained[3];        /* LastDrained */
byte lock_recovered[2]; /* newest in which the object's primary has recovered locks */
byte complete[2];       /* replicas that may become primary: a new backup only later, see recovery.pml */
byte copied[2];         /* new backups that have copied what their primary had installed then */
byte deaths, evictions;
bit lost_region;        /* every complete copy of a region died, more than replication bears; the run ends */

#define PRIMARY(c, o) primary[2 * (c) + (o)]
#define REPLICAS(c, o) replicas[2 * (c) + (o)]
#define BACKUPS(c, o) (REPLICAS(c, o) & ~BIT(PRIMARY(c, o)))
/* What a lease is worth: nobody who was evicted has one once the eviction is committed (the manager waits). */
#define LEASE(n) (fault == SKIP_LEASE_WAIT || IN(n, members[committed]))
/* The primary of configuration c has recovered the locks, or was primary when it had nothing to recover. (Who still
 * lives in an older configuration finds what was active then.) */
#define ACTIVE(c, o) (lock_recovered[o] >= (c) || PRIMARY(c, o) == PRIMARY(lock_recovered[o], o))

/* --- memory of the nodes --- */
byte version[6]; /* word 0's timestamp of each copy, by 2 * node + object */
byte holders[6]; /* lock table: set of transactions; not empty = the lock bit is set */
#define VERSION(n, o) version[2 * (n) + (o)]
#define HOLDERS(n, o) holders[2 * (n) + (o)]

/* What a node's records say of a transaction's write to an object; higher says more. */
#define NOTHING 0
#define LOCK_SEEN 1   /* LOCK: the new value is here */
#define BACKUP_SEEN 2 /* COMMIT-BACKUP: the new value and W */
#define COMMIT_SEEN 3 /* COMMIT-PRIMARY or COMMIT-RECOVERY */
byte seen[12];
#define SEEN(t, n, o) seen[6 * (t) + 2 * (n) + (o)]
/* ABORT-RECOVERY has come. */
bit abort_seen[6];
#define ABORT_SEEN(t, n) abort_seen[3 * (t) + (n)]
/* The configuration by whose replicas it was truncated here, 0: it was not. That says nothing of a region of which
 * the node has become a replica later. */
byte truncated[6];
#define TRUNCATED(t, n) truncated[3 * (t) + (n)]
#define HAS_TRUNCATED(t, n, o) (TRUNCATED(t, n) != 0 && (fault == TRUNCATED_IN_EVERY_REGION || IN(n, REPLICAS(TRUNCATED(t, n), o))))
/* Records in the ring that the receiver has not looked at; only if lazy. Bits in order of arrival. */
#define R_LOCK 1
#define R_BACKUP 2
#define R_PRIMARY 4
#define R_ABORT 8
#define R_TRUNCATE 16
byte ring[6];
#define RING(t, n) ring[3 * (t) + (n)]

/* --- coordinators --- */
#define IDLE 0
#define READING 1     /* has read, has not begun to commit */
#define LOCKING 2
#define VALIDATING 3
#define BACKING_UP 4  /* COMMIT-BACKUPs are posted */
#define COMMITTING 5  /* COMMIT-PRIMARYs are posted */
#define TRUNCATING 6
#define ABORTING 7    /* ABORTs are posted */
#define STOPPED 8     /* recovering: waits for what recovery decides */
#define OVER 9
#define DEAD 10
byte phase[2];
/* WRITEs on their way, sets of receivers. A WRITE lands or, if its sender or its receiver dies, does not. */
byte post_lock[2], post_backup[2], post_primary[2], post_abort[2], post_truncate[2];
byte locked_at[2];    /* primaries whose LOCK-REPLY says yes */
bit refused[2];       /* one says no */
byte planned[2];      /* configuration in which it chose whom to write to */
byte began[2];        /* configuration in its id, the same; 0: it has not begun to commit */
byte observed[4];     /* version read, by 2 * transaction + object */
byte w[2];            /* write timestamp; 0: none yet */
byte clock;           /* of the cluster: every timestamp once, ever growing */
#define UNREPORTED 0
#define COMMITTED 1
#define ABORTED 2
byte reported[2];
bit after[2];         /* began to read after the other one was reported committed */

/* --- recovery --- */
#define NO_VOTE 0
#define VOTE_COMMIT_PRIMARY 1
#define VOTE_COMMIT_BACKUP 2
#define VOTE_LOCK 3
#define VOTE_ABORT 4
#define VOTE_TRUNCATED 5
#define VOTE_UNKNOWN 6
byte vote[4];         /* at the recovery coordinator, in the committed configuration; by 2 * transaction + object */
byte decision[2];     /* COMMITTED or ABORTED */
byte decided_in[2];   /* configuration */
byte told[2];         /* nodes that have acknowledged COMMIT-RECOVERY or ABORT-RECOVERY */
byte untruncated[2];  /* nodes that TRUNCATE-RECOVERY has not reached; only after a decision */

#define WRITES(t, o) IN(o, writes[t])
#define PRIMARIES_OF(t) ((WRITES(t, A) -> BIT(PRIMARY(planned[t], A)) : 0) | (WRITES(t, B) -> BIT(PRIMARY(planned[t], B)) : 0))
#define BACKUPS_OF(t) ((WRITES(t, A) -> BACKUPS(planned[t], A) : 0) | (WRITES(t, B) -> BACKUPS(planned[t], B) : 0))
#define REPLICAS_OF(c, t) ((WRITES(t, A) -> REPLICAS(c, A) : 0) | (WRITES(t, B) -> REPLICAS(c, B) : 0))
/* What it reads and does not write: at most one object in every instance. */
#define VALIDATES(t) ((reads[t] & ~writes[t]) != 0)
#define VALIDATED_OBJECT(t) (IN(A, reads[t] & ~writes[t]) -> A : B)

/* A transaction that began before configuration c goes through recovery in c if its coordinator is no member, or
 * a written region has other replicas. Participants and coordinator judge alike. */
#define CHANGED(t, c, o) (fault != FORGET_CHANGED_REGIONS && WRITES(t, o) && REPLICAS(c, o) != REPLICAS(began[t], o))
#define RECOVERING(t, c) (began[t] != 0 && began[t] < (c) && (!IN(coordinator[t], members[c]) || CHANGED(t, c, A) || CHANGED(t, c, B)))
/* The original coordinator while it is a storage member; else one that all agree on. */
#define RECOVERY_COORDINATOR(t) (IN(coordinator[t], members[committed] & STORAGE) -> coordinator[t] : LOWEST(members[committed]))

#include "faults.pml"
#include "instance.pml"
#include "commit.pml"
#include "recovery.pml"
#include "properties.pml"

/* The steps of one transaction, and those of it at one node. What is printed makes up a trace. */
#define COMMIT_STEPS(t) \
  :: d_step { CAN_READ(t) -> printf("T%d reads\n", t); read(t) } \
  :: d_step { CAN_REPORT_READ(t) -> printf("T%d ends, read-only\n", t); report_read(t) } \
  :: d_step { CAN_LOCK(t) -> printf("T%d posts LOCK\n", t); lock(t) } \
  :: d_step { ALL_LOCKED(t) -> printf("T%d is locked and takes W\n", t); all_locked(t) } \
  :: d_step { MUST_ABORT(t) -> printf("T%d aborts\n", t); abort_locked(t) } \
  :: d_step { CAN_VALIDATE(t) -> printf("T%d validates\n", t); validate(t) } \
  :: d_step { ALL_BACKED_UP(t) -> printf("T%d posts COMMIT-PRIMARY\n", t); post_commit_primary(t) } \
  :: d_step { ALL_COMMITTED(t) -> printf("T%d may be truncated\n", t); post_truncation(t) } \
  :: d_step { CAN_VOTE(t, A) -> printf("T%d: vote of A\n", t); cast(t, A) } \
  :: d_step { CAN_VOTE(t, B) -> printf("T%d: vote of B\n", t); cast(t, B) } \
  :: d_step { CAN_DECIDE(t) -> printf("T%d is decided\n", t); decide(t) }
#define NODE_STEPS(t, n) \
  :: d_step { CAN_LAND(t, n, post_lock[t]) -> printf("T%d: LOCK lands at %d\n", t, n); land_lock(t, n) } \
  :: d_step { CAN_LAND(t, n, post_backup[t]) -> printf("T%d: COMMIT-BACKUP lands at %d\n", t, n); land_backup(t, n) } \
  :: d_step { CAN_LAND(t, n, post_primary[t]) -> printf("T%d: COMMIT-PRIMARY lands at %d\n", t, n); land_primary(t, n) } \
  :: d_step { CAN_LAND(t, n, post_abort[t]) && !IN(n, post_lock[t]) -> printf("T%d: ABORT lands at %d\n", t, n); land_abort(t, n) } \
  :: d_step { CAN_LAND(t, n, post_truncate[t]) -> printf("T%d: truncation lands at %d\n", t, n); land_truncation(t, n) } \
  :: d_step { CAN_LOOK(t, n) -> printf("T%d: node %d looks at its oldest record\n", t, n); look(t, n) } \
  :: d_step { CAN_REPLICATE(t, n, A) -> printf("T%d: record of A replicated to %d\n", t, n); replicate(t, n, A) } \
  :: d_step { CAN_REPLICATE(t, n, B) -> printf("T%d: record of B replicated to %d\n", t, n); replicate(t, n, B) } \
  :: d_step { CAN_TELL(t, n) -> printf("T%d: node %d is told the decision\n", t, n); tell(t, n) } \
  :: d_step { CAN_TRUNCATE(t, n) -> printf("T%d: TRUNCATE-RECOVERY at %d\n", t, n); truncate_recovered(t, n) }
#define CHANGE_STEPS(n) \
  :: d_step { CAN_EVICT(n) -> printf("node %d is evicted and lives\n", n); evictions++; reconfigure(n) } \
  :: d_step { CAN_ADOPT(n) -> printf("node %d applies NEW-CONFIG\n", n); adopt(n) }
#define MEMBER_STEPS(n) \
  :: d_step { CAN_DIE(n) -> printf("node %d dies\n", n); die(n) } \
  CHANGE_STEPS(n) \
  :: d_step { CAN_DRAIN(n) -> printf("node %d drains\n", n); drain(n) } \
  :: d_step { CAN_COPY(n, A) -> printf("node %d has a copy of A\n", n); copy(n, A) } \
  :: d_step { CAN_COPY(n, B) -> printf("node %d has a copy of B\n", n); copy(n, B) } \
  :: d_step { CAN_COMPLETE(n, A) -> printf("node %d may become primary of A\n", n); complete[A] = complete[A] | BIT(n) } \
  :: d_step { CAN_COMPLETE(n, B) -> printf("node %d may become primary of B\n", n); complete[B] = complete[B] | BIT(n) }

active proctype furrow() {
  d_step {
    read_instance();
    members[1] = STORAGE | (coordinator[0] == COMPUTE || coordinator[1] == COMPUTE -> BIT(COMPUTE) : 0);
    alive = members[1];
    PRIMARY(1, A) = first_primary[A];
    PRIMARY(1, B) = first_primary[B];
    REPLICAS(1, A) = first_replicas[A];
    REPLICAS(1, B) = first_replicas[B];
    complete[A] = first_replicas[A];
    complete[B] = first_replicas[B];
    lock_recovered[A] = 1;
    lock_recovered[B] = 1;
    adopted[0] = 1; adopted[1] = 1; adopted[2] = 1; adopted[COMPUTE] = 1;
    drained[0] = 1; drained[1] = 1; drained[2] = 1;
  }
  do
  COMMIT_STEPS(0)
  COMMIT_STEPS(1)
  NODE_STEPS(0, 0)
  NODE_STEPS(0, 1)
  NODE_STEPS(0, 2)
  NODE_STEPS(1, 0)
  NODE_STEPS(1, 1)
  NODE_STEPS(1, 2)
  MEMBER_STEPS(0)
  MEMBER_STEPS(1)
  MEMBER_STEPS(2)
  CHANGE_STEPS(COMPUTE)
  :: d_step { CAN_DIE(COMPUTE) -> printf("node %d dies\n", COMPUTE); die_coordinator(COMPUTE) }
  :: d_step { MEMBER_DIED -> printf("the dead are removed\n"); reconfigure(NOBODY) }
  :: d_step { CAN_COMMIT_CONFIG -> printf("NEW-CONFIG-COMMIT\n"); commit_config() }
  :: d_step { CAN_RECOVER_LOCKS(A) -> printf("locks of A are recovered\n"); recover_locks(A) }
  :: d_step { CAN_RECOVER_LOCKS(B) -> printf("locks of B are recovered\n"); recover_locks(B) }
  :: else -> break
  od;
  judge()
}
