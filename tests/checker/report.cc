#include "tests/checker/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow::checker {
namespace {

constexpr size_t kShownElements = 16;
constexpr size_t kShownOps = 24;

std::string ListText(std::span<const int64_t> list) {
  std::string text = "[";
  const size_t skipped = list.size() > kShownElements ? list.size() - kShownElements : 0;
  if (skipped > 0) text += "...";
  for (int64_t element : list.subspan(skipped)) absl::StrAppend(&text, text.size() > 1 ? " " : "", element);
  text += "]";
  if (skipped > 0) absl::StrAppend(&text, " (", list.size(), " elements)");
  return text;
}

std::string OpText(const Model& model, const MicroOp& op) {
  const std::string key = model.history().KeyName(op.key);
  switch (op.kind) {
    case OpKind::kAppend:
      return absl::StrCat("append ", op.value, " to ", key);
    case OpKind::kWrite:
      return absl::StrCat("write ", key, " = ", op.value);
    case OpKind::kIncrement:
      return absl::StrCat("add ", op.value, " to ", key);
    case OpKind::kRead:
      break;
  }
  if (op.result == ReadResult::kNone) return absl::StrCat("read ", key);
  if (op.result == ReadResult::kNil) return absl::StrCat("read ", key, " = nil");
  if (op.result == ReadResult::kValue) return absl::StrCat("read ", key, " = ", op.value);
  return absl::StrCat("read ", key, " = ", ListText(model.history().List(op)));
}

// The read of `key` by `txn`, which some edge rests on.
std::string ReadText(const Model& model, uint32_t txn, uint32_t key) {
  const auto reads = model.Reads(key);
  const auto it = std::lower_bound(reads.begin(), reads.end(), txn,
                                   [](const ExternalRead& read, uint32_t id) { return read.txn < id; });
  FURROW_CHECK(it != reads.end() && it->txn == txn);
  return DescribeRead(model, *it);
}

// Why an edge exists. See graph.h for the meaning of key, a and b.
std::string Explain(const Model& model, const Step& step) {
  const Edge& edge = step.edge;
  const std::string from = TxnName(model, step.from);
  const std::string to = TxnName(model, step.to);
  const std::string key = edge.key < model.keys() ? model.history().KeyName(model.key(edge.key)) : "";
  const Operation& from_op = model.history().operations[step.from];
  const Operation& to_op = model.history().operations[step.to];
  switch (edge.reason) {
    case Reason::kListNext:
      return absl::StrCat("in ", key, ", ", to, "'s append of ", edge.b, " directly follows ", from, "'s of ",
                          edge.a);
    case Reason::kListUnseen:
      return absl::StrCat(to, "'s append of ", edge.b, " to ", key, " was never read, so it lies behind ",
                          from, "'s of ", edge.a, ", the last one that was");
    case Reason::kListRead:
      return absl::StrCat(ReadText(model, step.to, edge.key), ", which ", from, "'s append of ", edge.a,
                          " made");
    case Reason::kListMissed:
      return absl::StrCat(ReadText(model, step.from, edge.key), ", behind which comes ", to, "'s append of ",
                          edge.b);
    case Reason::kListMissedLast:
      return absl::StrCat(ReadText(model, step.from, edge.key), " without ", to, "'s append of ", edge.b,
                          ", and no read has it at an earlier place");
    case Reason::kRegisterRead:
      return absl::StrCat(ReadText(model, step.to, edge.key), ", which ", from, " wrote");
    case Reason::kRegisterOver:
      return absl::StrCat(ReadText(model, step.to, edge.key), ", written by ", from, ", and wrote ", edge.b,
                          " in its place");
    case Reason::kRegisterMissed:
      return absl::StrCat(ReadText(model, step.from, edge.key), ", which ", to,
                          " read as well and replaced by ", edge.b);
    case Reason::kRegisterFirst:
      return absl::StrCat(ReadText(model, step.from, edge.key), ", its initial value, and ", to, " wrote ",
                          edge.b);
    case Reason::kRegisterTimed:
      return absl::StrCat(ReadText(model, step.from, edge.key), ", and ", to, ", which wrote ", edge.b,
                          ", began when ", edge.a, " was already there");
    case Reason::kBefore:
      return absl::StrCat(from, " was over at ", DescribeTime(from_op.complete_ns), ", before ", to,
                          " began at ", DescribeTime(to_op.invoke_ns));
    case Reason::kProcess:
      return absl::StrCat("process ", from_op.process, " ran ", from, " before ", to);
    case Reason::kNone:
      break;
  }
  return "";
}

const char* EdgeWord(EdgeKind kind) {
  static constexpr const char* kWords[] = {"ww", "wr", "rw", "rw", "time", ""};
  return kWords[static_cast<int>(kind)];
}

bool IsRw(const Step& step) {
  return step.edge.kind == EdgeKind::kRw || step.edge.kind == EdgeKind::kTimedRw;
}

// The common name of a well-known shape.
std::string Nickname(const Cycle& cycle) {
  size_t rw = 0;
  size_t other[6] = {};
  for (const Step& step : cycle.steps) {
    if (IsRw(step)) {
      ++rw;
    } else {
      ++other[static_cast<int>(step.edge.kind)];
    }
  }
  const size_t ww = other[static_cast<int>(EdgeKind::kWw)];
  const size_t wr = other[static_cast<int>(EdgeKind::kWr)];
  const size_t time = other[static_cast<int>(EdgeKind::kRealTime)];
  const size_t steps = cycle.steps.size();
  if (cycle.kind == AnomalyKind::kGSingle && rw + time == steps && time > 0) return "stale read";
  if (cycle.kind == AnomalyKind::kG1c && time > 0 && wr + time == steps) return "read from the future";
  if (rw == 1 && ww == 1 && steps == 2 && cycle.steps[0].edge.key == cycle.steps[1].edge.key)
    return "lost update";
  if (rw == 1 && wr == 1 && steps == 2) return "fractured read";
  if (rw == 2 && steps == 2) return "write skew";
  if (rw == 2 && wr == 2 && steps == 4 && IsRw(cycle.steps[0]) == IsRw(cycle.steps[2])) return "long fork";
  return "";
}

}  // namespace

