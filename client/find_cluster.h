// Finding a cluster: by its directory or an address, and the first words with one of its members.
#ifndef FURROW_CLIENT_FIND_CLUSTER_H_
#define FURROW_CLIENT_FIND_CLUSTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/member_options.h"

namespace furrow::cluster {
struct Introduction;
}

namespace furrow::client {

// Files of a cluster's directory that tools and members look it up in.
struct ClusterAddress {
  std::string address;  // host:port of a member
  std::string secret_file;
};
// `cluster` is a directory or host:port. NotFound: no such directory, or no running cluster in it.
absl::StatusOr<ClusterAddress> FindCluster(const std::string& cluster, const std::string& secret_file);

// Until a member answers that belongs to a cluster: nobody at the address is an error at once, unless the
// options ask to wait. Whoever waits says for whom. Blocks, at most for options.join_timeout_ns.
absl::StatusOr<cluster::Introduction> Hello(const MemberOptions& options, const std::string& secret,
                                            const std::string& address);

}  // namespace furrow::client

#endif  // FURROW_CLIENT_FIND_CLUSTER_H_
