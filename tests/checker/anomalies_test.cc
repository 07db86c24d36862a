// Known-bad and known-good histories of registers, counters and banks; histories that cannot be judged; the
// printed form.
#include "gtest/gtest.h"
#include "tests/checker/checker.h"
#include "tests/checker/test_history.h"

namespace furrow::checker {
namespace {

TEST(RegisterCheckTest, SerialHistoryPasses) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 10, "[[:r :x nil] [:w :x 1] [:r :x 1]]")
                        .Ok(20, 30, "[[:w :x 2] [:w :x 3]]")
                        .Ok(40, 50, "[[:r :x 3] [:w :x 4] [:w :y 1]]")
                        .Ok(60, 70, "[[:r :x 4] [:r :y 1]]")));
}

TEST(RegisterCheckTest, ConcurrentBlindWritesMayTakeEitherOrder) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 100, "[[:w :x 1]]")
                        .Ok(0, 100, "[[:w :x 2]]")
                        .Ok(10, 20, "[[:r :x 2]]")
                        .Ok(110, 120, "[[:r :x 1]]")));
}

TEST(RegisterCheckTest, InitialValueMayBeGiven) {
  const TestHistory history = TestHistory().Ok(0, 10, "[[:r :x 0] [:w :x 1]]").Ok(20, 30, "[[:r :x 0]]");
  ExpectFound(Judge(history), AnomalyKind::kPhantom, false);
  ExpectFound(Judge(history, {.initial_register = 0}), AnomalyKind::kGSingle, true, "stale read");
}

TEST(RegisterCheckTest, FindsG0) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:r :x 2] [:w :x 1]]").Ok(0, 10, "[[:r :x 1] [:w :x 2]]")),
              AnomalyKind::kG0, false);
}

TEST(RegisterCheckTest, FindsG1a) {
  ExpectFound(Judge(TestHistory().Fail(0, 10, "[[:w :x 1]]").Ok(20, 30, "[[:r :x 1]]")), AnomalyKind::kG1a,
              false);
}

TEST(RegisterCheckTest, FindsG1b) {
  ExpectFound(Judge(TestHistory().Ok(0, 100, "[[:w :x 1] [:w :x 2]]").Ok(20, 30, "[[:r :x 1]]")),
              AnomalyKind::kG1b, false);
}

TEST(RegisterCheckTest, FindsG1c) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:w :x 1] [:r :y 1]]").Ok(0, 10, "[[:w :y 1] [:r :x 1]]")),
              AnomalyKind::kG1c, false);
}

TEST(RegisterCheckTest, FindsLostUpdate) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:w :x 1]]")
                        .Ok(20, 40, "[[:r :x 1] [:w :x 2]]")
                        .Ok(20, 40, "[[:r :x 1] [:w :x 3]]")),
              AnomalyKind::kLostUpdate, false);
}

TEST(RegisterCheckTest, FindsFracturedRead) {
  ExpectFound(Judge(TestHistory().Ok(0, 100, "[[:w :x 1] [:w :y 1]]").Ok(10, 90, "[[:r :x 1] [:r :y nil]]")),
              AnomalyKind::kGSingle, false, "fractured read");
}

TEST(RegisterCheckTest, FindsFracturedReadOfReplacedVersions) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:w :x 1] [:w :y 1]]")
                        .Ok(20, 100, "[[:r :x 1] [:w :x 2] [:r :y 1] [:w :y 2]]")
                        .Ok(20, 100, "[[:r :x 2] [:r :y 1]]")),
              AnomalyKind::kGSingle, false, "fractured read");
}

TEST(RegisterCheckTest, FindsWriteSkew) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:r :x nil] [:w :y 1]]").Ok(0, 10, "[[:r :y nil] [:w :x 1]]")),
              AnomalyKind::kG2Item, false, "write skew");
}

TEST(RegisterCheckTest, FindsLongFork) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 100, "[[:w :x 1]]")
                        .Ok(0, 100, "[[:w :y 1]]")
                        .Ok(0, 100, "[[:r :x 1] [:r :y nil]]")
                        .Ok(0, 100, "[[:r :x nil] [:r :y 1]]")),
              AnomalyKind::kG2Item, false, "long fork");
}

TEST(RegisterCheckTest, FindsStaleReadOfBlindWrites) {
  ExpectFound(
      Judge(TestHistory().Ok(0, 10, "[[:w :x 1]]").Ok(20, 30, "[[:w :x 2]]").Ok(40, 50, "[[:r :x 1]]")),
      AnomalyKind::kGSingle, true, "stale read");
}

TEST(RegisterCheckTest, FindsStaleReadByATransactionThatWritesToo) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 10, "[[:w :x 1]]")
                        .Ok(20, 30, "[[:w :x 2]]")
                        .Ok(40, 50, "[[:r :x 1] [:w :x 3]]")),
              AnomalyKind::kGSingle, true, "stale read");
}

TEST(RegisterCheckTest, VersionThatWasReadIsThereEvenIfItsWriterIsUnknown) {
  ExpectFound(Judge(TestHistory()
                        .Info(0, 100, "[[:w :x 1]]")
                        .Ok(5, 10, "[[:r :x 1]]")
                        .Ok(20, 30, "[[:w :x 2]]")
                        .Ok(40, 50, "[[:r :x 1]]")),
              AnomalyKind::kGSingle, true, "stale read");
}

TEST(RegisterCheckTest, FindsTransactionThatMissesItsOwnWrite) {
  ExpectFound(Judge(TestHistory().Ok(0, 10, "[[:w :x 1]]").Ok(20, 30, "[[:w :x 2] [:r :x 1]]")),
              AnomalyKind::kInternal, false);
}

