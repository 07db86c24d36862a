// The recorder and the EDN form.
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"
#include "tests/checker/recorder.h"

namespace furrow::checker {
namespace {

using ::testing::ElementsAre;

std::string ErrorOf(const std::string& text) {
  const auto history = ParseEdn(text);
  if (history.ok()) return "no error";
  EXPECT_EQ(history.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(history.status().message());
}

TEST(RecorderTest, MergesProcessesByTime) {
  Recorder recorder(2);
  ProcessLog& a = recorder.Process(0);
  ProcessLog& b = recorder.Process(1);
  b.Invoke(5);
  b.ReadList(7, std::vector<int64_t>{1, 2});
  a.Invoke(3);
  a.Append(7, 3);
  a.Complete(Outcome::kOk, 9);
  a.Invoke(9);
  a.ReadRegister(8, std::nullopt);
  b.Complete(Outcome::kFail, 9);
  const History history = recorder.Merge();
  ASSERT_EQ(history.operations.size(), 3u);
  EXPECT_EQ(WriteEdn(history),
            "{:index 0 :type :invoke :process 0 :f :txn :value [[:append 7 3]] :time 3}\n"
            "{:index 1 :type :invoke :process 1 :f :txn :value [[:r 7 nil]] :time 5}\n"
            "{:index 2 :type :ok :process 0 :f :txn :value [[:append 7 3]] :time 9}\n"
            "{:index 3 :type :fail :process 1 :f :txn :value [[:r 7 [1 2]]] :time 9}\n"
            "{:index 4 :type :invoke :process 0 :f :txn :value [[:r 8 nil]] :time 9}\n");
  EXPECT_EQ(history.operations[2].outcome, Outcome::kUnknown);
  EXPECT_EQ(history.operations[2].complete_ns, kNever);
}

TEST(RecorderTest, InvokeCompletesAnOpenOperationAsUnknown) {
  Recorder recorder(1);
  recorder.Process(0).Invoke(1);
  recorder.Process(0).Append(1, 1);
  recorder.Process(0).Invoke(4);
  const History history = recorder.Merge();
  ASSERT_EQ(history.operations.size(), 2u);
  EXPECT_EQ(history.operations[0].outcome, Outcome::kUnknown);
  EXPECT_EQ(history.operations[0].complete_ns, 4);
}

TEST(RecorderTest, RecordsFromSeveralThreads) {
  constexpr int kProcesses = 4;
  constexpr int kOperations = 500;
  Recorder recorder(kProcesses);
  {
    std::vector<Thread> threads;
    for (uint32_t p = 0; p < kProcesses; ++p) {
      threads.emplace_back(ThreadOptions{.name = "recorder"}, [&recorder, p] {
        ProcessLog& log = recorder.Process(p);
        for (int i = 0; i < kOperations; ++i) {
          log.Invoke(MonotonicClock().Now());
          log.Append(p, i);
          log.Complete(Outcome::kOk, MonotonicClock().Now());
        }
      });
    }
  }
  const History history = recorder.Merge();
  EXPECT_EQ(history.operations.size(), size_t{kProcesses} * kOperations);
  const auto verdict = Check(history);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->valid()) << verdict->ToString();
}

TEST(RecorderTest, WritesBanksInTheirOwnForm) {
  Recorder recorder(1);
  ProcessLog& log = recorder.Process(0);
  log.Invoke(1, Function::kTransfer);
  log.Transfer(3, 4, 5);
  log.Complete(Outcome::kOk, 2);
  log.Invoke(3, Function::kReadAll);
  log.ReadAccount(3, -5);
  log.ReadAccount(4, 5);
  log.Complete(Outcome::kOk, 4);
  EXPECT_EQ(WriteEdn(recorder.Merge()),
            "{:index 0 :type :invoke :process 0 :f :transfer :value {:from 3 :to 4 :amount 5} :time 1}\n"
            "{:index 1 :type :ok :process 0 :f :transfer :value {:from 3 :to 4 :amount 5} :time 2}\n"
            "{:index 2 :type :invoke :process 0 :f :read :value nil :time 3}\n"
            "{:index 3 :type :ok :process 0 :f :read :value {3 -5 4 5} :time 4}\n");
}

TEST(EdnTest, ReadsWhatItWrote) {
  const std::string text =
      "{:index 0 :type :invoke :process 3 :f :txn :value [[:append :x 1] [:r \"a b\" nil]] :time 10}\n"
      "{:index 1 :type :invoke :process 4 :f :txn :value [[:w 5 -7] [:r 5 nil] [:inc :c 2]] :time 11}\n"
      "{:index 2 :type :invoke :process 5 :f :txn :value [[:r :x nil]] :time 11}\n"
      "{:index 3 :type :ok :process 3 :f :txn :value [[:append :x 1] [:r \"a b\" []]] :time 20}\n"
      "{:index 4 :type :info :process 4 :f :txn :value [[:w 5 -7] [:r 5 -7] [:inc :c 2]] :time 21}\n"
      "{:index 5 :type :invoke :process 3 :f :transfer :value {:from :a :to :b :amount 3} :time 22}\n"
      "{:index 6 :type :fail :process 3 :f :transfer :value {:from :a :to :b :amount 3} :time 23}\n"
      "{:index 7 :type :invoke :process 3 :f :read :value nil :time 24}\n"
      "{:index 8 :type :ok :process 3 :f :read :value {:a 1 :b 2} :time 25}\n";
  const auto history = ParseEdn(text);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(WriteEdn(*history), text);
}

TEST(EdnTest, ReadsTheFormsOfOtherWriters) {
  // Commas, tags, comments, other fields, other processes, a nil :value, several maps on a line, no times.
  const auto history = ParseEdn(
      "; a comment\n"
      "#some.history.Op{:index 0, :process :nemesis, :type :info, :f :start, :value {:a [1 #{2} \"}\"]}}\n"
      "{:type :invoke, :process 0, :f :txn, :value [[:append 1 2N], [:r 1 nil]]} "
      "{:type :info, :process 0, :f :txn, :value nil, :error [:timeout \"at \\\"x\\\"\"], :ext #inst "
      "\"2020\"}\n");
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_EQ(history->operations.size(), 1u);
  EXPECT_EQ(history->operations[0].outcome, Outcome::kUnknown);
  EXPECT_EQ(history->operations[0].complete_ns, 1);
  ASSERT_EQ(history->operations[0].ops_size, 2u);
  EXPECT_EQ(history->Ops(history->operations[0])[0].value, 2);
  EXPECT_EQ(history->Ops(history->operations[0])[1].result, ReadResult::kNone);
}

TEST(EdnTest, ErrorsNameTheLine) {
  const std::string invoke = "{:type :invoke :process 0 :f :txn :value [] :time 5}\n";
  EXPECT_EQ(ErrorOf(invoke + "{:type :ok"), "line 2: the text ends where a value belongs");
  EXPECT_EQ(ErrorOf("\n\n{:type :done}"), "line 3: ':done' is none of :invoke, :ok, :fail and :info");
  EXPECT_EQ(ErrorOf(invoke + invoke), "line 2: process 0 invokes while its last operation is open");
  EXPECT_EQ(ErrorOf("{:type :ok :process 1 :f :txn :value []}"),
            "line 1: process 1 completes what it never invoked");
  EXPECT_EQ(ErrorOf("{:type :invoke :process 1 :f :txn :value [[:cas 1 2]]}"),
            "line 1: ':cas' is none of :append, :w, :inc and :r");
  EXPECT_EQ(ErrorOf("{:type :invoke :process 1 :f :txn :value [[:append 1 x]]}"),
            "line 1: 'x' is not a whole number of 64 bits");
  EXPECT_EQ(ErrorOf("{:type :invoke :process 1 :f :txn :value [[:append 1 2 3]]}"),
            "line 1: '3' stands where ']' belongs");
  EXPECT_EQ(ErrorOf("{:type :invoke :process 1 :value []}"),
            "line 1: :f must stand before :value and be :txn, :transfer or :read");
  EXPECT_EQ(ErrorOf("{:process 1 :f :txn :value []}"), "line 1: :type is missing");
  EXPECT_EQ(ErrorOf("{:type :invoke :f :txn}"), "line 1: :process is missing");
  EXPECT_EQ(ErrorOf(invoke + "{:type :ok :process 0 :f :txn :value [] :time 4}"),
            "line 2: its :time is earlier than the line's before");
  EXPECT_EQ(ErrorOf(invoke + "{:type :ok :process 0 :f :txn :value []}"),
            "line 2: :time stands in some lines but not in all");
  EXPECT_EQ(ErrorOf("{:type :invoke :x " + std::string(200, '[')), "line 1: forms are nested deeper than 64");
  EXPECT_EQ(ErrorOf("{:type :invoke :x \"abc"), "line 1: a string does not end");
}

// Bytes from outside never do more than give an error.
TEST(EdnTest, SurvivesDamagedText) {
  const std::string good =
      "{:index 0 :type :invoke :process 3 :f :txn :value [[:append :x 1] [:r \"y\" nil]] :time 10}\n"
      "{:index 1 :type :ok :process 3 :f :txn :value [[:append :x 1] [:r \"y\" [1 2]]] :time 20}\n"
      "#tag{:index 2 :type :invoke :process 3 :f :transfer :value {:from 1 :to 2 :amount 3} :time 22}; end\n";
  const uint64_t seed = 20;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 5'000; ++round) {
    std::string text = good;
    for (uint64_t changes = 1 + random.Below(4); changes > 0; --changes) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = "[]{}()\"\\#:; n09-"[random.Below(16)];
          break;
        case 1:
          text.erase(at, random.Below(20));
          break;
        default:
          text.insert(at, good.substr(random.Below(good.size()), random.Below(20)));
      }
      if (text.empty()) text = " ";
    }
    const auto history = ParseEdn(text);
    if (history.ok()) Check(*history).IgnoreError();
  }
}

TEST(EdnTest, FilesKeepHistories) {
  const std::string path = ::testing::TempDir() + "furrow-history-test.edn";
  const auto history = ParseEdn("{:type :invoke :process 0 :f :txn :value [[:r :x nil]] :time 5}\n");
  ASSERT_TRUE(history.ok());
  ASSERT_TRUE(WriteHistoryFile(*history, path).ok());
  const auto again = ReadHistoryFile(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(WriteEdn(*again), WriteEdn(*history));
  EXPECT_EQ(ReadHistoryFile(path + ".missing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(WriteHistoryFile(*history, path + ".missing/file").ok());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace furrow::checker
