// The dependency graph: transactions, edges with the reason for each, and auxiliary nodes that stand for many
// edges.
#ifndef FURROW_TESTS_CHECKER_GRAPH_H_
#define FURROW_TESTS_CHECKER_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace furrow::checker {

enum class EdgeKind : uint8_t {
  kWw,       // the target replaced what the source wrote
  kWr,       // the target read what the source wrote
  kRw,       // the target replaced what the source read
  kTimedRw,  // the same, where only real time tells which of two writes is the later one
  kRealTime,
  kPass,  // from an auxiliary node on: part of the edge that led there
};

// A set of edge kinds.
using KindMask = uint32_t;
constexpr KindMask MaskOf(EdgeKind kind) { return KindMask{1} << static_cast<int>(kind); }

// Which sentence explains an edge; see Explain in report.cc for what key, a and b mean in each.
enum class Reason : uint8_t {
  kNone,
  kListNext,        // ww: append of b directly follows append of a
  kListUnseen,      // ww: append of b was never seen, so it follows a, the last one that was
  kListRead,        // wr: the read ends in a
  kListMissed,      // rw: b comes next after what was read
  kListMissedLast,  // rw: b was never seen, so it comes after the longest list, which was read
  kRegisterRead,    // wr: read a
  kRegisterOver,    // ww: read a and wrote b
  kRegisterMissed,  // rw: read a, which the target read too and replaced by b
  kRegisterFirst,   // rw: read the initial value; b was written
  kRegisterTimed,   // timed rw: read a; b was written after a was there
  kBefore,          // real time
  kProcess,         // the same process, one after the other
};

struct Edge {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t key = 0;  // dense
  EdgeKind kind = EdgeKind::kPass;
  Reason reason = Reason::kNone;
  int64_t a = 0;
  int64_t b = 0;
};

// Nodes [0, transactions) are the operations of the history; auxiliary nodes follow. One owner.
class Graph {
 public:
  explicit Graph(uint32_t transactions) : transactions_(transactions), nodes_(transactions) {}

  uint32_t AddNodes(uint32_t count);
  void AddEdge(const Edge& edge) { edges_.push_back(edge); }
  // Sorts the edges by source. No edge is added afterwards.
  void Freeze();

  uint32_t transactions() const { return transactions_; }
  uint32_t nodes() const { return nodes_; }
  const std::vector<Edge>& edges() const { return edges_; }
  std::span<const Edge> From(uint32_t node) const {
    return {edges_.data() + first_[node], first_[node + 1] - first_[node]};
  }

 private:
  const uint32_t transactions_;
  uint32_t nodes_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_;
};

// A row of transactions, to any range of which an edge can be led in a logarithmic number of edges: an
// implicit binary tree whose inner nodes are auxiliary nodes of the graph.
class FanOut {
 public:
  struct Target {
    uint32_t txn;
    int64_t value;  // what it wrote: b of the edge
  };
  // `targets` sorted by transaction, each once; must outlive this object.
  FanOut(Graph* graph, std::span<const Target> targets, uint32_t key);

  // Leads `edge` (whose `to` and `b` are filled in here) to the targets [begin, end), except to its own
  // source.
  void Link(Edge edge, size_t begin, size_t end);

 private:
  void LinkRange(Edge edge, size_t begin, size_t end);
  void LinkNode(Edge edge, size_t node);
  void Build();

  Graph* const graph_;
  const std::span<const Target> targets_;
  const uint32_t key_;
  bool built_ = false;
  uint32_t base_ = 0;  // inner node i of the tree is node base_ + i of the graph; 1 is the root
};

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_GRAPH_H_
