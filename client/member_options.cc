#include "client/member_options.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "client/cluster_files.h"
#include "cluster/configuration.h"

namespace furrow::client {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status ValidateRdma(const RdmaOptions& o) {
  const auto range = [](absl::string_view name, uint64_t value, uint64_t low, uint64_t high) {
    return value >= low && value <= high ? absl::OkStatus()
                                         : Bad(absl::StrCat("RdmaOptions::", name, " must be from ", low,
                                                            " to ", high, ", not ", value));
  };
  if (o.gid_index != RdmaOptions::kAnyGid) FURROW_RETURN_IF_ERROR(range("gid_index", o.gid_index, 0, 255));
  FURROW_RETURN_IF_ERROR(range("traffic_class", o.traffic_class, 0, 255));
  FURROW_RETURN_IF_ERROR(range("service_level", o.service_level, 0, 7));
  FURROW_RETURN_IF_ERROR(range("lease_traffic_class", o.lease_traffic_class, 0, 255));
  FURROW_RETURN_IF_ERROR(range("lease_service_level", o.lease_service_level, 0, 7));
  FURROW_RETURN_IF_ERROR(range("retry_count", o.retry_count, 0, 6));
  FURROW_RETURN_IF_ERROR(range("ack_timeout", o.ack_timeout, 1, 31));
  FURROW_RETURN_IF_ERROR(range("read_depth", o.read_depth, 1, 128));
  if (o.max_mtu >= 256 && o.max_mtu <= 4096 && std::has_single_bit(o.max_mtu)) return absl::OkStatus();
  return Bad(
      absl::StrCat("RdmaOptions::max_mtu must be 256, 512, 1024, 2048 or 4096 bytes, not ", o.max_mtu));
}

}  // namespace

absl::Status Validate(const MemberOptions& o) {
  if (o.storage && (o.id == 0 || o.id >= cluster::kFirstComputeId)) {
    return Bad(absl::StrCat("MemberOptions::id must be a number from 1 to ", cluster::kFirstComputeId - 1,
                            ", not ", o.id));
  }
  if (!o.storage && o.id != 0)
    return Bad("a compute member has no MemberOptions::id of its own: the cluster gives one");
  if (!o.storage && o.cluster.empty()) {
    return Bad(
        "a compute member needs a cluster to join: give its directory, or host:port of a member, with "
        "MemberOptions::cluster");
  }
  if (o.storage && o.directory.empty())
    return Bad("a storage member needs a directory of its own: give one with MemberOptions::directory");
  if (o.workers == 0 || o.workers > 256)
    return Bad(absl::StrCat("MemberOptions::workers must be from 1 to 256, not ", o.workers));
  if (o.replicas == 0 || o.replicas > 16)
    return Bad(absl::StrCat("MemberOptions::replicas must be from 1 to 16, not ", o.replicas));
  if (o.region_bytes % kMegabyte != 0 || o.region_bytes < 2 * kMegabyte ||
      o.region_bytes > 2048 * kMegabyte) {
    return Bad(
        absl::StrCat("MemberOptions::region_bytes must be a whole number of megabytes from 2M to 2G, not ",
                     o.region_bytes, " bytes"));
  }
  if (o.lease_ns < cluster::kMinLeaseNs || o.lease_ns > cluster::kMaxLeaseNs) {
    return Bad(absl::StrCat("MemberOptions::lease_ns must be from 10ms to 3600s, not ", o.lease_ns, "ns"));
  }
  if (o.lease_renewals < 2 || o.lease_renewals > 100) {
    return Bad(absl::StrCat("MemberOptions::lease_renewals must be from 2 to 100, not ", o.lease_renewals));
  }
  if (o.storage &&
      (o.old_version_bytes % kMegabyte != 0 || o.old_version_bytes < o.workers * 2 * kMegabyte)) {
    return Bad(absl::StrCat(
        "MemberOptions::old_version_bytes must be a whole number of megabytes, at least 2M per worker, not ",
        o.old_version_bytes, " bytes"));
  }
  if (!std::has_single_bit(o.log_ring_bytes) || o.log_ring_bytes < 64 << 10 ||
      !std::has_single_bit(o.message_ring_bytes) || o.message_ring_bytes < 16 << 10) {
    return Bad(
        "ring sizes must be powers of two, at least 64K for MemberOptions::log_ring_bytes and 16K for "
        "MemberOptions::message_ring_bytes");
  }
  if (o.fabric != "auto" && o.fabric != "shm" && o.fabric != "verbs") {
    return Bad(absl::StrCat("MemberOptions::fabric must be auto, shm or verbs, not '", o.fabric, "'"));
  }
  FURROW_RETURN_IF_ERROR(ValidateRdma(o.rdma));
  if (o.clock_uncertainty_ns < 0) return Bad("MemberOptions::clock_uncertainty_ns must not be negative");
  return absl::OkStatus();
}

std::string WithOptionNames(const std::string& message, const OptionNames& names) {
  OptionNames from_to;
  for (const auto& [member, name] : names) {
    from_to.emplace_back(absl::StrCat("MemberOptions::", member), name);
    from_to.emplace_back(absl::StrCat("RdmaOptions::", member), name);
  }
  return absl::StrReplaceAll(message, from_to);  // of two that begin alike the longer one counts
}

}  // namespace furrow::client
