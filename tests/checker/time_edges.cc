#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/checker/rules.h"

namespace furrow::checker {
namespace {

struct Moment {
  Nanos time = 0;
  uint32_t txn = 0;
  bool is_end = false;
};

// Beginnings before ends of the same time: only what ended strictly earlier counts as earlier.
std::vector<Moment> Moments(const Model& model) {
  std::vector<Moment> moments;
  moments.reserve(model.history().operations.size() * 2);
  for (uint32_t txn = 0; txn < model.history().operations.size(); ++txn) {
    if (!model.takes_part(txn)) continue;
    moments.push_back({model.history().operations[txn].invoke_ns, txn, false});
    if (model.end_ns(txn) != kNever) moments.push_back({model.end_ns(txn), txn, true});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.is_end < b.is_end;
  });
  return moments;
}

// A chain of barriers stands for the quadratic number of pairs: who ends leads to the newest barrier, each
// barrier to the next one, and the newest one to who begins. Ends without a beginning between them share a
// barrier.
void AddRealTimeEdges(const Model& model, Graph* graph) {
  uint32_t barrier = 0;  // none yet: 0 is a transaction
  bool has_left = true;  // somebody began behind the newest barrier, so it takes no more ends
  for (const Moment& moment : Moments(model)) {
    if (!moment.is_end) {
      if (barrier != 0) graph->AddEdge({.from = barrier, .to = moment.txn, .kind = EdgeKind::kPass});
      has_left = true;
      continue;
    }
    if (has_left) {
      const uint32_t next = graph->AddNodes(1);
      if (barrier != 0) graph->AddEdge({.from = barrier, .to = next, .kind = EdgeKind::kPass});
      barrier = next;
      has_left = false;
    }
    graph->AddEdge(
        {.from = moment.txn, .to = barrier, .kind = EdgeKind::kRealTime, .reason = Reason::kBefore});
  }
}

// A process is sequential even where its clock does not tell its operations apart.
void AddProcessEdges(const Model& model, Graph* graph) {
  absl::flat_hash_map<uint32_t, uint32_t> last;
  for (uint32_t txn = 0; txn < model.history().operations.size(); ++txn) {
    if (!model.takes_part(txn)) continue;
    const Operation& op = model.history().operations[txn];
    const auto [it, is_new] = last.try_emplace(op.process, txn);
    if (is_new) continue;
    const uint32_t before = it->second;
    if (model.end_ns(before) <= op.invoke_ns) {
      graph->AddEdge({.from = before, .to = txn, .kind = EdgeKind::kRealTime, .reason = Reason::kProcess});
    }
    it->second = txn;
  }
}

}  // namespace

void AddTimeEdges(const Model& model, Graph* graph) {
  if (model.options().real_time) AddRealTimeEdges(model, graph);
  AddProcessEdges(model, graph);
}

}  // namespace furrow::checker
