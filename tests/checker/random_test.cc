// Random histories: those of a correct store always pass, those of a broken one are found, and on small ones
// the checker agrees with a search through all serial orders.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"
#include "tests/checker/recorder.h"

namespace furrow::checker {
namespace {

enum class Fault {
  kNone,
  kStaleSnapshot,  // all reads from a snapshot that is too old
  kTornSnapshot,   // one read from an older snapshot than the others
  kWriteSkew,      // reads from a snapshot, writes at the end, no validation
  kLostAppend,     // a committed append does not take effect
  kDirtyAbort,     // an aborted append does
  kTwice,          // an append takes effect twice
};

struct StoreOptions {
  bool registers = false;
  int operations = 250;
  int processes = 6;
  int keys = 4;
  Fault fault = Fault::kNone;
  uint64_t fault_one_in = 20;
};

// A store that executes one transaction after the other, each at an instant between its invocation and its
// completion; the intervals overlap. Faults are made by chance.
class Store {
 public:
  Store(uint64_t seed, const StoreOptions& options)
      : random_(seed), options_(options), recorder_(options.processes), free_at_(options.processes, 0) {}

  History Run() {
    snapshots_.push_back({});
    for (int i = 0; i < options_.operations; ++i) Transact();
    return recorder_.Merge();
  }

 private:
  using State = std::map<Key, std::vector<int64_t>>;  // of a register: all its values, the last one counts

  const State& Snapshot(uint64_t age) const { return snapshots_[snapshots_.size() - 1 - age]; }
  uint64_t Age(uint64_t at_least, uint64_t spread) {
    return std::min<uint64_t>(at_least + random_.Below(spread), snapshots_.size() - 1);
  }

  void Read(ProcessLog* log, Key key, const State& base, const State& own) {
    auto find = [key](const State& state) {
      const auto it = state.find(key);
      return it == state.end() ? std::vector<int64_t>() : it->second;
    };
    std::vector<int64_t> list = find(base);
    const std::vector<int64_t> added = find(own);
    list.insert(list.end(), added.begin(), added.end());
    if (!options_.registers) return log->ReadList(key, list);
    log->ReadRegister(key, list.empty() ? std::nullopt : std::optional(list.back()));
  }

  void Transact() {
    now_ += 10;
    // A process that is free a while before this instant.
    const Nanos invoke = now_ - static_cast<Nanos>(random_.Below(60));
    uint32_t process = static_cast<uint32_t>(random_.Below(free_at_.size()));
    for (size_t i = 0; i < free_at_.size() && free_at_[process] > invoke; ++i) {
      process = (process + 1) % static_cast<uint32_t>(free_at_.size());
    }
    const Nanos begin = std::max(invoke, free_at_[process]);
    if (begin > now_) return;  // all are busy
    const bool is_faulty = options_.fault != Fault::kNone && random_.OneIn(options_.fault_one_in);
    const uint64_t dice = random_.Below(20);
    Outcome outcome = dice == 0 ? Outcome::kUnknown : dice < 3 ? Outcome::kFail : Outcome::kOk;
    if (is_faulty && options_.fault == Fault::kDirtyAbort) outcome = Outcome::kFail;
    const bool commits = outcome == Outcome::kOk || (outcome == Outcome::kUnknown && random_.OneIn(2));

    ProcessLog& log = recorder_.Process(process);
    log.Invoke(begin);
    State own = Execute(&log, is_faulty);
    State state = snapshots_.back();
    bool applies = commits;
    if (is_faulty && options_.fault == Fault::kLostAppend) applies = false;
    if (is_faulty && options_.fault == Fault::kDirtyAbort) applies = true;
    if (applies) {
      for (const auto& [key, values] : own) {
        for (int64_t value : values) {
          state[key].push_back(value);
          if (is_faulty && options_.fault == Fault::kTwice) state[key].push_back(value);
        }
      }
    }
    snapshots_.push_back(std::move(state));
    if (snapshots_.size() > 32) snapshots_.erase(snapshots_.begin());
    free_at_[process] = now_ + 1 + static_cast<Nanos>(random_.Below(60));
    log.Complete(outcome, free_at_[process]);
  }

  // The micro-operations; returns what was written.
  State Execute(ProcessLog* log, bool is_faulty) {
    uint64_t age = 0;
    if (is_faulty && options_.fault == Fault::kStaleSnapshot) age = Age(25, 5);
    if (is_faulty && options_.fault == Fault::kWriteSkew) age = Age(1, 4);
    State own;
    for (uint64_t ops = 1 + random_.Below(4); ops > 0; --ops) {
      const Key key = static_cast<Key>(random_.Below(options_.keys));
      if (random_.OneIn(2)) {
        const bool is_torn = is_faulty && options_.fault == Fault::kTornSnapshot;
        Read(log, key, Snapshot(is_torn ? Age(0, 8) : age), own);
        continue;
      }
      const int64_t value = next_value_++;
      own[key].push_back(value);
      options_.registers ? log->Write(key, value) : log->Append(key, value);
    }
    return own;
  }

