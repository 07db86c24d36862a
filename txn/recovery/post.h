// RecoveryPost: how a worker sends messages of recovery: items for the same receiver and of the same kind go
// together; long messages go in parts; what finds no room waits, for as long as its configuration is the
// newest. Owner thread only.
#ifndef FURROW_TXN_RECOVERY_POST_H_
#define FURROW_TXN_RECOVERY_POST_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/task.h"
#include "rdma/ring/mesh.h"
#include "txn/records.h"
#include "txn/recovery/records.h"

namespace furrow::txn {

class Worker;

class RecoveryPost {
 public:
  // `deliver` gets what this worker sends to itself, in a later round of the loop, and what has come in
  // whole, inside the handler of its ring.
  RecoveryPost(Worker& worker, std::function<void(NodeId from, RecoveryMessage)> deliver);
  RecoveryPost(const RecoveryPost&) = delete;
  RecoveryPost& operator=(const RecoveryPost&) = delete;

  // A new configuration: what was not sent is void.
  void SetConfig(ConfigId config);
  // Sends soon; `worker` of `node`.
  void Add(NodeId node, WorkerId worker, RecoveryType type, RecoveryItem item);
  // A message without items, unless some follow.
  void Open(NodeId node, WorkerId worker, RecoveryType type) { BatchFor(node, worker, type); }

  // A part came on the message ring of a peer.
  void OnPart(const rdma::InboundRing& ring, const MessageHeader& header, std::span<const std::byte> body);
  void OnRingClosed(const rdma::InboundRing& ring) { incoming_.erase(&ring); }

 private:
  // What a peer may announce: far above what the rings of all its threads hold.
  static constexpr size_t kMaxMessage = size_t{1} << 30;
  struct Batch {
    NodeId node;
    RecoveryMessage message;
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    size_t sent = 0;
  };
  Batch& BatchFor(NodeId node, WorkerId worker, RecoveryType type);
  void Close();
  // Sends what there is room for. True: nothing is left.
  bool Flush();
  Task<void> FlushLater();

  Worker& worker_;
  const std::function<void(NodeId, RecoveryMessage)> deliver_;
  ConfigId config_;
  std::vector<Batch> batches_;
  bool closing_ = false;   // Close() comes in this round
  bool flushing_ = false;  // FlushLater() runs
  std::map<NodeId, std::deque<Outgoing>> outgoing_;
  absl::flat_hash_map<const rdma::InboundRing*, std::vector<std::byte>> incoming_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_POST_H_
