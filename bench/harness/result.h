// What a run has measured, and its forms: the text in which a benchmark process hands it to its parent, the
// table for people and the JSON for programs (fields: docs/benchmarks.md).
#ifndef FURROW_BENCH_HARNESS_RESULT_H_
#define FURROW_BENCH_HARNESS_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/histogram.h"

namespace furrow::bench {

struct TypeResult {
  std::string name;
  uint64_t committed = 0;
  uint64_t rolled_back = 0;  // by the application, as the workload demands
  Histogram latency;         // of both; from the moment when the terminal wanted the transaction to its end
};

// Measured by one process; Merge() adds up those of several.
struct Measurement {
  std::vector<TypeResult> types;
  std::map<std::string, uint64_t> aborted;  // attempts, by reason
  uint64_t unknown = 0;
  uint64_t local_reads = 0;
  uint64_t remote_reads = 0;
  uint64_t distributed = 0;       // committed transactions with a primary on another node
  uint64_t system_committed = 0;  // committed transactions as the workers count them
  uint64_t cpu_ns = 0;            // of the whole process in the measured interval
  Nanos measured_ns = 0;
  std::string ended_early;  // why, if it did: a sentence

  void Merge(const Measurement& other);
  // Lines without blanks in their values; Decode is its inverse up to the width of a histogram's bucket.
  std::string Encode() const;
  static absl::StatusOr<Measurement> Decode(std::string_view text);

  uint64_t committed() const;
  uint64_t rolled_back() const;
  uint64_t aborts() const;
};

struct CheckResult {
  std::string name;
  bool pass = false;
  std::string detail;  // what differs, of a failed one
};

struct Report {
  std::string workload;
  std::string mode;  // "symmetric" or "cluster"
  uint64_t nodes = 0;
  uint64_t replicas = 0;
  uint64_t workers = 0;  // per process
  uint64_t terminals = 0;
  uint64_t rate = 0;  // 0: as fast as it goes
  std::string durability;
  std::string fabric;  // "shm" or "verbs"
  bool huge_pages = false;
  double load_seconds = 0;  // 0: nothing was loaded
  // Type whose commits per second are the headline, and the headline's name; empty: none.
  std::string headline_type;
  std::string headline_name;
  std::vector<std::pair<std::string, uint64_t>> extra;  // the workload's own settings
  std::string remark;  // what whoever reads the table must know of them; empty: nothing
  Measurement measured;
  std::vector<CheckResult> checks;

  double seconds() const { return static_cast<double>(measured.measured_ns) / kSecond; }
  double PerSecond(uint64_t count) const;
  double headline() const;
  bool checks_passed() const;
  std::string Table() const;
  std::string Json() const;
};

// "12,345".
std::string WithCommas(uint64_t value);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_RESULT_H_
