// RemoteControlPlane: the ControlPlane of a member: asks the manager over gRPC (also when that is this
// process), off the workers' threads; the answer resumes the coroutine on its own loop.
//
// A request whose answer is lost is sent again, within its deadline, where the manager recognises a
// repetition: always but for a new group without a name. When its client is shut down (the cluster has ended
// for this member, or it stops) what is under way ends with Unavailable at once, and so does every later
// call.
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
  struct Options {
    Nanos allocate_timeout_ns = 60 * kSecond;  // all attempts
    Nanos attempt_timeout_ns = 20 * kSecond;  // one of them: the time in which a region is made and committed
    Nanos lookup_timeout_ns = 10 * kSecond;
    Nanos retry_ns = 50 * kMillisecond;  // the pause before the next attempt
  };
  // All outlive it.
  RemoteControlPlane(ControlClient& client, RegionDirectory& directory)
      : RemoteControlPlane(client, directory, Options()) {}
  RemoteControlPlane(ControlClient& client, RegionDirectory& directory, Options options)
      : client_(client), directory_(directory), options_(options) {}

  // Where the manager is; before the first call. Any thread.
  void SetManager(std::string address) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string manager() const ABSL_LOCKS_EXCLUDED(mutex_);

  Task<absl::StatusOr<const RegionMapping*>> AllocateRegion(AllocateRegionRequest request) override;
  Task<absl::StatusOr<const RegionMapping*>> LookupRegion(RegionId id) override;

 private:
  ControlClient& client_;
  RegionDirectory& directory_;
  const Options options_;
  mutable Mutex mutex_;
  std::string manager_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_REMOTE_CONTROL_PLANE_H_
