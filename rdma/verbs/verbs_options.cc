#include "rdma/verbs/verbs_options.h"

#include "absl/strings/str_cat.h"

namespace furrow::rdma {
namespace {

absl::Status Range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the verbs setting ", name, " is ", value, "; it may be ", low, " to ", high));
}

}  // namespace

absl::Status CheckVerbsOptions(const VerbsOptions& options) {
  if (options.retry_count > 6) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the verbs setting retry_count is ", options.retry_count,
        "; it may be 0 to 6: 7 means for ever on some devices, and requests to a dead peer would "
        "never end"));
  }
  if (options.max_mtu < 256 || options.max_mtu > 4096 || (options.max_mtu & (options.max_mtu - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the verbs setting max_mtu is ", options.max_mtu,
                                                   "; it may be 256, 512, 1024, 2048 or 4096 bytes"));
  }
  for (const absl::Status& status :
       {Range("gid_index", options.gid_index, -1, 255), Range("service_level", options.service_level, 0, 7),
        Range("urgent_service_level", options.urgent_service_level, 0, 7),
        // 0 is "for ever", too.
        Range("ack_timeout", options.ack_timeout, 1, 31),
        Range("session_ack_timeout", options.session_ack_timeout, 1, 31),
        Range("min_rnr_timer", options.min_rnr_timer, 1, 31),
        Range("rnr_retry_count", options.rnr_retry_count, 0, 7),
        Range("read_depth", options.read_depth, 1, 255),
        Range("notify_credits", options.notify_credits, 2, 4096)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace furrow::rdma
