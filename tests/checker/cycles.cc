#include "tests/checker/cycles.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"

namespace furrow::checker {
namespace {

constexpr KindMask kPass = MaskOf(EdgeKind::kPass);
constexpr KindMask kWw = MaskOf(EdgeKind::kWw) | kPass;
constexpr KindMask kWr = MaskOf(EdgeKind::kWr);
constexpr KindMask kRw = MaskOf(EdgeKind::kRw);
constexpr KindMask kTimedRw = MaskOf(EdgeKind::kTimedRw);
constexpr KindMask kTime = MaskOf(EdgeKind::kRealTime);
constexpr KindMask kAll = kWw | kWr | kRw | kTimedRw | kTime;

// A search looks at so many edges per component before it takes the best cycle so far.
constexpr size_t kBudget = 30'000'000;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

using Nodes = std::vector<uint32_t>;

// All searches stay within one group of nodes and one set of edge kinds.
class Finder {
 public:
  explicit Finder(const Graph& graph)
      : graph_(graph),
        group_(graph.nodes(), 0),
        order_(graph.nodes(), kNone),
        low_(graph.nodes(), 0),
        cursor_(graph.nodes(), 0),
        distance_(graph.nodes(), kNone),
        parent_(graph.nodes(), nullptr) {}

  std::vector<Cycle> Run(size_t max, size_t* components);

 private:
  std::vector<Nodes> Components(const Nodes& nodes, KindMask mask);
  void Visit(uint32_t root, KindMask mask, std::vector<Nodes>* found);
  uint32_t Enter(uint32_t node);
  Cycle Gravest(const Nodes& component);
  std::optional<Cycle> Shortest(const Nodes& nodes, KindMask mask);
  std::optional<Cycle> WithOneRw(const Nodes& nodes, KindMask base, KindMask rw);
  // The way with the fewest transactions, appended to `way`; false if there is none shorter than `limit`.
  bool Way(uint32_t from, uint32_t to, KindMask mask, uint32_t limit, std::vector<const Edge*>* way);
  void Relax(const Edge& edge, uint32_t distance, std::deque<uint32_t>* queue);
  bool IsInside(const Edge& edge, KindMask mask) const {
    return (MaskOf(edge.kind) & mask) != 0 && group_[edge.to] == group_[edge.from];
  }
  void SetGroup(const Nodes& nodes, uint32_t group) {
    for (uint32_t node : nodes) group_[node] = group;
  }

