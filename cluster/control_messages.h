// The messages of the control plane by name (proto/cluster.proto): X(Join) stands for JoinRequest and
// JoinReply.
#ifndef FURROW_CLUSTER_CONTROL_MESSAGES_H_
#define FURROW_CLUSTER_CONTROL_MESSAGES_H_

// clang-format off
#define FURROW_CONTROL_METHODS(X) \
  X(Hello) \
  X(Join) \
  X(Ready) \
  X(Leave) \
  X(AllocateRegion) \
  X(LookupRegion) \
  X(ClusterStatus) \
  X(NewConfig) \
  X(NewConfigCommit) \
  X(PrepareRegion) \
  X(CommitRegion) \
  X(AbortRegion) \
  X(MemberStatus) \
  X(EndCluster)
// clang-format on

namespace furrow::cluster {

namespace pb {
#define FURROW_DECLARE(name) \
  class name##Request;       \
  class name##Reply;
FURROW_CONTROL_METHODS(FURROW_DECLARE)
#undef FURROW_DECLARE
}  // namespace pb

// Of the control plane; both sides must speak the same.
inline constexpr unsigned kControlProtocol = 2;
inline constexpr char kVersion[] = "0.1.0";

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONTROL_MESSAGES_H_
