// Finds cycles in a dependency graph: one for each strongly connected component, the gravest kind that it
// has, and of that kind a short one.
#ifndef FURROW_TESTS_CHECKER_CYCLES_H_
#define FURROW_TESTS_CHECKER_CYCLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/checker/checker.h"
#include "tests/checker/graph.h"

namespace furrow::checker {

// From one transaction to the next one of a cycle.
struct Step {
  uint32_t from = 0;
  uint32_t to = 0;
  Edge edge;  // the first edge of the way, with b taken from the last one
};

struct Cycle {
  std::vector<Step> steps;
  AnomalyKind kind = AnomalyKind::kG0;
  bool realtime = false;
};

// At most `max` cycles, those of the first components. `components`, if not null, becomes the number of
// components. The search for the shortest cycle of a component has a budget: in a huge component the cycle
// may be longer, or less grave, than the best one.
std::vector<Cycle> FindCycles(const Graph& graph, size_t max, size_t* components);

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_CYCLES_H_
