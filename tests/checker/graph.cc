#include "tests/checker/graph.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace furrow::checker {

uint32_t Graph::AddNodes(uint32_t count) {
  FURROW_CHECK(count <= std::numeric_limits<uint32_t>::max() - nodes_);
  const uint32_t first = nodes_;
  nodes_ += count;
  return first;
}

void Graph::Freeze() {
  FURROW_CHECK(edges_.size() < std::numeric_limits<uint32_t>::max());
  first_.assign(nodes_ + 1, 0);
  for (const Edge& edge : edges_) ++first_[edge.from + 1];
  for (uint32_t i = 0; i < nodes_; ++i) first_[i + 1] += first_[i];
  std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
  std::vector<Edge> sorted(edges_.size());
  for (const Edge& edge : edges_) sorted[next[edge.from]++] = edge;
  edges_ = std::move(sorted);
}

FanOut::FanOut(Graph* graph, std::span<const Target> targets, uint32_t key)
    : graph_(graph), targets_(targets), key_(key) {}

void FanOut::Build() {
  built_ = true;
  const uint32_t size = static_cast<uint32_t>(targets_.size());
  base_ = graph_->AddNodes(size);
  for (uint32_t node = 1; node < size; ++node) {
    const Edge pass = {.from = base_ + node, .key = key_, .kind = EdgeKind::kPass};
    LinkNode(pass, 2 * node);
    LinkNode(pass, 2 * node + 1);
  }
}

// Tree node i below the number of targets is an inner node; the others are the targets themselves.
void FanOut::LinkNode(Edge edge, size_t node) {
  if (node < targets_.size()) {
    edge.to = base_ + static_cast<uint32_t>(node);
  } else {
    edge.to = targets_[node - targets_.size()].txn;
    edge.b = targets_[node - targets_.size()].value;
  }
  graph_->AddEdge(edge);
}

void FanOut::LinkRange(Edge edge, size_t begin, size_t end) {
  if (end - begin > 1 && !built_) Build();
  for (begin += targets_.size(), end += targets_.size(); begin < end; begin /= 2, end /= 2) {
    if (begin % 2 == 1) LinkNode(edge, begin++);
    if (end % 2 == 1) LinkNode(edge, --end);
  }
}

void FanOut::Link(Edge edge, size_t begin, size_t end) {
  if (begin >= end) return;
  const auto self = std::lower_bound(targets_.begin() + begin, targets_.begin() + end, edge.from,
                                     [](const Target& target, uint32_t txn) { return target.txn < txn; });
  const size_t at = static_cast<size_t>(self - targets_.begin());
  if (at == end || self->txn != edge.from) return LinkRange(edge, begin, end);
  if (begin < at) LinkRange(edge, begin, at);
  if (at + 1 < end) LinkRange(edge, at + 1, end);
}

}  // namespace furrow::checker
