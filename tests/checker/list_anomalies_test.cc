// Known-bad histories of lists, one for each anomaly: each is found and named; and known-good ones, which
// pass.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/checker/checker.h"
#include "tests/checker/test_history.h"

namespace furrow::checker {
namespace {

using ::testing::HasSubstr;

TEST(ListCheckTest, SerialHistoryPasses) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 10, "[[:r :x []] [:append :x 1]]")
                        .Ok(20, 30, "[[:append :x 2] [:r :x [1 2]] [:append :y 1]]")
                        .Ok(40, 50, "[[:r :x [1 2]] [:r :y [1]] [:r :z nil]]")));
}

TEST(ListCheckTest, ConcurrentTransactionsMayTakeEitherOrder) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 100, "[[:append :x 1]]")
                        .Ok(0, 100, "[[:append :x 2]]")
                        .Ok(10, 90, "[[:r :x []]]")
                        .Ok(20, 90, "[[:r :x [2]]]")
                        .Ok(110, 120, "[[:r :x [2 1]]]")));
}

TEST(ListCheckTest, EqualTimesCountAsConcurrent) {
  ExpectValid(Judge(TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(10, 20, "[[:r :x []]]")));
}

TEST(ListCheckTest, UnknownTransactionMayHaveHappenedOrNot) {
  ExpectValid(Judge(TestHistory()
                        .Info(0, 10, "[[:append :x 1] [:append :y 1]]")
                        .Info(0, 10, "[[:append :x 2]]")
                        .Ok(20, 30, "[[:r :x []] [:r :y []]]")
                        .Ok(40, 50, "[[:r :x [1]] [:r :y [1]]]")
                        .Ok(60, 70, "[[:r :x [1]] [:append :x 3]]")));
}

TEST(ListCheckTest, RetryMayUseTheFailedAttemptsValue) {
  ExpectValid(Judge(TestHistory()
                        .Fail(0, 10, "[[:r :x []] [:append :x 1]]")
                        .Ok(20, 30, "[[:r :x []] [:append :x 1]]")
                        .Ok(40, 50, "[[:r :x [1]]]")));
}

TEST(ListCheckTest, FindsG0) {
  // x says T1 before T2, y the opposite.
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1] [:append :y 1]]")
                        .Ok(0, 10, "[[:append :x 2] [:append :y 2]]")
                        .Ok(20, 30, "[[:r :x [1 2]]]")
                        .Ok(20, 30, "[[:r :y [2 1]]]")),
              AnomalyKind::kG0, false);
}

TEST(ListCheckTest, FindsG1a) {
  ExpectFound(Judge(TestHistory().Fail(0, 10, "[[:append :x 1]]").Ok(20, 30, "[[:r :x [1]]]")),
              AnomalyKind::kG1a, false);
}

TEST(ListCheckTest, FindsG1b) {
  ExpectFound(Judge(TestHistory().Ok(0, 100, "[[:append :x 1] [:append :x 2]]").Ok(20, 30, "[[:r :x [1]]]")),
              AnomalyKind::kG1b, false);
}

TEST(ListCheckTest, FindsG1c) {
  ExpectFound(
      Judge(
          TestHistory().Ok(0, 10, "[[:append :x 1] [:r :y [1]]]").Ok(0, 10, "[[:append :y 1] [:r :x [1]]]")),
      AnomalyKind::kG1c, false);
}

TEST(ListCheckTest, FindsLostUpdate) {
  const Verdict verdict = Judge(TestHistory()
                                    .Ok(0, 10, "[[:append :x 1]]")
                                    .Ok(20, 40, "[[:r :x [1]] [:append :x 2]]")
                                    .Ok(20, 40, "[[:r :x [1]] [:append :x 3]]")
                                    .Ok(50, 60, "[[:r :x [1 2 3]]]"));
  ExpectFound(verdict, AnomalyKind::kLostUpdate, false);
  ExpectFound(verdict, AnomalyKind::kGSingle, false, "lost update");
}

