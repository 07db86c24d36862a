#include "node/doctor/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "node/json.h"

namespace furrow::node {
namespace {

int Count(const std::vector<Finding>& findings, Level level) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [level](const Finding& f) { return f.level == level; }));
}

std::string Plural(int count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

Subject HostSubject(const HostFacts& facts, const Plan& plan) {
  const FabricChoice fabric = ChooseFabric(facts, plan);
  return {absl::StrCat(facts.name, ", kernel ", facts.kernel, ": ",
                       Plural(static_cast<int>(plan.NodesHere()), "node"), " of ", plan.nodes, " here, over ",
                       fabric.verbs ? "verbs" : "shared memory (shm)", " since ", fabric.why),
          absl::StrCat("\"host\": ", Quoted(facts.name), ", \"kernel\": ", Quoted(facts.kernel),
                       ", \"fabric\": ", fabric.verbs ? "\"verbs\"" : "\"shm\"", ", \"nodes\": ", plan.nodes,
                       ", \"nodes_here\": ", plan.NodesHere(), ",")};
}

Subject PeerSubject(const HostFacts& facts, const std::string& endpoint) {
  return {absl::StrCat(facts.name, ", kernel ", facts.kernel, ": self-test with the doctor at ", endpoint),
          absl::StrCat("\"host\": ", Quoted(facts.name), ", \"kernel\": ", Quoted(facts.kernel),
                       ", \"peer\": ", Quoted(endpoint), ",")};
}

std::string ReportText(const Subject& subject, const std::vector<Finding>& findings) {
  std::string out = subject.line + "\n";
  for (const Finding& f : findings) {
    absl::StrAppend(&out, absl::StrFormat("%-8s %-18s %s\n", LevelName(f.level), f.check, f.found));
    if (!f.advice.empty()) absl::StrAppend(&out, absl::StrFormat("%28s-> %s\n", "", f.advice));
  }
  const int errors = Count(findings, Level::kError);
  absl::StrAppend(&out, Plural(errors, "error"), ", ", Plural(Count(findings, Level::kWarning), "warning"),
                  errors > 0 ? ": this does not work here yet\n" : "\n");
  return out;
}

std::string ReportJson(const Subject& subject, const std::vector<Finding>& findings) {
  std::string out =
      absl::StrCat("{\"version\": 1, ", subject.fields, " \"errors\": ", Count(findings, Level::kError),
                   ", \"warnings\": ", Count(findings, Level::kWarning), ",\n \"findings\": [");
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    absl::StrAppend(&out, i > 0 ? "," : "", "\n  {\"level\": \"", LevelName(f.level),
                    "\", \"check\": ", Quoted(f.check), ", \"found\": ", Quoted(f.found),
                    ", \"advice\": ", Quoted(f.advice), "}");
  }
  return out + "]}\n";
}

int ExitCode(const std::vector<Finding>& findings) { return Count(findings, Level::kError) > 0 ? 1 : 0; }

}  // namespace furrow::node
