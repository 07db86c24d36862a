#include <cstdio>
#include <string>

#include "node/commands.h"

namespace furrow::node {

const client::OptionNames& FlagsOf(const std::string& command) {
  static const auto& node = *new client::OptionNames{{"id", "--id"},
                                                     {"cluster", "--join"},
                                                     {"directory", "--dir"},
                                                     {"cluster_directory", "--cluster-dir"},
                                                     {"secret_file", "--secret-file"},
                                                     {"join_timeout_ns", "--join-timeout"},
                                                     {"listen", "--listen"},
                                                     {"failure_domain", "--failure-domain"},
                                                     {"fabric", "--fabric"},
                                                     {"address", "--rdma-address"},
                                                     {"gid_index", "--rdma-gid-index"},
                                                     {"traffic_class", "--rdma-traffic-class"},
                                                     {"service_level", "--rdma-service-level"},
                                                     {"lease_traffic_class", "--rdma-lease-traffic-class"},
                                                     {"lease_service_level", "--rdma-lease-service-level"},
                                                     {"retry_count", "--rdma-retry-count"},
                                                     {"ack_timeout", "--rdma-ack-timeout"},
                                                     {"max_mtu", "--rdma-max-mtu"},
                                                     {"read_depth", "--rdma-read-depth"},
                                                     {"socket_directory", "--socket-dir"},
                                                     {"memory_root", "--memory-dir"},
                                                     {"workers", "--workers"},
                                                     {"memory_bytes", "--memory"},
                                                     {"old_version_bytes", "--old-versions"},
                                                     {"huge_pages", "--huge-pages"},
                                                     {"replicas", "--replicas"},
                                                     {"region_bytes", "--region-size"},
                                                     {"lease_ns", "--lease"},
                                                     {"lease_renewals", "--lease-renewals"},
                                                     {"log_ring_bytes", "--log-ring"},
                                                     {"message_ring_bytes", "--message-ring"},
                                                     {"clock_offset_ns", "--clock-offset"},
                                                     {"clock_uncertainty_ns", "--clock-uncertainty"}};
  static const auto& status =
      *new client::OptionNames{{"cluster", "--cluster"}, {"secret_file", "--secret-file"}};
  return command == "status" ? status : node;
}

int Report(const char* command, const absl::Status& status) {
  const std::string message = client::WithOptionNames(std::string(status.message()), FlagsOf(command));
  if (absl::IsOutOfRange(status)) {
    std::fputs(message.c_str(), stdout);
    return 0;
  }
  std::fprintf(stderr, "furrow %s: %s\n", command, message.c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace furrow::node
