/* The instance, from the environment: MODEL_DEATHS=2 and the like (tests/model/check); and what of the model was
 * reached, printed at the end: a property that holds because nothing happens is worth nothing. */

#define COVER(point, when) covered[point] = covered[point] | (when)
#define READ_LATER 0
#define READ_WITHOUT_LEASE 1
#define LOCK_LATER 2
#define REFUSED 3
#define REFUSED_INACTIVE 4
#define ABORTED_LOST 5
#define INVALID 6
#define ACKNOWLEDGED_WITHOUT_LEASE 7
#define ACKNOWLEDGED_WHEN_STOPPED 8
#define REJECTED_RECORD 9
#define DRAINED_RECORD 10
#define OLDER_WRITE 11
#define DIED_LOCKING 12
#define DIED_BACKING_UP 13
#define DIED_COMMITTING 14
#define DIED_TRUNCATING 15
#define PROMOTED 16
#define NEW_BACKUP 17
#define OVERTAKEN 18
#define TWO_GONE 19
#define NOT_TOUCHED 20
#define VALIDATION_LOST_BY_CHANGE 21
#define FETCHED 22
#define LOCK_RECOVERED 23
#define TWO_HOLDERS 24
#define REPLICATED 25
#define VOTES_COMMIT_PRIMARY 26
#define VOTES_COMMIT_BACKUP 27
#define VOTES_LOCK 28
#define VOTES_ABORT 29
#define VOTES_TRUNCATED 30
#define VOTES_UNKNOWN 31
#define DECIDES_COMMIT 32
#define DECIDES_ABORT 33
#define DECIDES_AGAIN 34
#define DECIDES_REPORTED 35
#define REPORTED_BY_RECOVERY 36
#define COPIED 37
#define END_COMMITTED 38
#define END_ABORTED 39
#define END_UNREPORTED_COMMITTED 40
#define END_UNREPORTED_ABORTED 41
#define LOST_REGION 42
#define BOTH_COMMITTED 43
#define POINTS 44
hidden byte covered[POINTS];

c_decl {
  static int Setting(const char* name, int otherwise) {
    const char* value = getenv(name);
    return value == NULL ? otherwise : atoi(value);
  }
  static void PrintCovered(void);
}
inline read_instance() {
  c_code {
    coordinator[0] = Setting("MODEL_COORDINATOR_0", 2);
    coordinator[1] = Setting("MODEL_COORDINATOR_1", 0);
    writes[0] = Setting("MODEL_WRITES_0", 3);
    writes[1] = Setting("MODEL_WRITES_1", 3);
    reads[0] = Setting("MODEL_READS_0", writes[0]);
    reads[1] = Setting("MODEL_READS_1", writes[1]);
    first_primary[0] = Setting("MODEL_PRIMARY_A", 0);
    first_primary[1] = Setting("MODEL_PRIMARY_B", 1);
    first_replicas[0] = Setting("MODEL_REPLICAS_A", 7);
    first_replicas[1] = Setting("MODEL_REPLICAS_B", 7);
    max_deaths = Setting("MODEL_DEATHS", 0);
    max_evictions = Setting("MODEL_EVICTIONS", 0);
    lazy = Setting("MODEL_LAZY", 0);
    in_turn = Setting("MODEL_IN_TURN", 0);
    fault = Setting("MODEL_FAULT", 0);
    atexit(PrintCovered);
  }
}
c_code {
  static void PrintCovered(void) {
    int i;
    for (i = 0; i < POINTS; i++) {
      if (covered[i]) printf("covered %d\n", i);
    }
  }
}
