// Configuration: what the config store keeps, <i, S, F, CM> of SOSP'15 section 3 with what the manager needs
// besides.
#ifndef FURROW_CLUSTER_CONFIGURATION_H_
#define FURROW_CLUSTER_CONFIGURATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cluster/view.h"

namespace furrow::cluster {

// Region ids that a manager may give out before it has to reserve more by a configuration change.
inline constexpr uint32_t kRegionRange = 4096;
// Ids below are for storage members, whose operators choose them; compute members get theirs from here on.
inline constexpr uint32_t kFirstComputeId = 1001;
inline constexpr uint32_t kMaxMembers = 256;
// Silence of a member after which it is lost. Long enough for hosts whose cores are shared: a process that
// waits for its turn behind twenty others on two cores is silent for some 100 ms.
inline constexpr Nanos kDefaultLeaseNs = 5 * kSecond;
// The shortest is for hosts whose cores are free and whose control thread has a real-time priority.
inline constexpr Nanos kMinLeaseNs = 10 * kMillisecond;
inline constexpr Nanos kMaxLeaseNs = 3600 * kSecond;

struct Configuration {
  std::string cluster_id;  // 32 hexadecimal digits
  ConfigId id;
  NodeId manager;
  uint32_t first_region = 1;  // ids [first_region, first_region + kRegionRange) are the manager's to give out
  uint32_t replicas = 3;      // f + 1
  uint64_t region_bytes = 64 << 20;
  Nanos lease_ns = kDefaultLeaseNs;  // how long a member may be silent before it is lost
  std::string fabric = "shm";        // what members reach each other's memory by: Fabric::name()
  uint32_t next_compute_id = kFirstComputeId;
  std::vector<Member> members;
  std::vector<uint64_t> capacities;  // parallel to members: regions that each one's memory holds

  const Member* Find(NodeId node) const;
  uint64_t CapacityOf(NodeId node) const;
  void Add(Member member, uint64_t capacity);
  void Remove(NodeId node);
  std::shared_ptr<const ClusterView> View() const;
};

// The bytes of the config store and of NEW-CONFIG (proto/cluster.proto). InvalidArgument: not a
// configuration, or one that breaks its own rules (no manager among the members, double ids, ...).
std::string Encode(const Configuration& configuration);
absl::StatusOr<Configuration> DecodeConfiguration(std::string_view bytes);
absl::Status Validate(const Configuration& configuration);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONFIGURATION_H_
