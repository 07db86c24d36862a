// WorkerRecovery: a worker's part in a change of configuration: it adopts, drains, recovers.
//
//   Adopt (NEW-CONFIG) --> Begin (NEW-CONFIG-COMMIT): drained --> a NEED-RECOVERY part of every worker of
//   every storage member is here: ready --> nothing recovers here any more: recovered
// The next Adopt() may come at any point, and what was on the way is void. Owner thread only.
#ifndef FURROW_TXN_RECOVERY_WORKER_RECOVERY_H_
#define FURROW_TXN_RECOVERY_WORKER_RECOVERY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "base/task.h"
#include "rdma/ring/mesh.h"
#include "txn/records.h"
#include "txn/recovery/decision.h"
#include "txn/recovery/post.h"
#include "txn/recovery/records.h"
#include "txn/recovery/replica.h"

namespace furrow::txn {

class Worker;

class WorkerRecovery {
 public:
  explicit WorkerRecovery(Worker& worker);

  // By NodeRecovery, which has made the configuration the node's.
  void Adopt(ConfigId config);
  void Begin(ConfigId config);
  // A message for this worker: by post, or forwarded by another worker of the node.
  void OnMessage(NodeId from, RecoveryMessage message);
  // To every member: reads, locks and validation in the region go on. Said again in later configurations:
  // those who had not heard it do not hear of an older one.
  void SayRegionActive(const cluster::RegionMapping& mapping);
  // Makes this worker's regions of which the node became primary ready for allocation: blocks cut alike at
  // all replicas, free slots found. Unavailable: a replica is gone.
  Task<absl::Status> RecoverAllocator(ConfigId config, RegionId region);

  RecoveryPost& post() { return post_; }
  // How far it is, in words: "c2: drained, 3 of 4 parts, ...". For reports of what does not end.
  std::string Describe() const;

 private:
  void Handle(NodeId from, RecoveryMessage message);
  void StartOwn();
  bool HaveAllParts() const;
  void BeReadyIfAllHaveTold();
  void CheckOver();
  Task<absl::Status> ReadBlocks(const cluster::Replica& replica, uint32_t blocks,
                                std::vector<storage::BlockHeader>* headers);
  Task<absl::Status> CutAt(const cluster::RegionMapping& mapping, size_t replica, uint32_t block,
                           const storage::BlockHeader& header);

  Worker& worker_;
  RecoveryPost post_;
  Decisions decisions_;
  ReplicaRecovery replica_;
  ConfigId config_;       // adopted
  bool drained_ = false;  // in config_
  bool ready_ = false;
  bool over_ = false;                                       // said that nothing recovers here
  absl::flat_hash_set<std::pair<NodeId, WorkerId>> parts_;  // of NEED-RECOVERY
  std::vector<std::pair<NodeId, RecoveryMessage>>
      early_;  // before this worker is drained in their configuration
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_WORKER_RECOVERY_H_