  Random random_;
  const StoreOptions options_;
  Recorder recorder_;
  std::vector<Nanos> free_at_;
  std::vector<State> snapshots_;
  Nanos now_ = 1000;
  int64_t next_value_ = 1;
};

Verdict Judge(const History& history) {
  auto verdict = Check(history);
  EXPECT_TRUE(verdict.ok()) << verdict.status();
  return verdict.ok() ? *std::move(verdict) : Verdict();
}

// Of `seeds` runs, the number in which the checker found something.
int RunsFound(StoreOptions options, int seeds) {
  int found = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    found += !Judge(Store(static_cast<uint64_t>(seed), options).Run()).valid();
  }
  return found;
}

class CorrectStoreTest : public ::testing::TestWithParam<bool> {};

TEST_P(CorrectStoreTest, AlwaysPasses) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    StoreOptions options = {.registers = GetParam()};
    options.processes = 2 + static_cast<int>(seed % 10);
    options.keys = 1 + static_cast<int>(seed % 7);
    const History history = Store(seed, options).Run();
    const Verdict verdict = Judge(history);
    ASSERT_TRUE(verdict.valid()) << "seed " << seed << "\n" << verdict.ToString();
    if (options.registers) continue;
    // Of lists the text form keeps all that the checker needs.
    const auto again = ParseEdn(WriteEdn(history));
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(Judge(*again).edges, verdict.edges) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(ListsAndRegisters, CorrectStoreTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Registers" : "Lists"; });

struct FaultCase {
  const char* name;
  Fault fault;
  bool registers;
  int found_at_least;  // of 40 runs
};

class BrokenStoreTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(BrokenStoreTest, IsFound) {
  const FaultCase& fault = GetParam();
  const int found = RunsFound({.registers = fault.registers, .fault = fault.fault}, 40);
  std::printf("%s: found in %d of seeds 1 to 40\n", fault.name, found);
  EXPECT_GE(found, fault.found_at_least);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BrokenStoreTest,
    ::testing::Values(FaultCase{"StaleSnapshotOfLists", Fault::kStaleSnapshot, false, 38},
                      FaultCase{"TornSnapshotOfLists", Fault::kTornSnapshot, false, 38},
                      FaultCase{"WriteSkewOfLists", Fault::kWriteSkew, false, 34},
                      FaultCase{"LostAppendOfLists", Fault::kLostAppend, false, 38},
                      FaultCase{"DirtyAbortOfLists", Fault::kDirtyAbort, false, 38},
                      FaultCase{"TwiceOfLists", Fault::kTwice, false, 38},
                      FaultCase{"StaleSnapshotOfRegisters", Fault::kStaleSnapshot, true, 38},
                      FaultCase{"TornSnapshotOfRegisters", Fault::kTornSnapshot, true, 34},
                      FaultCase{"WriteSkewOfRegisters", Fault::kWriteSkew, true, 12},
                      FaultCase{"LostAppendOfRegisters", Fault::kLostAppend, true, 22},
                      FaultCase{"DirtyAbortOfRegisters", Fault::kDirtyAbort, true, 30}),
    [](const auto& info) { return std::string(info.param.name); });

// ---- against a search through all serial orders ----

// Tries every serial order that agrees with real time, with every subset of the unknown transactions.
class Oracle {
 public:
  explicit Oracle(const History& history) : history_(history), done_(history.operations.size()) {}
  bool IsStrictlySerializable() { return Extend(); }

 private:
  bool Extend() {
    bool all = true;
    for (uint32_t txn = 0; txn < done_.size(); ++txn) {
      if (done_[txn]) continue;
      const Operation& op = history_.operations[txn];
      all &= op.outcome == Outcome::kUnknown;
      if (!MayBeNext(op)) continue;
      const auto before = state_;
      done_[txn] = true;
      // As a committed transaction, or as an aborted one that read a snapshot.
      if (Apply(op) && (op.outcome == Outcome::kFail ? (state_ = before, Extend()) : Extend())) return true;
      state_ = before;
      if (op.outcome == Outcome::kUnknown && Apply(op)) {
        state_ = before;
        if (Extend()) return true;
      }
      state_ = before;
      done_[txn] = false;
    }
    return all && UnknownReadsAgree();
  }

  // Nobody that is not done yet was over before it began.
  bool MayBeNext(const Operation& op) const {
    for (uint32_t other = 0; other < done_.size(); ++other) {
      const Operation& o = history_.operations[other];
      if (!done_[other] && o.outcome != Outcome::kUnknown && o.complete_ns < op.invoke_ns) return false;
    }
    return true;
  }

  // An unknown transaction may be left out only if it read nothing: its reads must be a snapshot too.
  bool UnknownReadsAgree() const {
    for (uint32_t txn = 0; txn < done_.size(); ++txn) {
      if (done_[txn]) continue;
      for (const MicroOp& op : history_.Ops(history_.operations[txn])) {
        if (op.kind == OpKind::kRead) return false;
      }
    }
    return true;
  }

  bool Apply(const Operation& op) {
    for (const MicroOp& micro : history_.Ops(op)) {
      auto& list = state_[micro.key];
      if (micro.kind == OpKind::kAppend || micro.kind == OpKind::kWrite) {
        list.push_back(micro.value);
      } else if (micro.result == ReadResult::kList) {
        if (!std::ranges::equal(list, history_.List(micro))) return false;
      } else if (micro.result == ReadResult::kNil ? !list.empty()
                                                  : list.empty() || list.back() != micro.value) {
        return false;
      }
    }
    return true;
  }

  const History& history_;
  std::vector<bool> done_;
  std::map<Key, std::vector<int64_t>> state_;
};

// A few transactions with overlapping times whose reads return what may have been there, or not.
History SmallHistory(Random* random, bool registers) {
  const uint32_t count = 2 + static_cast<uint32_t>(random->Below(4));
  Recorder recorder(count);
  int64_t value = 1;
  std::vector<std::vector<int64_t>> written(2);
  struct Plan {
    Key key;
    int64_t value;  // 0: read
  };
  std::vector<std::vector<Plan>> plans(count);
  for (auto& plan : plans) {
    for (uint64_t ops = 1 + random->Below(3); ops > 0; --ops) {
      const Key key = static_cast<Key>(random->Below(2));
      plan.push_back({key, random->OneIn(2) ? value++ : 0});
      if (plan.back().value != 0) written[key].push_back(plan.back().value);
    }
  }
  // Each list has an order, of which most reads return a prefix.
  for (auto& list : written) {
    for (size_t i = 1; i < list.size(); ++i) {
      if (random->OneIn(3)) std::swap(list[i - 1], list[i]);
    }
  }
  for (uint32_t p = 0; p < count; ++p) {
    ProcessLog& log = recorder.Process(p);
    const Nanos invoke = static_cast<Nanos>(random->Below(40));
    log.Invoke(invoke);
    for (const Plan& plan : plans[p]) {
      if (plan.value != 0) {
        registers ? log.Write(plan.key, plan.value) : log.Append(plan.key, plan.value);
        continue;
      }
      const auto& list = written[plan.key];
      const size_t size = random->Below(list.size() + 1);
      if (registers) {
        log.ReadRegister(plan.key, size == 0 ? std::nullopt : std::optional(list[size - 1]));
      } else {
        log.ReadList(plan.key, std::span(list).first(size));
      }
    }
    const uint64_t dice = random->Below(10);
    log.Complete(dice == 0   ? Outcome::kUnknown
                 : dice == 1 ? Outcome::kFail
                             : Outcome::kOk,
                 invoke + static_cast<Nanos>(random->Below(30)));
  }
  return recorder.Merge();
}

TEST(OracleTest, ListCheckerAgreesWithExhaustiveSearch) {
  const uint64_t seed = 7;
  Random random(seed);
  int valid = 0;
  for (int round = 0; round < 8'000; ++round) {
    const History history = SmallHistory(&random, false);
    const bool expected = Oracle(history).IsStrictlySerializable();
    valid += expected;
    const Verdict verdict = Judge(history);
    ASSERT_EQ(verdict.valid(), expected) << "seed " << seed << ", round " << round << "\n"
                                         << WriteEdn(history) << verdict.ToString();
  }
  std::printf("lists, seed %d: %d of 8000 are strictly serializable\n", static_cast<int>(seed), valid);
  EXPECT_GT(valid, 400);
  EXPECT_LT(valid, 7'600);
}

TEST(OracleTest, RegisterCheckerNeverAlarmsFalsely) {
  const uint64_t seed = 8;
  Random random(seed);
  int bad = 0;
  int found = 0;
  for (int round = 0; round < 8'000; ++round) {
    const History history = SmallHistory(&random, true);
    const bool expected = Oracle(history).IsStrictlySerializable();
    const Verdict verdict = Judge(history);
    if (expected) {
      ASSERT_TRUE(verdict.valid()) << "seed " << seed << ", round " << round << "\n"
                                   << WriteEdn(history) << verdict.ToString();
    }
    bad += !expected;
    found += !expected && !verdict.valid();
  }
  std::printf("registers, seed %d: found %d of %d bad histories\n", static_cast<int>(seed), found, bad);
  EXPECT_GE(found, bad * 9 / 10);
}

}  // namespace
}  // namespace furrow::checker
