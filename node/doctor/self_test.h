// The self-test between two hosts: `furrow doctor --peer`. Whatever fails is a finding that says what to do.
#ifndef FURROW_NODE_DOCTOR_SELF_TEST_H_
#define FURROW_NODE_DOCTOR_SELF_TEST_H_

#include <vector>

#include "node/doctor/checks.h"
#include "node/doctor/peer_link.h"
#include "rdma/fabric.h"

namespace furrow::node {

struct SelfTestOptions {
  Nanos measure_ns = 300 * kMillisecond;  // of each figure; at least kMinMeasured operations
  uint64_t order_rounds = 20'000;  // fewer where they take longer than order_ns, but at least kMinRounds
  Nanos order_ns = 2 * kSecond;
  Nanos timeout_ns = 30 * kSecond;  // of any single step
};

// Connects to the doctor at `endpoint` and tries: a payload larger than any packet both ways, order between
// requests, latency, bandwidth. Ends with the first error.
std::vector<Finding> SelfTest(rdma::Fabric& fabric, const rdma::Endpoint& endpoint,
                              const SelfTestOptions& options);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_SELF_TEST_H_
