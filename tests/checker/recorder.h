// Records a history while clients run: from one simulated thread or from several real ones.
#ifndef FURROW_TESTS_CHECKER_RECORDER_H_
#define FURROW_TESTS_CHECKER_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/checker/history.h"

namespace furrow::checker {

// The log of one process: a client that runs one transaction at a time. One owner thread; no locks, and the
// only allocations are those of three growing arrays. Times come from one clock for all processes of a
// history (the simulator's, or the monotonic clock of a host).
//
// An operation is recorded as it runs:
//
//   log.Invoke(clock.Now());
//   log.ReadList(7, elements);           // after the read returned
//   log.Append(7, 42);                   // before the write can have an effect
//   log.Complete(Outcome::kOk, clock.Now());
//
// Each attempt of a retried transaction is an operation of its own, which may use the failed attempt's values
// again. The reads of an attempt that failed are worth recording: the checker holds opacity against them. An
// operation that is never completed counts as unknown, and Invoke completes an open one as unknown.
//
// It holds up to kMaxOperations and checks itself beyond: a history with a hole would prove nothing.
class alignas(64) ProcessLog {
 public:
  static constexpr size_t kMaxOperations = size_t{1} << 24;

  explicit ProcessLog(uint32_t process) : process_(process) {}
  ProcessLog(const ProcessLog&) = delete;
  ProcessLog& operator=(const ProcessLog&) = delete;

  void Invoke(Nanos now, Function function = Function::kTxn);
  void Append(Key key, int64_t value);
  void ReadList(Key key, std::span<const int64_t> elements);
  void Write(Key key, int64_t value);
  // nullopt: the register was never written.
  void ReadRegister(Key key, std::optional<int64_t> value);
  void Increment(Key key, int64_t amount);
  void ReadCounter(Key key, int64_t value);
  // Inside an operation of Function::kTransfer: moves `amount` between two accounts.
  void Transfer(Key from, Key to, int64_t amount);
  // Inside an operation of Function::kReadAll: once for each account.
  void ReadAccount(Key account, int64_t balance);
  void Complete(Outcome outcome, Nanos now);

  size_t operations() const { return operations_.size(); }

 private:
  friend class Recorder;
  void Add(MicroOp op);

  const uint32_t process_;
  bool open_ = false;
  std::vector<Operation> operations_;
  std::vector<MicroOp> micro_ops_;
  std::vector<int64_t> elements_;
};

// The logs of all processes. Process() may be called by any thread; Merge() only when no process records any
// more.
class Recorder {
 public:
  explicit Recorder(uint32_t processes);

  ProcessLog& Process(uint32_t process) { return *logs_.at(process); }
  uint32_t processes() const { return static_cast<uint32_t>(logs_.size()); }

  // All operations, ordered by time. The logs stay as they are, so that a run can be checked while it pauses.
  History Merge() const;

 private:
  std::vector<std::unique_ptr<ProcessLog>> logs_;
};

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_RECORDER_H_