TEST(ListCheckTest, FindsLostUpdateThatNobodyReadAfterwards) {
  const Verdict verdict = Judge(
      TestHistory().Ok(20, 40, "[[:r :x []] [:append :x 2]]").Ok(20, 40, "[[:r :x []] [:append :x 3]]"));
  ExpectFound(verdict, AnomalyKind::kLostUpdate, false);
  ExpectFound(verdict, AnomalyKind::kG2Item, false, "write skew");
}

TEST(ListCheckTest, FindsFracturedRead) {
  ExpectFound(
      Judge(
          TestHistory().Ok(0, 100, "[[:append :x 1] [:append :y 1]]").Ok(10, 90, "[[:r :x [1]] [:r :y []]]")),
      AnomalyKind::kGSingle, false, "fractured read");
}

TEST(ListCheckTest, FindsReadSkewAcrossTwoWriters) {
  // T3 misses T1's x but sees T2's y, which T2 appended after it saw T1's x.
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 100, "[[:append :x 1]]")
                        .Ok(0, 100, "[[:r :x [1]] [:append :y 1]]")
                        .Ok(0, 100, "[[:r :x []] [:r :y [1]]]")),
              AnomalyKind::kGSingle, false);
}

TEST(ListCheckTest, FindsWriteSkew) {
  ExpectFound(
      Judge(TestHistory().Ok(0, 10, "[[:r :x []] [:append :y 1]]").Ok(0, 10, "[[:r :y []] [:append :x 1]]")),
      AnomalyKind::kG2Item, false, "write skew");
}

TEST(ListCheckTest, FindsLongFork) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 100, "[[:append :x 1]]")
                        .Ok(0, 100, "[[:append :y 1]]")
                        .Ok(0, 100, "[[:r :x [1]] [:r :y []]]")
                        .Ok(0, 100, "[[:r :x []] [:r :y [1]]]")),
              AnomalyKind::kG2Item, false, "long fork");
}

TEST(ListCheckTest, FindsStaleRead) {
  const TestHistory stale = TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(11, 20, "[[:r :x []]]");
  ExpectFound(Judge(stale), AnomalyKind::kGSingle, true, "stale read");
  ExpectValid(Judge(stale, {.real_time = false}));
}

TEST(ListCheckTest, FindsStaleReadBehindManyOthers) {
  TestHistory history;
  history.Ok(0, 10, "[[:append :x 1]]");
  for (int i = 0; i < 50; ++i)
    history.Ok(20 + 10 * i, 25 + 10 * i, "[[:append :y " + std::to_string(i) + "]]");
  history.Ok(1000, 1010, "[[:r :x []]]");
  const Verdict verdict = Judge(history);
  ExpectFound(verdict, AnomalyKind::kGSingle, true, "stale read");
  EXPECT_EQ(verdict.anomalies[0].operations.size(), 2u) << verdict.ToString();
}

TEST(ListCheckTest, FindsReadFromTheFuture) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:r :x [1]]]").Ok(20, 30, "[[:append :x 1]]")),
              AnomalyKind::kG1c, true, "read from the future");
}

TEST(ListCheckTest, FindsWritesAgainstRealTime) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1]]")
                        .Ok(20, 30, "[[:append :x 2]]")
                        .Ok(40, 50, "[[:r :x [2 1]]]")),
              AnomalyKind::kG0, true);
}

TEST(ListCheckTest, FindsProcessThatMissesItsOwnWrite) {
  // No time passes between the two, yet a process keeps its order.
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1]]", 7).Ok(10, 20, "[[:r :x []]]", 7)),
              AnomalyKind::kGSingle, true, "stale read");
}

TEST(ListCheckTest, FindsDuplicateAppend) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(20, 30, "[[:r :x [1 1]]]")),
              AnomalyKind::kDuplicate, false);
}

TEST(ListCheckTest, FindsPhantom) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(20, 30, "[[:r :x [1 9]]]")),
              AnomalyKind::kPhantom, false);
}

TEST(ListCheckTest, FindsIncompatibleOrders) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1]]")
                        .Ok(0, 10, "[[:append :x 2]]")
                        .Ok(20, 30, "[[:r :x [1 2]]]")
                        .Ok(20, 30, "[[:r :x [2 1]]]")),
              AnomalyKind::kIncompatibleOrder, false);
}

