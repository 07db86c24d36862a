// ClusterStatus: what `furrow status` shows, fetched from the manager.
#ifndef FURROW_CLUSTER_STATUS_H_
#define FURROW_CLUSTER_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/configuration.h"
#include "cluster/control_client.h"
#include "cluster/host.h"
#include "cluster/view.h"

namespace furrow::cluster {

struct MemberStatus {
  Member member;
  bool answers = false;  // the rest is empty if not
  MemberReport report;
  ConfigId config;
  Timestamp clock_lower;
  Timestamp clock_upper;
  Timestamp safe_point;
  Nanos uptime_ns = 0;
  uint32_t primaries = 0;
  uint32_t backups = 0;
};

struct ClusterStatus {
  Configuration configuration;
  std::vector<RegionMapping> regions;
  std::vector<MemberStatus> members;
};

// Asks the member at `address`, which may say where the manager is. PermissionDenied: wrong secret.
// Unavailable: nobody there.
absl::StatusOr<ClusterStatus> FetchStatus(ControlClient& client, const std::string& secret,
                                          const std::string& address, Nanos timeout_ns);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_STATUS_H_
