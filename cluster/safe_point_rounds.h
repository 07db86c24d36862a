// SafePointRounds: the manager's side of the two-round computation of what old versions may be collected
// (FaRMv2 section 4.4). Input: the members' reports; output: the global oldest active timestamp and the safe
// point.
//
//   round 1: G = min over members of the oldest active timestamp that each reported
//   round 2: S = min over members of the G that each is known to know
// Between the rounds lies that a member that knows G refuses to start anything below it: so nobody reads
// below S. Both only grow. Not thread-safe.
#ifndef FURROW_CLUSTER_SAFE_POINT_ROUNDS_H_
#define FURROW_CLUSTER_SAFE_POINT_ROUNDS_H_

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/mutation.h"

namespace furrow::cluster {

class SafePointRounds {
 public:
  // A member that joins knows G from its admission on, and starts no transaction below it.
  void Add(NodeId node) { reports_.insert({node, {global_oldest_, global_oldest_}}); }
  void Remove(NodeId node) {
    reports_.erase(node);
    Compute();
  }
  // Reports of nodes that were not added are ignored.
  void Report(NodeId node, Timestamp oldest_active, Timestamp known_global) {
    auto it = reports_.find(node);
    if (it == reports_.end()) return;
    it->second.oldest_active = std::max(it->second.oldest_active, oldest_active);
    it->second.known_global = std::max(it->second.known_global, known_global);
    Compute();
  }
  Timestamp global_oldest() const { return global_oldest_; }
  Timestamp safe_point() const { return safe_point_; }

 private:
  struct Reported {
    Timestamp oldest_active;
    Timestamp known_global;
  };
  void Compute() {
    if (reports_.empty()) return;
    Timestamp oldest = Timestamp::Max();
    Timestamp known = Timestamp::Max();
    for (const auto& [node, reported] : reports_) {
      oldest = std::min(oldest, reported.oldest_active);
      known = std::min(known, reported.known_global);
    }
    global_oldest_ = std::max(global_oldest_, oldest);
    // Never above G: a member may know a G that was reported to a manager before this one.
    if (Mutated(Mutation::kOneRoundSafePoint)) known = global_oldest_;
    safe_point_ = std::max(safe_point_, std::min(known, global_oldest_));
  }
  absl::flat_hash_map<NodeId, Reported> reports_;
  Timestamp global_oldest_;
  Timestamp safe_point_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_SAFE_POINT_ROUNDS_H_