// ---- counters and banks ----

TEST(CounterCheckTest, CountersBetweenTheirBoundsPass) {
  ExpectValid(Judge(TestHistory()
                        .Ok(0, 10, "[[:inc :x 1] [:r :x 1]]")
                        .Ok(20, 60, "[[:inc :x 1]]")
                        .Ok(30, 40, "[[:r :x 2] [:inc :y 1]]")
                        .Info(20, 60, "[[:inc :x 1]]")
                        .Ok(70, 80, "[[:r :x 3] [:r :y 1]]")
                        .Ok(70, 80, "[[:r :x 3] [:inc :x 1] [:r :x 4]]")));
}

TEST(CounterCheckTest, FindsLostIncrement) {
  ExpectFound(
      Judge(TestHistory().Ok(0, 10, "[[:inc :x 1]]").Ok(0, 10, "[[:inc :x 1]]").Ok(20, 30, "[[:r :x 1]]")),
      AnomalyKind::kCounter, true, "outside its bounds");
}

TEST(CounterCheckTest, FindsCounterThatGoesBack) {
  ExpectFound(
      Judge(TestHistory().Ok(0, 100, "[[:inc :x 1]]").Ok(10, 20, "[[:r :x 1]]").Ok(30, 40, "[[:r :x 0]]")),
      AnomalyKind::kCounter, true, "going back");
}

TEST(CounterCheckTest, FindsLongFork) {
  ExpectFound(Judge(TestHistory()
                        .Ok(0, 100, "[[:inc :x 1]]")
                        .Ok(0, 100, "[[:inc :y 1]]")
                        .Ok(0, 100, "[[:r :x 1] [:r :y 0]]")
                        .Ok(0, 100, "[[:r :x 0] [:r :y 1]]")),
              AnomalyKind::kLongFork, false);
}

TEST(BankCheckTest, TotalsMustAgree) {
  TestHistory good;
  good.Function(":transfer").Ok(0, 10, "{:from 0 :to 1 :amount 5}");
  good.Function(":read").Ok(0, 10, "{0 10 1 10}").Ok(20, 30, "{0 5 1 15}").Fail(20, 30, "{0 5}");
  ExpectValid(Judge(good));
  ExpectFound(Judge(good, {.bank_total = 21}), AnomalyKind::kBankTotal, false);
  ExpectFound(Judge(good.Ok(40, 50, "{0 5 1 10}")), AnomalyKind::kBankTotal, false);
}

TEST(BankCheckTest, AccountsMustNotBeMissing) {
  ExpectFound(Judge(TestHistory().Function(":read").Ok(0, 10, "{0 10 1 10}").Ok(20, 30, "{0 20}")),
              AnomalyKind::kBankTotal, false, "missing account");
}

TEST(BankCheckTest, AbortedSnapshotMustAddUpToo) {
  const TestHistory history =
      TestHistory().Function(":read").Ok(0, 10, "{0 10 1 10}").Fail(20, 30, "{0 10 1 15}");
  ExpectFound(Judge(history), AnomalyKind::kBankTotal, false);
  ExpectValid(Judge(history, {.opacity = false}));
}

// ---- what cannot be judged, and how it is printed ----

TEST(CheckTest, RefusesValuesThatAreNotUnique) {
  const auto verdict =
      Check(TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(20, 30, "[[:append :x 1]]").Build());
  ASSERT_EQ(verdict.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(verdict.status().message()),
            "T0 and T2 both write 1 to key x; values must be unique");
}

TEST(CheckTest, RefusesKeyOfTwoKinds) {
  const auto verdict = Check(TestHistory().Ok(0, 10, "[[:append :x 1]]").Ok(20, 30, "[[:w :x 2]]").Build());
  ASSERT_EQ(verdict.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(verdict.status().message()), "key x is used both as a list and as a register");
}

TEST(CheckTest, PrintsTheCycleInWords) {
  const Verdict verdict = Judge(TestHistory()
                                    .Ok(0, 1'000'000, "[[:append :x 1] [:append :y 1]]", 3)
                                    .Ok(500'000, 900'000, "[[:r :x [1]] [:r :y []]]", 4));
  EXPECT_EQ(
      verdict.ToString(),
      "2 committed, 0 aborted, 0 of unknown outcome; 2 reads, 4 edges: 1 anomaly\n"
      "\n"
      "G-single (fractured read): no serial order has room for these 2 transactions\n"
      "  T1 (process 4, committed, 0.500000 ms to 0.900000 ms): read x = [1], read y = []\n"
      "  T0 (process 3, committed, 0.000000 ms to 1.000000 ms): append 1 to x, append 1 to y\n"
      "  because\n"
      "  T1 -> T0 (rw): T1 read y = [] without T0's append of 1, and no read has it at an earlier place\n"
      "  T0 -> T1 (wr): T1 read x = [1], which T0's append of 1 made\n");
}

TEST(CheckTest, CountsWhatItDoesNotPrint) {
  TestHistory history;
  for (int i = 0; i < 20; ++i) history.Ok(0, 10, "[[:r :x [" + std::to_string(100 + i) + "]]]");
  const Verdict verdict = Judge(history, {.max_reports = 3});
  EXPECT_EQ(verdict.anomaly_count, 20u + 19u);
  EXPECT_EQ(verdict.anomalies.size(), 6u);
}

}  // namespace
}  // namespace furrow::checker
