// What each kind of key implies: anomalies that show in one key, and edges of the dependency graph.
#ifndef FURROW_TESTS_CHECKER_RULES_H_
#define FURROW_TESTS_CHECKER_RULES_H_

#include "tests/checker/graph.h"
#include "tests/checker/model.h"
#include "tests/checker/report.h"

namespace furrow::checker {

// Lists show their whole history: the longest read is the order of the versions, all others must be prefixes
// of it, and what was committed but never read lies behind it.
void CheckLists(const Model& model, Graph* graph, Reporter* reporter);

// Registers: the initial value precedes all; who read a version and wrote the key made the next one; what
// began when a version was there is later (real time only).
void CheckRegisters(const Model& model, Graph* graph, Reporter* reporter);

// Counters that only grow: each read lies between the increments that were over before it and those that had
// begun before its end, never goes back, and snapshots of the same counters are ordered. No edges.
void CheckCounters(const Model& model, Reporter* reporter);

// Banks: every complete read of the accounts adds up to the total. No edges.
void CheckBank(const Model& model, Reporter* reporter);

// The order of each process and, if the options ask for it, of real time.
void AddTimeEdges(const Model& model, Graph* graph);

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_RULES_H_
