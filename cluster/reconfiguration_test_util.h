// For the tests of Initiator: one member, and what it would have sent.
#ifndef FURROW_CLUSTER_RECONFIGURATION_TEST_UTIL_H_
#define FURROW_CLUSTER_RECONFIGURATION_TEST_UTIL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cluster/reconfiguration.h"

namespace furrow::cluster {

inline constexpr Nanos kLease = 10 * kMillisecond;
inline constexpr uint32_t kCompute = 1001;

inline Configuration Members(std::vector<uint32_t> ids, uint32_t manager = 1) {
  Configuration c;
  c.cluster_id = std::string(32, 'a');
  c.id = ConfigId(7);
  c.manager = NodeId(manager);
  c.lease_ns = kLease;
  for (uint32_t id : ids) {
    Member m;
    m.id = NodeId(id);
    m.role = id >= kCompute ? Role::kCompute : Role::kStorage;
    c.Add(m, m.role == Role::kStorage ? 10 : 0);
  }
  return c;
}

inline std::vector<uint32_t> Values(const std::vector<NodeId>& nodes) {
  std::vector<uint32_t> values;
  for (NodeId n : nodes) values.push_back(n.value());
  return values;
}
inline std::vector<uint32_t> MembersOf(const Configuration& c) {
  std::vector<uint32_t> values;
  for (const Member& m : c.members) values.push_back(m.id.value());
  return values;
}

// One member, and what it would have sent.
class One {
 public:
  One(uint32_t self, const Configuration& c)
      : machine_(
            {.self = NodeId(self), .lease_end = [this](NodeId node) { return lease_ends[node.value()]; }},
            c) {}
  Initiator* operator->() { return &machine_; }
  Initiator::State state() const { return machine_.state(); }
  // The next output, which must be of this kind.
  template <class T>
  T Next() {
    for (Initiator::Output& o : machine_.TakeOutputs()) outputs_.push_back(std::move(o));
    FURROW_CHECK(!outputs_.empty());
    T* output = std::get_if<T>(&outputs_.front());
    FURROW_CHECK(output != nullptr);
    T result = std::move(*output);
    outputs_.erase(outputs_.begin());
    return result;
  }
  bool nothing() {
    for (Initiator::Output& o : machine_.TakeOutputs()) outputs_.push_back(std::move(o));
    return outputs_.empty();
  }
  // Answers the PROBE that it has sent for all whom it asked, and returns these.
  std::vector<uint32_t> ProbeAll(ConfigId adopted = ConfigId(7)) {
    const auto probe = Next<Initiator::Probe>();
    for (NodeId node : probe.nodes) machine_.OnProbed(node, probe.round, adopted, now);
    return Values(probe.nodes);
  }
  Configuration Win() {
    const auto swap = Next<Initiator::Swap>();
    machine_.OnSwapped(absl::OkStatus(), nullptr, now);
    return swap.next;
  }
  Initiator::Announce Remap() {
    if (machine_.state() == Initiator::State::kCollecting) {
      const auto collect = Next<Initiator::Collect>();
      for (const Member& m : collect.next.members) machine_.OnCollected(m.id, collect.next.id, now);
    }
    const auto remap = Next<Initiator::Remap>();
    machine_.OnRemapped(remap.next.id, absl::OkStatus(), now);
    return Next<Initiator::Announce>();
  }
  void AcknowledgeAll(const Configuration& c) {
    for (const Member& m : c.members) machine_.OnAcknowledged(m.id, c.id, now);
  }
  // From a suspicion to the announcement.
  Configuration Announce() {
    ProbeAll();
    Win();
    return Remap().next;
  }
  Nanos now = kSecond;
  std::map<uint32_t, Nanos> lease_ends;

 private:
  Initiator machine_;
  std::vector<Initiator::Output> outputs_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_RECONFIGURATION_TEST_UTIL_H_
