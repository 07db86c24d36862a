// RemoteControlPlane: the ControlPlane of a member: asks the manager over gRPC (also when that is this
// process), off the workers' threads; the answer resumes the coroutine on its own loop.
#ifndef FURROW_CLUSTER_REMOTE_CONTROL_PLANE_H_
#define FURROW_CLUSTER_REMOTE_CONTROL_PLANE_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "cluster/control_client.h"
#include "cluster/region_directory.h"
#include "cluster/seams.h"

namespace furrow::cluster {

class RemoteControlPlane final : public ControlPlane {
 public:
  static constexpr Nanos kAllocateTimeoutNs = 60 * kSecond;
  static constexpr Nanos kLookupTimeoutNs = 10 * kSecond;
  // Both outlive it.
  RemoteControlPlane(ControlClient& client, RegionDirectory& directory)
      : client_(client), directory_(directory) {}

  // Where the manager is; before the first call. Any thread.
  void SetManager(std::string address) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string manager() const ABSL_LOCKS_EXCLUDED(mutex_);

  Task<absl::StatusOr<const RegionMapping*>> AllocateRegion(AllocateRegionRequest request) override;
  Task<absl::StatusOr<const RegionMapping*>> LookupRegion(RegionId id) override;

 private:
  ControlClient& client_;
  RegionDirectory& directory_;
  mutable Mutex mutex_;
  std::string manager_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_REMOTE_CONTROL_PLANE_H_
