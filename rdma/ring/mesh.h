// RingMesh: the connections and rings between one worker and its peers.
//
// Worker i of node A opens one connection to each node B; it ends at worker i mod W of B. With it come three
// rings:
//   ring      from, to   in the memory of  channel          carries
//   log       A.i, B     B                 kLogChannel      records of transactions; released by truncation
//   messages  A.i, B     B                 kMessageChannel  requests
//   replies   B, A.i     A                 kReplyChannel    answers, and what B tells A.i unasked
// So an answer reaches the worker that asked, and A.i alone decides how much room its answers may take: it
// reserves reply room before it asks. (design: one ring per sending worker and receiving node; a reply ring
// per connection instead of per node spares the forwarding between workers when the two sides have different
// numbers of them.) A node has a log ring to itself in its own memory, without a connection; it needs no
// messages to itself.
//
// Life of a connection and of what came with it:
//   open --(the peer is gone)--> gone --(Collect(): nobody needs it)--> destroyed
// Rings with nothing held give their memory back when they close. Links and rings that somebody still refers
// to are pinned (base/pinned.h).
//
// Owner thread only, except PrepareAccept().
#ifndef FURROW_RDMA_RING_MESH_H_
#define FURROW_RDMA_RING_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/pinned.h"
#include "base/task.h"
#include "rdma/ring/ring.h"
#include "rdma/ring/staging.h"

namespace furrow::rdma {

inline constexpr uint8_t kLogChannel = 0;
inline constexpr uint8_t kMessageChannel = 1;
inline constexpr uint8_t kReplyChannel = 2;

struct MeshOptions {
  uint32_t log_ring_bytes = 4 << 20;  // powers of two
  uint32_t message_ring_bytes = 256 << 10;
  uint32_t reply_ring_bytes = 256 << 10;
  uint32_t max_log_record = 1 << 20;
  uint32_t max_message = 32 << 10;
  // Makes the memory of rings: a file in the node's memory directory, or anonymous. Thread-safe.
  std::function<absl::StatusOr<MemoryFile>(const std::string& name, size_t bytes)> make_memory;
  // Gets every memory of make_memory's that was a ring back, deregistered, once: when its peer is gone and
  // all its records were released, when its connection came to nothing, or when the mesh is destroyed. Null:
  // it is just dropped. Thread-safe.
  std::function<void(MemoryFile memory)> free_memory;
  // Room for record bodies under construction, per mesh; see RingMesh::StageRecord.
  uint32_t staging_bytes = 8 << 20;
  ConnectionLimits limits{.max_requests = 1024, .max_receives = 0};  // the mesh posts no receives
  Nanos connect_timeout_ns = 5 * kSecond;
};

// What a worker says when it connects; travels in the private data (layout in mesh.cc).
struct WorkerIdentity {
  NodeId node;
  Incarnation incarnation;
  WorkerId worker;
};

// Which worker of the peer connects, from the private data of its request: an acceptor hands the request to
// its worker of that number modulo its own count. FailedPrecondition: no Furrow mesh of this version.
absl::StatusOr<WorkerId> ConnectingWorker(const ConnectRequest& request);

// The way to one peer (or to oneself). Owned by the mesh.
struct OutboundLink {
  NodeId node;
  Connection* connection = nullptr;  // null: this node itself
  std::unique_ptr<RingWriter> log;
  std::unique_ptr<RingWriter> messages;
  uint64_t reply_room = 0;  // bytes of the reply ring that no outstanding request has reserved
  bool gone = false;        // the peer died or left: nothing is posted any more
  uint32_t pins = 0;        // of Pinned: who keeps the link across a suspension pins it
};

// A ring that a peer writes and this worker serves. Owned by the mesh.
struct InboundRing {
  enum class Kind : uint8_t { kLog, kMessages, kReplies } kind = Kind::kLog;
  WorkerIdentity from;
  std::unique_ptr<RingReader> reader;
  std::unique_ptr<HeadReturner> heads;  // null: the ring of a node to itself
  std::unique_ptr<RingWriter>
      reply_to;                        // kLog and kMessages of one connection share it through ReplyWriter()
  InboundRing* reply_owner = nullptr;  // where reply_to lives
  void* context = nullptr;             // the handler's
  bool closed = false;                 // no more records will come, or are wanted
  bool ended = false;                  // the mesh's: OnRingClosed() was called
  bool notified = false;               // the mesh's: it is in the list of rings to look at
  uint32_t pins = 0;                   // of Pinned: who keeps the ring beyond the call pins it
  // The writer of answers to the worker at the other end; null on a kReplies ring.
  RingWriter* ReplyWriter() { return reply_owner != nullptr ? reply_owner->reply_to.get() : reply_to.get(); }
};

// Who gives the records a meaning. Called on the owner's thread, in ring order.
class RecordHandler {
 public:
  virtual ~RecordHandler() = default;
  virtual void OnRecord(InboundRing& ring, const RingRecord& record) = 0;
  // The ring's peer is gone; its complete records have been delivered. The ring's memory stays if records are
  // held, otherwise it goes when this returns. Called once for every ring, closed by the handler or not.
  virtual void OnRingClosed(InboundRing& ring) = 0;
  // The link is `gone`. It lives until nobody pins it. A handler that sets `gone` itself, since a request has
  // failed, is not told.
  virtual void OnLinkLost(OutboundLink& link) = 0;
};

class RingMesh final : public QueueEvents, public Poller {
 public:
  // All of them outlive the mesh. Registers itself with `loop`.
  RingMesh(EventLoop& loop, Fabric& fabric, CompletionQueue& queue, WorkerIdentity self, MeshOptions options,
           RecordHandler& handler);
  ~RingMesh() override;

