/* What must hold where nothing is left to do. A copy's version names the transaction that wrote it (a timestamp is
 * given once), so a version stands for the value. */

#define COPY(n, o) (IN(n, members[config]) && IN(n, REPLICAS(config, o)))
#define WROTE(t, o) (w[t] != 0 && WRITES(t, o))

/* Some surviving copy has what t wrote. (What is overwritten is judged by who read it.) */
#define IS_AT(t, n, o) (WROTE(t, o) && COPY(n, o) && VERSION(n, o) == w[t])
#define ANYWHERE(t) (IS_AT(t, 0, A) || IS_AT(t, 1, A) || IS_AT(t, 2, A) || IS_AT(t, 0, B) || IS_AT(t, 1, B) || IS_AT(t, 2, B))
/* Every surviving copy has it, or something newer. */
#define COVERED_AT(t, n, o) (!WRITES(t, o) || !COPY(n, o) || VERSION(n, o) >= w[t])
#define EVERYWHERE(t) (w[t] != 0 && COVERED_AT(t, 0, A) && COVERED_AT(t, 1, A) && COVERED_AT(t, 2, A) && COVERED_AT(t, 0, B) && COVERED_AT(t, 1, B) && COVERED_AT(t, 2, B))
#define WAS_READ_AT(t, o) (IN(o, reads[1 - (t)]) && WROTE(t, o) && phase[1 - (t)] != IDLE && observed[2 * (1 - (t)) + (o)] == w[t])
#define WAS_READ(t) (WAS_READ_AT(t, A) || WAS_READ_AT(t, B))
#define HAS_COMMITTED(t) (reported[t] == COMMITTED || ANYWHERE(t) || WAS_READ(t))

inline judge_node(n) {
  if
  :: IN(n, members[config]) ->
     /* No lock for ever, and no record: recovery and truncation have come to an end. */
     assert(HOLDERS(n, A) == 0 && HOLDERS(n, B) == 0);
     assert(SEEN(0, n, A) == NOTHING && SEEN(0, n, B) == NOTHING);
     assert(SEEN(1, n, A) == NOTHING && SEEN(1, n, B) == NOTHING);
     assert(RING(0, n) == 0 && RING(1, n) == 0);
     /* Primary and backups agree. */
     assert(!COPY(n, A) || VERSION(n, A) == VERSION(PRIMARY(config, A), A));
     assert(!COPY(n, B) || VERSION(n, B) == VERSION(PRIMARY(config, B), B))
  :: else
  fi
}
inline judge_transaction(t) {
  /* Reported committed stays committed; reported aborted leaves nothing; all or nothing. */
  assert(reported[t] != COMMITTED || writes[t] == 0 || EVERYWHERE(t));
  assert(reported[t] != ABORTED || (!ANYWHERE(t) && !WAS_READ(t)));
  assert((!ANYWHERE(t) && !WAS_READ(t)) || EVERYWHERE(t));
  /* Whose coordinator lives learns the outcome. */
  assert(!IN(coordinator[t], members[config]) || reported[t] != UNREPORTED || phase[t] == IDLE);
  COVER(END_COMMITTED, reported[t] == COMMITTED);
  COVER(END_ABORTED, reported[t] == ABORTED);
  COVER(END_UNREPORTED_COMMITTED, reported[t] == UNREPORTED && ANYWHERE(t));
  COVER(END_UNREPORTED_ABORTED, reported[t] == UNREPORTED && began[t] != 0 && !ANYWHERE(t))
}

/* a before b: b has read or replaced what a wrote; a has read what b has replaced; or a was reported before b began. */
#define READ_FROM(a, b, o) (WROTE(a, o) && IN(o, reads[b]) && observed[2 * (b) + (o)] >= w[a])
#define OVERWRITTEN(a, b, o) (WROTE(b, o) && IN(o, reads[a]) && observed[2 * (a) + (o)] < w[b])
#define WRITE_ORDER(a, b, o) (WROTE(a, o) && WROTE(b, o) && w[a] < w[b])
#define EDGE(a, b, o) (READ_FROM(a, b, o) || OVERWRITTEN(a, b, o) || WRITE_ORDER(a, b, o))
#define BEFORE(a, b) (EDGE(a, b, A) || EDGE(a, b, B) || after[b])

inline judge() {
  d_step {
    COVER(LOST_REGION, lost_region);
    COVER(BOTH_COMMITTED, HAS_COMMITTED(0) && HAS_COMMITTED(1));
    if
    :: lost_region
    :: else ->
       judge_node(0);
       judge_node(1);
       judge_node(2);
       judge_transaction(0);
       judge_transaction(1);
       /* Strictly serializable, and W agrees with the order: snapshots rely on that. */
       x = HAS_COMMITTED(0) && HAS_COMMITTED(1) && BEFORE(0, 1);
       y = HAS_COMMITTED(0) && HAS_COMMITTED(1) && BEFORE(1, 0);
       assert(!(x && y));
       assert(w[0] == 0 || w[1] == 0 || (!(x && w[0] > w[1]) && !(y && w[1] > w[0])));
       x = 0;
       y = 0
    fi
  }
}
