// Histories by hand, for tests.
#ifndef FURROW_TESTS_CHECKER_TEST_HISTORY_H_
#define FURROW_TESTS_CHECKER_TEST_HISTORY_H_

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"

namespace furrow::checker {

// Each operation is given as its times in nanoseconds and its :value; processes differ unless one is given.
class TestHistory {
 public:
  TestHistory& Ok(Nanos invoke, Nanos complete, const std::string& value, int process = -1) {
    return Add("ok", invoke, complete, value, process);
  }
  TestHistory& Fail(Nanos invoke, Nanos complete, const std::string& value) {
    return Add("fail", invoke, complete, value, -1);
  }
  TestHistory& Info(Nanos invoke, Nanos complete, const std::string& value) {
    return Add("info", invoke, complete, value, -1);
  }
  TestHistory& Function(const std::string& name) {
    function_ = name;
    return *this;
  }

  History Build() const {
    std::vector<Line> lines = lines_;
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.time < b.time; });
    std::string text;
    for (const Line& line : lines) text += line.text;
    auto history = ParseEdn(text);
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : History();
  }

 private:
  struct Line {
    Nanos time;
    std::string text;
  };

  TestHistory& Add(const std::string& type, Nanos invoke, Nanos complete, const std::string& value,
                   int process) {
    if (process < 0) process = 1000 + static_cast<int>(lines_.size());
    for (const bool completion : {false, true}) {
      const Nanos time = completion ? complete : invoke;
      lines_.push_back({time, "{:type :" + (completion ? type : "invoke") + " :process " +
                                  std::to_string(process) + " :f " + function_ + " :value " + value +
                                  " :time " + std::to_string(time) + "}\n"});
    }
    return *this;
  }

  std::string function_ = ":txn";
  std::vector<Line> lines_;
};

inline Verdict Judge(const TestHistory& history, const CheckOptions& options = {}) {
  auto verdict = Check(history.Build(), options);
  EXPECT_TRUE(verdict.ok()) << verdict.status();
  return verdict.ok() ? *std::move(verdict) : Verdict();
}

// Expects exactly this anomaly among those of the verdict, with its nickname.
inline void ExpectFound(const Verdict& verdict, AnomalyKind kind, bool realtime,
                        const std::string& nickname = "") {
  for (const Anomaly& anomaly : verdict.anomalies) {
    if (anomaly.kind == kind && anomaly.realtime == realtime && anomaly.nickname == nickname) return;
  }
  ADD_FAILURE() << KindName(kind) << (realtime ? "-realtime" : "") << " (" << nickname << ") not found\n"
                << verdict.ToString();
}

inline void ExpectValid(const Verdict& verdict) { EXPECT_TRUE(verdict.valid()) << verdict.ToString(); }

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_TEST_HISTORY_H_