TEST(ListCheckTest, FindsAppendsOfOneTransactionOutOfOrder) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1] [:append :x 2]]").Ok(20, 30, "[[:r :x [2 1]]]")),
              AnomalyKind::kIncompatibleOrder, false, "appends of one transaction out of order");
}

TEST(ListCheckTest, FindsAppendsOfOneTransactionTornApart) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1] [:append :x 2]]")
                        .Ok(0, 10, "[[:append :x 3]]")
                        .Ok(20, 30, "[[:r :x [1 3 2]]]")),
              AnomalyKind::kG0, false);
}

TEST(ListCheckTest, FindsTransactionThatMissesItsOwnAppend) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1] [:r :x []]]")), AnomalyKind::kInternal, false);
}

TEST(ListCheckTest, FindsReadThatDoesNotRepeat) {
  ExpectFound(Judge(TestHistory().Ok(0, 50, "[[:append :x 1]]").Ok(0, 50, "[[:r :x []] [:r :x [1]]]")),
              AnomalyKind::kInternal, false);
}

TEST(ListCheckTest, FindsTransactionThatReadsItsOwnLaterAppend) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:r :x [1]] [:append :x 1]]")), AnomalyKind::kInternal, false);
}

TEST(ListCheckTest, FindsUnknownTransactionHalfSeen) {
  const Verdict verdict = Judge(
      TestHistory().Info(0, 10, "[[:append :x 1] [:append :y 1]]").Ok(20, 30, "[[:r :x [1]] [:r :y []]]"));
  ExpectFound(verdict, AnomalyKind::kGSingle, false, "fractured read");
  EXPECT_EQ(verdict.committed, 2u);
}

TEST(ListCheckTest, FindsUnknownTransactionThatVanishes) {
  ExpectFound(Judge(TestHistory()
                        .Info(0, 10, "[[:append :x 1]]")
                        .Ok(20, 30, "[[:r :x [1]] [:append :y 1]]")
                        .Ok(40, 50, "[[:r :x []]]")),
              AnomalyKind::kGSingle, true);
}

TEST(ListCheckTest, FindsLostAppendOfACommittedTransaction) {
  // Both were reported committed before T3 began; x holds one of them only.
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1]]")
                        .Ok(0, 10, "[[:append :x 2]]")
                        .Ok(20, 30, "[[:r :x [2]]]")),
              AnomalyKind::kGSingle, true, "stale read");
}

// ---- opacity ----

TEST(OpacityTest, AbortedTransactionMustReadOneSnapshot) {
  const TestHistory torn = TestHistory()
                               .Ok(0, 100, "[[:append :x 1] [:append :y 1]]")
                               .Fail(10, 90, "[[:r :x [1]] [:r :y []] [:append :z 1]]");
  const Verdict verdict = Judge(torn);
  ExpectFound(verdict, AnomalyKind::kGSingle, false, "fractured read");
  EXPECT_TRUE(verdict.anomalies[0].opacity);
  EXPECT_THAT(verdict.ToString(), HasSubstr("in an uncommitted transaction"));
  ExpectValid(Judge(torn, {.opacity = false}));
}

TEST(OpacityTest, AbortedTransactionMustNotReadAStaleSnapshot) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:append :x 1]]").Fail(20, 30, "[[:r :x []] [:append :x 2]]")),
              AnomalyKind::kGSingle, true, "stale read");
}

TEST(OpacityTest, AbortedTransactionSeesItsOwnWritesAndASnapshot) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 10, "[[:append :x 1]]")
                        .Fail(20, 30, "[[:append :x 2] [:r :x [1 2]] [:r :y nil]]")
                        .Fail(20, 30, "[[:r :x [1]] [:append :x 3]]")
                        .Ok(20, 30, "[[:r :x [1]] [:append :x 4]]")));
}

TEST(OpacityTest, UnknownTransactionThatNobodySawMustReadOneSnapshot) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 100, "[[:append :x 1] [:append :y 1]]")
                        .Info(10, 90, "[[:r :x [1]] [:r :y []] [:append :z 1]]")),
              AnomalyKind::kGSingle, false, "fractured read");
}

}  // namespace
}  // namespace furrow::checker