  // Makes staging memory and the rings to itself. First.
  absl::Status Start();

  // Opens the connection and rings to a peer; idempotent while the link lives. To a node that was lost and
  // has come back (a new incarnation) it makes a new link.
  Task<absl::Status> ConnectTo(NodeId node, Endpoint endpoint);
  // The newest link to a node, null if there is none (yet, or any more). It stays until Collect() finds its
  // peer gone and it unpinned.
  OutboundLink* link(NodeId node);
  OutboundLink& self_link() { return *self_; }

  // For the fabric's acceptor, any thread: makes the rings for the worker that connects and says what to
  // answer.
  absl::StatusOr<AcceptDecision> PrepareAccept(const ConnectRequest& request);

  // Room for a body of up to `bytes`, registered and with headroom, valid until every WRITE that reads it has
  // completed and ReleaseStaged() is called. ResourceExhausted when `bytes` exceeds the largest record,
  // or when all is in use by WRITEs under way.
  absl::StatusOr<std::span<std::byte>> StageRecord(size_t bytes);
  void ReleaseStaged(std::span<std::byte> body);

  // --- recovery; never from inside a handler ---

  // Ends everything with peers that are no members: their right to write here goes first, then what they have
  // written is delivered, and the handler is told that rings and links are over.
  void Evict(const std::function<bool(const WorkerIdentity&)>& is_member);
  // Looks at every record that lies in a log ring now.
  void DrainLogs();
  // The peer may not write this ring any more; the handler has closed it.
  void Withdraw(const InboundRing& ring);

  // Sends head positions of idle rings back, so that quiet senders get their room; called by a timer of the
  // owner.
  void ReturnHeads();

  // Destroys what gone peers have left and nobody needs: connections whose requests have all ended, links and
  // rings without pins, rings without held records; and prepared accepts whose connection never came. Called
  // by a timer of the owner, never from inside a poll or a handler.
  void Collect();
  // What there is now; for tests and reports.
  struct Counts {
    size_t links = 0;     // opened by us, gone ones included
    size_t accepted = 0;  // opened to us, gone ones included
    size_t pending = 0;   // prepared, not connected
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const;

  // Delivers the records that have arrived in rings whose channel was notified. True if there were any.
  bool Poll() override;
  // Ends the requests that have completed, without delivering records: right after a post on a fabric whose
  // requests complete at once.
  bool PollCompletions() { return PollQueue(); }
  // Delivers what this node has appended to its own log ring: the fast path of a
  // transaction whose primary is here. Not reentrant: called inside OnRecord() it does nothing.
  void DeliverSelf();
  // Looks at every ring, notified or not: for records written quietly (COMMIT-BACKUP, TRUNCATE) and by the
  // drain.
  bool PollAll();

 private:
  struct Peer;      // a connection that we opened
  struct Accepted;  // a connection that was opened to us
  // What a connection's context points to.
  struct Wires {
    Peer* peer = nullptr;  // one of the two, or none while ConnectTo() has not seen the connection
    Accepted* accepted = nullptr;
    bool lost = false;  // kDisconnected has come
  };
  struct Connecting;
  absl::StatusOr<MemoryFile> MakeMemory(const std::string& name, size_t bytes);
  absl::Status MakeSelfRing();
  absl::StatusOr<std::unique_ptr<Peer>> PreparePeer(NodeId node);
  absl::Status FinishPeer(Peer& peer, Connecting& connecting);
  void Notify(InboundRing* ring);
  // Delivers records of one ring, at most `limit`; true if there may be more.
  bool Deliver(InboundRing& ring, int limit, bool* any);
  void Close(InboundRing& ring);
  void OnNotified(Connection& connection, uint8_t channel) override;
  void OnReceived(Connection& connection, uint64_t id, uint32_t bytes) override;
  void OnConnected(Connection& connection) override;
  void OnDisconnected(Connection& connection) override;
  void Lose(Connection& connection);
  // Loses what the handler was in the way of.
  void LoseQueued();
  void LosePeer(Peer& peer);
  void LoseAccepted(Accepted& accepted);
  void ForgetRing(const InboundRing& ring);
  void CollectPending();
  bool PollQueue();

  EventLoop& loop_;
  Fabric& fabric_;
  CompletionQueue& queue_;
  const WorkerIdentity self_identity_;
  const MeshOptions options_;
  RecordHandler& handler_;
  CompletionPoller completions_;

  std::unique_ptr<OutboundLink> self_;
  std::unique_ptr<Accepted> self_rings_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Accepted>> accepted_;
  std::vector<InboundRing*> inbound_;  // owned by peers_, accepted_ and self_rings_
  std::vector<InboundRing*> notified_;
  std::vector<std::unique_ptr<Connection>> strangers_;  // to be closed
  std::vector<InboundRing*> delivering_;
  bool in_handler_ = false;
  std::vector<Connection*> lost_;  // disconnected while the handler ran
  std::unique_ptr<Staging> staging_;

  mutable Mutex mutex_;
  uint64_t next_name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Accepted>> pending_ ABSL_GUARDED_BY(mutex_);  // prepared, not yet connected
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_MESH_H_
