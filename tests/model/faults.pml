/* Steps that can be done wrong: tests/model/check turns each on by its number, in the instance that it names for it,
 * and requires that the verifier finds a violation. 0: none. */
#define SKIP_LOCK 1 /* LOCK says yes without looking at the object */
#define SKIP_VALIDATE 2 /* VALIDATE is not done */
#define SKIP_WAIT_ALL_BACKUPS 3 /* COMMIT-PRIMARY goes out before every COMMIT-BACKUP is acknowledged */
#define REPORT_AFTER_BACKUPS 4 /* reported when all COMMIT-BACKUPs are acknowledged, before a COMMIT-PRIMARY is */
#define TRUNCATE_BEFORE_ALL_PRIMARIES 5 /* truncated on the first acknowledgement of a COMMIT-PRIMARY */
#define APPLY_OLDER_WRITE 6 /* a replica applies a write that is older than its copy */
#define STALE_PLAN 7 /* the id has the configuration of LOCK, the participants are those of an older one */
#define LOCK_BEFORE_ACTIVE 8 /* a new primary takes LOCKs before it has recovered locks */
#define VALIDATE_BEFORE_ACTIVE 9 /* a new primary is read before it has recovered locks */
#define VALIDATE_STALE_PRIMARY 10 /* validation goes on at the primary of the older configuration */
#define KEEP_ACKNOWLEDGEMENTS 11 /* a coordinator takes acknowledgements of a transaction that recovers */
#define SKIP_LEASE_WAIT 12 /* NEW-CONFIG-COMMIT does not wait for the leases of the evicted */
#define SKIP_ACKNOWLEDGEMENTS 13 /* NEW-CONFIG-COMMIT does not wait for acknowledgements of NEW-CONFIG */
#define DRAIN_BEFORE_CLOSING 14 /* rings of the evicted are open after the drain: what is acknowledged then is rejected */
#define SKIP_DRAIN 15 /* what lies in the rings when the drain comes is lost */
#define SKIP_REJECTION 16 /* records of recovering transactions are taken after the drain */
#define FORGET_CHANGED_REGIONS 17 /* only transactions of coordinators that are gone are recovered */
#define SKIP_NEED_RECOVERY 18 /* locks are recovered without waiting for what the backups have */
#define SKIP_LOCK_RECOVERY 19 /* a new primary does not lock what recovering transactions write */
#define COMMIT_SEEN_IS_INSTALLED 20 /* a new primary does not lock what it was told, as a backup, to commit */
#define ONE_LOCK_HOLDER 21 /* who unlocks removes every holder */
#define SKIP_REPLICATION 22 /* records are not replicated to backups that lack them */
#define REPLICATE_FORGETS_STATE 23 /* a replicated record counts as a LOCK, whatever the primary knows */
#define TRUNCATED_IN_EVERY_REGION 24 /* a truncated id counts for regions that the node has become a replica of since */
#define VOTE_IGNORES_LOCK 25 /* a region that has only a LOCK votes unknown */
#define VOTE_IGNORES_ABORT 26 /* an ABORT-RECOVERY that was seen does not count */
#define SKIP_WAIT_ALL_VOTES 27 /* commit on the first vote commit-backup */
#define TRUNCATE_RECOVERY_EARLY 28 /* TRUNCATE-RECOVERY does not wait until all have acknowledged the decision */
#define DECISION_BEFORE_DRAIN 29 /* a replica takes COMMIT-RECOVERY before it has drained and recovered locks */
#define DECISION_WITHOUT_RECORD 30 /* a replica acknowledges COMMIT-RECOVERY although it lacks the record */
#define COMPLETE_BEFORE_RECOVERY_ENDS 31 /* a new backup is complete while transactions still recover */
