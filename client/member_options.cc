#include "client/member_options.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cluster_files.h"
#include "cluster/configuration.h"

namespace furrow::client {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

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
    return Bad(absl::StrCat("MemberOptions::lease_ns must be from 100ms to 3600s, not ", o.lease_ns, "ns"));
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
  if (o.clock_uncertainty_ns < 0) return Bad("MemberOptions::clock_uncertainty_ns must not be negative");
  return absl::OkStatus();
}

std::string WithOptionNames(const std::string& message, const OptionNames& names) {
  OptionNames from_to;
  for (const auto& [member, name] : names)
    from_to.emplace_back(absl::StrCat("MemberOptions::", member), name);
  return absl::StrReplaceAll(message, from_to);  // of two that begin alike the longer one counts
}

}  // namespace furrow::client
