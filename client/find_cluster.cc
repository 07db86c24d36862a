#include "client/find_cluster.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "client/cluster_files.h"
#include "cluster/agent.h"

namespace furrow::client {
namespace {

constexpr Nanos kHelloTimeoutNs = kSecond;  // of one attempt; then it is said who is waited for
constexpr Nanos kHelloPauseNs = 50 * kMillisecond;

}  // namespace

absl::StatusOr<ClusterAddress> FindCluster(const std::string& cluster, const std::string& secret_file) {
  std::error_code error;
  if (std::filesystem::is_directory(cluster, error)) {
    FURROW_ASSIGN_OR_RETURN(ClusterFile file, ReadClusterFile(cluster));
    return ClusterAddress{file.addresses[0], secret_file.empty() ? cluster + "/secret" : secret_file};
  }
  if (cluster.find('/') != std::string::npos || cluster.rfind(':') == std::string::npos) {
    return absl::NotFoundError(
        absl::StrCat("there is no directory ", cluster,
                     ": give a cluster's directory, or host:port of a member, with MemberOptions::cluster"));
  }
  if (!IsAddress(cluster)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", cluster, "\" is no address: write host:port, as in 127.0.0.1:4500"));
  }
  if (!secret_file.empty()) return ClusterAddress{cluster, secret_file};
  return absl::InvalidArgumentError(
      absl::StrCat("to reach ", cluster,
                   " by its address the cluster's secret is needed: name its "
                   "file with MemberOptions::secret_file, or give the cluster's directory"));
}

absl::StatusOr<cluster::Introduction> Hello(const MemberOptions& options, const std::string& secret,
                                            const std::string& address) {
  cluster::ControlClient client(secret);
  const Nanos deadline = MonotonicClock().Now() + options.join_timeout_ns;
  for (bool told = false;; told = true) {
    const Nanos left = std::max<Nanos>(deadline - MonotonicClock().Now(), kMillisecond);
    absl::StatusOr<cluster::Introduction> introduction = cluster::SayHello(
        client, secret, address, options.storage ? cluster::Role::kStorage : cluster::Role::kCompute,
        NodeId(options.id), /*wait=*/false, std::min(left, kHelloTimeoutNs));
    const absl::Status& status = introduction.status();
    const bool no_answer = cluster::IsNoAnswer(status);
    if (!no_answer && !absl::IsUnavailable(status)) return introduction;
    const bool nobody = no_answer && absl::IsUnavailable(status);
    if ((nobody && !options.wait_for_cluster) || MonotonicClock().Now() >= deadline) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(),
                                       ": look with furrow status whether the cluster runs, or start one on "
                                       "this host with deploy/local-cluster up"));
    }
    if (!told) {
      FURROW_LOG(WARNING) << status.message() << "; waiting for it, at most "
                          << absl::StrFormat("%.1f s", static_cast<double>(left) / kSecond);
    }
    SleepThreadUntil(std::min(MonotonicClock().Now() + kHelloPauseNs, deadline));
  }
}

}  // namespace furrow::client
