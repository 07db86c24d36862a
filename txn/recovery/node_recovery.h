// NodeRecovery: a node's part in a change of configuration: carries it to the workers and counts their
// answers. Thread-safe. Made before the node's workers start, and outlives them.
#ifndef FURROW_TXN_RECOVERY_NODE_RECOVERY_H_
#define FURROW_TXN_RECOVERY_NODE_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "cluster/seams.h"
#include "txn/recovery/records.h"

namespace furrow::txn {

class Node;
class Worker;

class NodeRecovery final : public cluster::ReconfigurationListener {
 public:
  // Makes itself the node's.
  explicit NodeRecovery(Node& node);
  ~NodeRecovery() override;

  // Before the first configuration; in the order of their ids.
  void AddWorker(Worker& worker);

  void OnNewConfiguration(cluster::Reconfiguration change, std::function<void()> adopted) override;
  void OnConfigurationCommitted(ConfigId config, std::function<void()> recovered) override;

  // --- by workers ---
  void Adopted(ConfigId config);
  // One worker has recovered the locks of a region of which this node became primary; with the last of them
  // the region is active.
  void LocksRecovered(RegionId region, ConfigId config);
  void WorkerRecovered(ConfigId config);
  // Worker 0, in a new configuration: says of all regions of which this node has become primary that they are
  // active.
  void RepeatActive();
  void Forward(NodeId from, RecoveryMessage message);

 private:
  void Activate(RegionId region, ConfigId config);
  void RecoverAllocators(ConfigId config, std::function<void()> then);
  size_t workers() const { return workers_.size(); }

  Node& node_;
  std::vector<Worker*> workers_;

  mutable Mutex mutex_;
  ConfigId config_ ABSL_GUARDED_BY(mutex_);  // the newest
  size_t adopted_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t recovered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_adopted_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_recovered_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<RegionId, size_t> locks_recovered_ ABSL_GUARDED_BY(mutex_);  // by how many workers
  std::set<RegionId> taken_over_ ABSL_GUARDED_BY(mutex_);  // this node became their primary; active
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_NODE_RECOVERY_H_
