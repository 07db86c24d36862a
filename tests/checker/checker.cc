#include "tests/checker/checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/checker/cycles.h"
#include "tests/checker/model.h"
#include "tests/checker/report.h"
#include "tests/checker/rules.h"

namespace furrow::checker {

const char* KindName(AnomalyKind kind) {
  switch (kind) {
    case AnomalyKind::kInternal:
      return "internal";
    case AnomalyKind::kPhantom:
      return "phantom value";
    case AnomalyKind::kDuplicate:
      return "duplicate append";
    case AnomalyKind::kIncompatibleOrder:
      return "incompatible order";
    case AnomalyKind::kG1a:
      return "G1a";
    case AnomalyKind::kG1b:
      return "G1b";
    case AnomalyKind::kLostUpdate:
      return "lost update";
    case AnomalyKind::kG0:
      return "G0";
    case AnomalyKind::kG1c:
      return "G1c";
    case AnomalyKind::kGSingle:
      return "G-single";
    case AnomalyKind::kG2Item:
      return "G2-item";
    case AnomalyKind::kLongFork:
      return "long fork";
    case AnomalyKind::kCounter:
      return "counter";
    case AnomalyKind::kBankTotal:
      return "bank total";
  }
  return "unknown";
}

std::string Anomaly::Title() const {
  std::string title = absl::StrCat(KindName(kind), realtime ? "-realtime" : "");
  if (!nickname.empty()) absl::StrAppend(&title, " (", nickname, ")");
  if (opacity) title += " in an uncommitted transaction";
  return title;
}

bool Verdict::Has(AnomalyKind kind) const {
  return std::any_of(anomalies.begin(), anomalies.end(), [&](const Anomaly& a) { return a.kind == kind; });
}

bool Verdict::Has(AnomalyKind kind, bool realtime) const {
  return std::any_of(anomalies.begin(), anomalies.end(),
                     [&](const Anomaly& a) { return a.kind == kind && a.realtime == realtime; });
}

std::string Verdict::ToString() const {
  std::string text = absl::StrCat(committed, " committed, ", aborted, " aborted, ", unknown,
                                  " of unknown outcome; ", reads, " reads, ", edges, " edges: ");
  if (valid()) return text + "no anomaly\n";
  absl::StrAppend(&text, anomaly_count, anomaly_count == 1 ? " anomaly" : " anomalies", "\n");
  for (const Anomaly& anomaly : anomalies) absl::StrAppend(&text, "\n", anomaly.text);
  if (anomalies.size() < anomaly_count) {
    absl::StrAppend(&text, "\n", anomaly_count - anomalies.size(), " more are not printed\n");
  }
  return text;
}

absl::StatusOr<Verdict> Check(const History& history, const CheckOptions& options) {
  if (history.operations.size() > UINT32_MAX / 8) {
    return absl::InvalidArgumentError(absl::StrCat("the history has ", history.operations.size(),
                                                   " operations; up to 2^29 can be checked"));
  }
  Model model(history, options);
  FURROW_RETURN_IF_ERROR(model.Build());
  Reporter reporter(model);
  for (const InternalConflict& conflict : model.internal_conflicts()) {
    reporter.Report(AnomalyKind::kInternal, {conflict.txn},
                    absl::StrCat("operation ", conflict.op + 1, " of ", TxnName(model, conflict.txn),
                                 " reads ", history.KeyName(model.key(conflict.key)),
                                 " otherwise than its own earlier operations demand"));
  }
  Graph graph(static_cast<uint32_t>(history.operations.size()));
  CheckLists(model, &graph, &reporter);
  CheckRegisters(model, &graph, &reporter);
  CheckCounters(model, &reporter);
  CheckBank(model, &reporter);
  AddTimeEdges(model, &graph);
  graph.Freeze();

  size_t components = 0;
  const std::vector<Cycle> cycles = FindCycles(graph, options.max_reports, &components);
  for (const Cycle& cycle : cycles) reporter.ReportCycle(cycle);
  reporter.CountCycles(components - cycles.size());

  Verdict verdict;
  verdict.anomaly_count = reporter.count();
  verdict.anomalies = reporter.TakeAnomalies();
  verdict.reads = model.read_count();
  verdict.edges = graph.edges().size();
  for (uint32_t txn = 0; txn < history.operations.size(); ++txn) {
    if (model.committed(txn)) {
      ++verdict.committed;
    } else {
      ++(history.operations[txn].outcome == Outcome::kFail ? verdict.aborted : verdict.unknown);
    }
  }
  return verdict;
}

}  // namespace furrow::checker