  const Graph& graph_;
  std::vector<uint32_t> group_;
  uint32_t groups_ = 1;
  // Tarjan's algorithm, without recursion.
  std::vector<uint32_t> order_;
  std::vector<uint32_t> low_;
  std::vector<uint32_t> cursor_;
  std::vector<uint32_t> path_;
  std::vector<uint32_t> stack_;
  std::vector<bool> on_stack_;
  uint32_t entered_ = 0;
  // Breadth-first search.
  std::vector<uint32_t> distance_;
  std::vector<const Edge*> parent_;
  Nodes reached_;
  size_t budget_ = 0;
};

uint32_t Finder::Enter(uint32_t node) {
  order_[node] = low_[node] = entered_++;
  cursor_[node] = 0;
  path_.push_back(node);
  stack_.push_back(node);
  on_stack_[node] = true;
  return node;
}

void Finder::Visit(uint32_t root, KindMask mask, std::vector<Nodes>* found) {
  Enter(root);
  while (!path_.empty()) {
    const uint32_t node = path_.back();
    const auto edges = graph_.From(node);
    bool descended = false;
    while (cursor_[node] < edges.size()) {
      const Edge& edge = edges[cursor_[node]++];
      if (!IsInside(edge, mask)) continue;
      if (order_[edge.to] == kNone) {
        Enter(edge.to);
        descended = true;
        break;
      }
      if (on_stack_[edge.to]) low_[node] = std::min(low_[node], order_[edge.to]);
    }
    if (descended) continue;
    path_.pop_back();
    if (!path_.empty()) low_[path_.back()] = std::min(low_[path_.back()], low_[node]);
    if (low_[node] != order_[node]) continue;
    const bool is_single = stack_.back() == node;
    Nodes component;
    uint32_t member;
    do {
      member = stack_.back();
      stack_.pop_back();
      on_stack_[member] = false;
      if (!is_single) component.push_back(member);
    } while (member != node);
    if (!is_single) found->push_back(std::move(component));
  }
}

// The strongly connected components of more than one node. All `nodes` are of one group.
std::vector<Nodes> Finder::Components(const Nodes& nodes, KindMask mask) {
  on_stack_.resize(graph_.nodes());
  entered_ = 0;
  for (uint32_t node : nodes) order_[node] = kNone;
  std::vector<Nodes> found;
  for (uint32_t node : nodes) {
    if (order_[node] == kNone) Visit(node, mask, &found);
  }
  return found;
}

void Finder::Relax(const Edge& edge, uint32_t distance, std::deque<uint32_t>* queue) {
  if (distance >= distance_[edge.to]) return;
  if (distance_[edge.to] == kNone) reached_.push_back(edge.to);
  distance_[edge.to] = distance;
  parent_[edge.to] = &edge;
  if (edge.kind == EdgeKind::kPass) {
    queue->push_front(edge.to);
  } else {
    queue->push_back(edge.to);
  }
}

bool Finder::Way(uint32_t from, uint32_t to, KindMask mask, uint32_t limit, std::vector<const Edge*>* way) {
  std::deque<uint32_t> queue;
  uint32_t best = limit;
  const Edge* last = nullptr;
  auto expand = [&](uint32_t node, uint32_t distance) {
    for (const Edge& edge : graph_.From(node)) {
      if (budget_ > 0) --budget_;
      if (!IsInside(edge, mask)) continue;
      const uint32_t next = distance + (edge.kind == EdgeKind::kPass ? 0 : 1);
      if (next >= best) continue;
      if (edge.to == to) {
        best = next;
        last = &edge;
      } else {
        Relax(edge, next, &queue);
      }
    }
  };
  // The start stays without a distance, so that a way may come back to it.
  expand(from, 0);
  while (!queue.empty()) {
    const uint32_t node = queue.front();
    queue.pop_front();
    if (distance_[node] >= best || node == from) continue;
    expand(node, distance_[node]);
  }
  if (last != nullptr) {
    std::vector<const Edge*> reversed = {last};
    while (reversed.back()->from != from) reversed.push_back(parent_[reversed.back()->from]);
    way->insert(way->end(), reversed.rbegin(), reversed.rend());
  }
  for (uint32_t node : reached_) distance_[node] = kNone;
  reached_.clear();
  return last != nullptr;
}

// Joins the edges of a closed way into steps between transactions and names its kind.
Cycle MakeCycle(const Graph& graph, std::vector<const Edge*> way) {
  // Begin at a transaction.
  size_t start = 0;
  while (way[start]->from >= graph.transactions()) ++start;
  Cycle cycle;
  size_t rw = 0;
  size_t wr = 0;
  for (size_t i = 0; i < way.size(); ++i) {
    const Edge& edge = *way[(start + i) % way.size()];
    if (edge.kind != EdgeKind::kPass) {
      cycle.steps.push_back({edge.from, edge.to, edge});
      rw += edge.kind == EdgeKind::kRw || edge.kind == EdgeKind::kTimedRw;
      wr += edge.kind == EdgeKind::kWr;
      cycle.realtime |= edge.kind == EdgeKind::kRealTime || edge.kind == EdgeKind::kTimedRw;
    } else {
      cycle.steps.back().to = edge.to;
      cycle.steps.back().edge.b = edge.b;
    }
  }
  cycle.kind = rw > 1    ? AnomalyKind::kG2Item
               : rw == 1 ? AnomalyKind::kGSingle
               : wr > 0  ? AnomalyKind::kG1c
                         : AnomalyKind::kG0;
  return cycle;
}

std::optional<Cycle> Finder::Shortest(const Nodes& nodes, KindMask mask) {
  uint32_t best = kNone;
  std::vector<const Edge*> best_way;
  for (uint32_t node : nodes) {
    if (node >= graph_.transactions()) continue;
    std::vector<const Edge*> way;
    if (Way(node, node, mask, best, &way)) {
      best_way = std::move(way);
      best = 0;
      for (const Edge* edge : best_way) best += edge->kind != EdgeKind::kPass;
    }
    if (best == 2 || (budget_ == 0 && best != kNone)) break;
  }
  if (best_way.empty()) return std::nullopt;
  return MakeCycle(graph_, std::move(best_way));
}

std::optional<Cycle> Finder::WithOneRw(const Nodes& nodes, KindMask base, KindMask rw) {
  uint32_t best = kNone;
  std::vector<const Edge*> best_way;
  for (uint32_t node : nodes) {
    for (const Edge& edge : graph_.From(node)) {
      if (!IsInside(edge, rw) || budget_ == 0 || best == 1) continue;
      std::vector<const Edge*> way = {&edge};
      if (!Way(edge.to, node, base, best, &way)) continue;
      best_way = std::move(way);
      best = 0;
      for (const Edge* part : best_way) best += part != &edge && part->kind != EdgeKind::kPass;
    }
  }
  if (best_way.empty()) return std::nullopt;
  return MakeCycle(graph_, std::move(best_way));
}

// Tries the kinds of cycle from the gravest on. `component` is strongly connected over all kinds of edges.
Cycle Finder::Gravest(const Nodes& component) {
  struct Attempt {
    KindMask mask;
    KindMask one_rw;  // not 0: exactly one edge of these kinds besides the rest of the mask
  };
  static constexpr Attempt kAttempts[] = {
      {kWw, 0},         {kWw | kWr, 0},         {kWw | kWr | kRw, kRw}, {kWw | kWr | kRw, 0},
      {kWw | kTime, 0}, {kWw | kWr | kTime, 0}, {kAll, kRw | kTimedRw}, {kAll, 0},
  };
  const uint32_t group = ++groups_;
  SetGroup(component, group);
  std::optional<Cycle> cycle;
  for (const Attempt& attempt : kAttempts) {
    budget_ = kBudget / 8;
    for (const Nodes& part : Components(component, attempt.mask)) {
      SetGroup(part, ++groups_);
      cycle = attempt.one_rw != 0 ? WithOneRw(part, attempt.mask & ~attempt.one_rw, attempt.one_rw)
                                  : Shortest(part, attempt.mask);
      SetGroup(part, group);
      if (cycle.has_value()) return *std::move(cycle);
    }
  }
  FURROW_CHECK(cycle.has_value());
  return *std::move(cycle);
}

std::vector<Cycle> Finder::Run(size_t max, size_t* components) {
  Nodes all(graph_.nodes());
  for (uint32_t node = 0; node < graph_.nodes(); ++node) all[node] = node;
  std::vector<Nodes> found = Components(all, kAll);
  // The earliest first: later ones often follow from them. The smallest node of each is a transaction.
  for (Nodes& component : found) std::sort(component.begin(), component.end());
  std::sort(found.begin(), found.end(), [](const Nodes& a, const Nodes& b) { return a.front() < b.front(); });
  if (components != nullptr) *components = found.size();
  std::vector<Cycle> cycles;
  for (const Nodes& component : found) {
    if (cycles.size() == max) break;
    cycles.push_back(Gravest(component));
  }
  return cycles;
}

}  // namespace

std::vector<Cycle> FindCycles(const Graph& graph, size_t max, size_t* components) {
  return Finder(graph).Run(max, components);
}

}  // namespace furrow::checker
