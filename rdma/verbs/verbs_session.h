// VerbsSession: the queue pair between two fabrics over which they open and close connections, and
// SessionLink, what the threads of the connections need of it.
//
// A session is connected by rdma_cm, as connections are. On it each connection is agreed upon, and each end
// tells when it is there and when it goes: reliably, where the connection manager's own messages are
// datagrams.
#ifndef FURROW_RDMA_VERBS_VERBS_SESSION_H_
#define FURROW_RDMA_VERBS_VERBS_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "rdma/verbs/verbs_queue.h"
#include "rdma/verbs/verbs_wire.h"

struct ibv_comp_channel;
struct ibv_cq;
struct ibv_mr;
struct rdma_cm_id;

namespace furrow::rdma {

class VerbsConnection;

// Thread-safe. Locks: connections -> queue.
class SessionLink {
 public:
  // Messages that wait for the peer. One that lets more pile up is cut off.
  static constexpr size_t kMaxQueued = 1 << 16;

  // `wake`: there is something for the fabric's thread; thread-safe.
  SessionLink(NodeId peer, std::function<void()> wake) : peer_(peer), wake_(std::move(wake)) {}

  NodeId peer() const { return peer_; }
  // Messages of a session that is over are dropped.
  void Send(const VerbsMessage& message);
  // Is the peer alive? If it is not, the session ends, and with it all connections.
  void Probe();

  // --- connections ---
  // False: the id is in use.
  bool AddConnection(uint32_t id, VerbsConnection* connection);
  bool HasConnection(uint32_t id);
  // Its queue pair is gone: the fabric's thread ends the connection manager's side of it. False if it was not
  // there (any more).
  bool RemoveConnection(uint32_t id);
  // The peer has taken this connection into use: its queue yields it. False: it has said so before.
  bool ConnectionReady(uint32_t id);
  // The peer of this connection is gone: marks it and tells its queue.
  void LoseConnection(uint32_t id);

  // --- the fabric's thread ---
  // Empty: nothing is queued.
  bool TakeMessage(VerbsMessage* message);
  // The connections that were removed since the last call.
  std::vector<uint32_t> TakeRemoved();
  bool TakeProbe() { return probe_.exchange(false, std::memory_order_acq_rel); }
  bool overrun() const;
  // The session is over, and so are its connections.
  void End();

 private:
  const NodeId peer_;
  const std::function<void()> wake_;
  std::atomic<bool> probe_{false};

  mutable Mutex mutex_;
  std::deque<VerbsMessage> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> removed_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool overrun_ ABSL_GUARDED_BY(mutex_) = false;

  struct Member {
    VerbsConnection* connection;
    bool ready = false;
  };
  Mutex connections_mutex_;
  absl::flat_hash_map<uint32_t, Member> connections_ ABSL_GUARDED_BY(connections_mutex_);
};

// The fabric's thread only.
class VerbsSession {
 public:
  static constexpr uint32_t kSends = 32;
  static constexpr uint32_t kReceives = 64;

  // For an id whose device is known; the id stays the caller's and outlives the session. Completions wake
  // `channel`, with the session as their context.
  static absl::StatusOr<std::unique_ptr<VerbsSession>> Make(rdma_cm_id* id, ibv_comp_channel* channel,
                                                            VerbsParts& parts);
  ~VerbsSession();

  // A receive that finds no buffer posted waits a millisecond, not the connection manager's 0.7 s.
  void SetTimer() const;
  // False: the device does not take it; the session is broken.
  bool Send(const VerbsMessage& message);
  bool HasRoom() const { return sending_ < kSends; }
  bool drained() const { return sending_ == 0 && !probing_; }
  // A WRITE of nothing: needs the peer's device, not its CPU. One at a time. On iWARP, whose WRITEs end here,
  // a READ of a word that the peer has for that, once it has told where.
  void Probe(Nanos now);
  void TellProbed(VerbsEnd* end) const;
  void LearnProbed(const VerbsEnd& end) { probed_word_ = {end.inbox, RemoteKey(end.inbox_key)}; }
  // When the probe that is under way was sent; kNever: none is.
  Nanos probing_since() const { return probing_ ? probed_ : kNever; }
  // Gives each message that has arrived to `handle`. False: the session has failed, with *why.
  bool Poll(const std::function<void(const VerbsMessage&)>& handle, absl::Status* why);
  rdma_cm_id* id() const { return id_; }

 private:
  VerbsSession(rdma_cm_id* id, VerbsParts& parts) : id_(id), parts_(parts) {}
  absl::Status Open(ibv_comp_channel* channel);
  absl::Status PostReceive(uint32_t index);

  rdma_cm_id* const id_;
  VerbsParts& parts_;
  MemoryFile buffers_;  // kReceives, then kSends, of kBufferBytes
  ibv_mr* registration_ = nullptr;
  MemoryFile words_;  // iWARP: the one that the peer reads, and the one that we read into
  ibv_mr* words_registration_ = nullptr;
  RemoteAddress probed_word_;
  ibv_cq* cq_ = nullptr;
  bool has_pair_ = false;
  uint32_t sending_ = 0;
  uint32_t next_send_ = 0;
  bool probing_ = false;
  Nanos probed_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_SESSION_H_
