// Judges whether a history is strictly serializable: whether one serial order of its committed transactions
// explains every result and agrees with real time. docs/internals/checker.md tells what is checked and how.
//
// An anomaly that is reported is real: each rests on facts that hold in every strictly serializable
// execution. For lists the search is complete as well; for registers the order of blind writes is known only
// in part, for counters and banks there are bounds and totals only.
#ifndef FURROW_TESTS_CHECKER_CHECKER_H_
#define FURROW_TESTS_CHECKER_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/checker/history.h"

namespace furrow::checker {

struct CheckOptions {
  // Hold the recorded reads of aborted transactions, and of those of unknown outcome, to a snapshot too.
  bool opacity = true;
  // Two transactions of which one was over before the other began stand in that order. Without it the history
  // is checked for plain serializability; each process still sees its own order.
  bool real_time = true;
  // What a register holds before its first write, besides nil.
  std::optional<int64_t> initial_register = std::nullopt;
  // What the accounts of a bank add up to; the first complete read decides if it is not given.
  std::optional<int64_t> bank_total = std::nullopt;
  // Reports kept per kind of anomaly; further ones are only counted.
  size_t max_reports = 8;
};

enum class AnomalyKind : uint8_t {
  kInternal,           // a transaction contradicts its own writes or its own earlier read
  kPhantom,            // a value that nobody wrote
  kDuplicate,          // an append took effect twice
  kIncompatibleOrder,  // two reads of one list, neither a prefix of the other; or a transaction's appends out
                       // of order
  kG1a,                // aborted read: a value of an aborted transaction
  kG1b,                // intermediate read: not the last value that its transaction wrote
  kLostUpdate,         // two committed transactions read the same version and both replaced it
  kG0,                 // cycle of writes over writes
  kG1c,                // cycle of writes over writes and reads of writes
  kGSingle,            // cycle with exactly one write over a read (read skew)
  kG2Item,             // cycle with several writes over reads (write skew)
  kLongFork,           // two snapshots of counters, each older than the other somewhere
  kCounter,            // a counter outside the bounds that its increments allow, or going back
  kBankTotal,          // accounts that do not add up
};

// "G-single" etc.
const char* KindName(AnomalyKind kind);

struct Anomaly {
  AnomalyKind kind = AnomalyKind::kInternal;
  // It contradicts real time only: without clocks the history would be explainable.
  bool realtime = false;
  // An aborted transaction's reads take part: opacity is violated, serializability is perhaps not.
  bool opacity = false;
  std::string nickname;              // "stale read", "long fork", ..., or empty
  std::vector<uint32_t> operations;  // positions in History::operations; a cycle's in its order
  std::string text;                  // in words, several lines, each ended

  // "G-single-realtime (stale read)"
  std::string Title() const;
};

struct Verdict {
  std::vector<Anomaly> anomalies;  // the gravest first
  size_t anomaly_count = 0;        // with those beyond max_reports
  size_t committed = 0;            // with unknown ones that somebody saw
  size_t aborted = 0;
  size_t unknown = 0;  // those that nobody saw
  size_t reads = 0;    // judged
  size_t edges = 0;    // of the dependency graph

  bool valid() const { return anomaly_count == 0; }
  bool Has(AnomalyKind kind) const;
  bool Has(AnomalyKind kind, bool realtime) const;
  std::string ToString() const;
};

// INVALID_ARGUMENT when the history cannot be judged: one value written to a key by two transactions of which
// none failed, a key used both as a list and as a register, operations that are not in the order of their
// invocations. Time and memory grow linearly with the history, but for a logarithm in sorting.
absl::StatusOr<Verdict> Check(const History& history, const CheckOptions& options = {});

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_CHECKER_H_
