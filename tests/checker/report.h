// Anomalies in words.
#ifndef FURROW_TESTS_CHECKER_REPORT_H_
#define FURROW_TESTS_CHECKER_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/checker/checker.h"
#include "tests/checker/cycles.h"
#include "tests/checker/model.h"

namespace furrow::checker {

// "T12".
std::string TxnName(const Model& model, uint32_t txn);
// "T12 (process 3, committed, 1.2 ms to 1.45 ms): append 2 to x, read y = [1 2]".
std::string DescribeTxn(const Model& model, uint32_t txn);
// "T12 read x = [1 2]".
std::string DescribeRead(const Model& model, const ExternalRead& read);
// "3.000250 ms"; "never".
std::string DescribeTime(Nanos time);

// Collects the anomalies of one check; keeps up to max_reports of each kind and counts all.
class Reporter {
 public:
  explicit Reporter(const Model& model) : model_(model) {}

  // `what` is a sentence without its end. `operations` are printed below it.
  void Report(AnomalyKind kind, std::vector<uint32_t> operations, const std::string& what,
              const std::string& nickname = "", bool realtime = false);
  void ReportCycle(const Cycle& cycle);
  // Counts `count` cycles that were not looked at closely.
  void CountCycles(size_t count) { count_ += count; }

  // Sorted from the gravest kind on.
  std::vector<Anomaly> TakeAnomalies();
  size_t count() const { return count_; }

 private:
  bool HasAborted(const std::vector<uint32_t>& operations) const;
  void Keep(Anomaly anomaly);

  const Model& model_;
  std::vector<Anomaly> anomalies_;
  std::vector<size_t> kept_;  // by kind
  size_t count_ = 0;
};

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_REPORT_H_