std::string TxnName(const Model& model, uint32_t txn) {
  return absl::StrCat("T", model.history().operations[txn].invoke_index);
}

std::string DescribeTime(Nanos time) {
  if (time == kNever) return "never";
  char text[48];
  std::snprintf(text, sizeof(text), "%.6f ms", static_cast<double>(time) / kMillisecond);
  return text;
}

std::string DescribeTxn(const Model& model, uint32_t txn) {
  static constexpr const char* kOutcomes[] = {"committed", "aborted", "unknown"};
  const Operation& op = model.history().operations[txn];
  std::string text = absl::StrCat(TxnName(model, txn), " (process ", op.process, ", ",
                                  kOutcomes[static_cast<int>(op.outcome)], ", ", DescribeTime(op.invoke_ns),
                                  " to ", DescribeTime(op.complete_ns), "):");
  const auto ops = model.history().Ops(op);
  for (size_t i = 0; i < std::min(ops.size(), kShownOps); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : " ", OpText(model, ops[i]));
  }
  if (ops.size() > kShownOps) absl::StrAppend(&text, ", ... (", ops.size(), " operations)");
  return text;
}

std::string DescribeRead(const Model& model, const ExternalRead& read) {
  std::string text =
      absl::StrCat(TxnName(model, read.txn), " read ", model.history().KeyName(model.key(read.key)), " = ");
  if (read.result == ReadResult::kList) return text + ListText(model.List(read));
  if (read.result == ReadResult::kNil) return text + "nil";
  absl::StrAppend(&text, read.value);
  return text;
}

bool Reporter::HasAborted(const std::vector<uint32_t>& operations) const {
  return std::any_of(operations.begin(), operations.end(),
                     [&](uint32_t txn) { return !model_.committed(txn); });
}

void Reporter::Keep(Anomaly anomaly) {
  ++count_;
  const size_t kind = static_cast<size_t>(anomaly.kind);
  if (kept_.size() <= kind) kept_.resize(kind + 1);
  if (kept_[kind] == model_.options().max_reports) return;
  ++kept_[kind];
  anomalies_.push_back(std::move(anomaly));
}

void Reporter::Report(AnomalyKind kind, std::vector<uint32_t> operations, const std::string& what,
                      const std::string& nickname, bool realtime) {
  Anomaly anomaly;
  anomaly.kind = kind;
  anomaly.realtime = realtime;
  anomaly.nickname = nickname;
  // A reader that aborted is what opacity speaks of; who wrote the value does not matter.
  anomaly.opacity = !operations.empty() && !model_.committed(operations.front());
  anomaly.text = absl::StrCat(anomaly.Title(), ": ", what, "\n");
  for (uint32_t txn : operations) absl::StrAppend(&anomaly.text, "  ", DescribeTxn(model_, txn), "\n");
  anomaly.operations = std::move(operations);
  Keep(std::move(anomaly));
}

void Reporter::ReportCycle(const Cycle& cycle) {
  Anomaly anomaly;
  anomaly.kind = cycle.kind;
  anomaly.realtime = cycle.realtime;
  anomaly.nickname = Nickname(cycle);
  for (const Step& step : cycle.steps) anomaly.operations.push_back(step.from);
  anomaly.opacity = HasAborted(anomaly.operations);
  anomaly.text =
      absl::StrCat(anomaly.Title(), ": no serial order", cycle.realtime ? " that agrees with real time" : "",
                   " has room for these ", cycle.steps.size(), " transactions\n");
  for (uint32_t txn : anomaly.operations)
    absl::StrAppend(&anomaly.text, "  ", DescribeTxn(model_, txn), "\n");
  anomaly.text += "  because\n";
  for (const Step& step : cycle.steps) {
    absl::StrAppend(&anomaly.text, "  ", TxnName(model_, step.from), " -> ", TxnName(model_, step.to), " (",
                    EdgeWord(step.edge.kind), "): ", Explain(model_, step), "\n");
  }
  Keep(std::move(anomaly));
}

std::vector<Anomaly> Reporter::TakeAnomalies() {
  std::stable_sort(anomalies_.begin(), anomalies_.end(),
                   [](const Anomaly& a, const Anomaly& b) { return a.kind < b.kind; });
  return std::move(anomalies_);
}

}  // namespace furrow::checker
