// The fabric: one-sided verbs on registered memory, as libibverbs has them. Providers: rdma/shm (peers on one
// host, copies by the initiator through shared memory), rdma/sim (virtual time, seeded faults), later
// rdma/verbs.
//
// One Fabric per node. Objects made by a Fabric die before it. Threads: Fabric methods are thread-safe; a
// CompletionQueue, and every Connection bound to it, belongs to one thread (the worker that owns the queue).
//
// Guarantees (the contract suite, rdma/fabric_contract.h, holds every provider to them):
//  (1) Requests of one connection start in the order of posting and complete in that order; a WRITE's bytes
//      are visible to the target before those of a later WRITE of the same connection, and to a later READ
//      of it. Where read_piece_bytes() is below 64, a READ has taken all its bytes before a later READ
//      begins; a NIC may overlap READs. A READ that has not completed may see bytes of a later WRITE (a lost
//      answer is asked for again). Between connections: no order. Nothing is promised about the order of
//      bytes within one request: pieces of 8 bytes or more, in any order.
//  (2) Each posted request yields exactly one completion if it is signaled or fails, and none otherwise.
//  (3) READ and WRITE need nothing from the target's CPU: they complete while the target process is stopped.
//  (4) The first failed request moves its connection to the error state; the requests behind it, and later
//      posts, complete as kFlushed. There is no way back: the connection is destroyed and a new one made.
//  (5) A request on memory that the target has deregistered, with a wrong key, out of bounds or without the
//      access right fails with kRemoteAccess and has changed nothing; to a process that is gone, with
//      kPeerGone, though its memory may still be mapped, once the provider has learnt of its death (bounded
//      time). kPeerGone says that no answer came: the request may have taken effect, or may have been refused
//      (the peer's device says so once, and that word can be lost).
#ifndef FURROW_RDMA_FABRIC_H_
#define FURROW_RDMA_FABRIC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/memory_file.h"

namespace furrow::rdma {

enum class Access : uint8_t { kNone = 0, kRead = 1, kWrite = 2, kReadWrite = 3 };

// Names registered memory to peers; random, so that it cannot be guessed.
using RemoteKey = StrongId<struct RemoteKeyTag, uint32_t>;

// A place in a peer's registered memory.
struct RemoteAddress {
  uint64_t address = 0;  // in the owner's numbering: MemoryRegion::address() + byte offset
  RemoteKey key;
  RemoteAddress Plus(uint64_t bytes) const { return {address + bytes, key}; }
  friend bool operator==(const RemoteAddress&, const RemoteAddress&) = default;
};

// Registered memory. Destroying it deregisters: peers' requests on it fail from then on.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
  virtual RemoteAddress remote_address() const = 0;  // of byte 0
};

enum class Opcode : uint8_t { kRead, kWrite, kSend };

struct WorkRequest {
  Opcode opcode = Opcode::kRead;
  bool signaled = true;  // false: no completion unless it fails
  // A WRITE may notify: after its bytes are visible the target's queue yields kNotified with `channel`
  // (0..63). Notifications of one connection and channel may be merged, never lost. A quiet one does not wake
  // a parked target, or only seldom, for nothing; it is seen when the target polls next.
  enum class Notify : uint8_t { kNone, kQuiet, kWake } notify = Notify::kNone;
  uint8_t channel = 0;
  uint64_t id = 0;  // comes back in the completion
  // READ: the bytes are placed here; must lie in memory registered with this fabric and stay until
  // completion. WRITE, SEND: the bytes to go; the same, unless `inlined`: then at most kMaxInline bytes of
  // any memory, taken before Post() returns.
  std::span<std::byte> local;
  bool inlined = false;
  RemoteAddress remote;  // READ, WRITE

  static constexpr size_t kMaxInline = 64;
};

enum class CompletionStatus : uint8_t {
  kOk,
  kLocalProtection,   // `local` is not registered here
  kRemoteAccess,      // wrong key, out of bounds, missing right, deregistered
  kPeerGone,          // the peer is dead or unreachable; the retries are used up
  kReceiverNotReady,  // SEND met no posted receive in bounded time
  kFlushed,           // an earlier request of this connection failed
};
std::string_view ToString(CompletionStatus status);

class Connection;

struct Completion {
  enum class Kind : uint8_t {
    kRequest,       // a posted request ended: id, status
    kReceived,      // a SEND of the peer arrived: id of the receive, bytes
    kNotified,      // a WRITE of the peer notified: channel
    kConnected,     // a connection that a peer opened to this queue is ready; take it with TakeAccepted()
    kDisconnected,  // the peer closed the connection or is gone. Comes at most once per connection
  } kind = Kind::kRequest;
  CompletionStatus status = CompletionStatus::kOk;
  uint8_t channel = 0;
  uint32_t bytes = 0;
  uint64_t id = 0;
  Connection* connection = nullptr;
};

// A reliable connection between a queue of this node and a queue of a peer; both sides may post. Destroying
// it drops the completions that its queue still has for it, and the peer gets kDisconnected.
class Connection {
 public:
  virtual ~Connection() = default;
  // Posts all requests with one doorbell, or none: ResourceExhausted when they do not all fit behind those
  // that have not completed. Any other failure comes as a completion.
  virtual absl::Status Post(std::span<const WorkRequest> requests) = 0;
  absl::Status Post(const WorkRequest& request) { return Post(std::span(&request, 1)); }
  // Gives a buffer (registered here) for one SEND of the peer.
  virtual absl::Status PostReceive(uint64_t id, std::span<std::byte> buffer) = 0;

  virtual NodeId peer() const = 0;
  virtual std::string_view peer_private_data() const = 0;  // what the other side passed to Connect or accept
  virtual bool failed() const = 0;
  // True if every posted request has ended and its completion, if it has one, was polled: destroying the
  // connection then drops no end that somebody waits for.
  virtual bool idle() const = 0;
  // True if READ and WRITE end inside Post(), so that a poll right after it finds their completions.
  virtual bool completes_at_once() const { return false; }
  // One READ of ReadNow(); `into` may be any memory.
  struct NowRead {
    RemoteAddress remote;
    std::span<std::byte> into;
  };
  // READs in the order given, after all that was posted before, without completions: for the fast path of a
  // reader whose own CPU copies. True: all bytes are there. False: this provider has no such path, it is not
  // possible now, or one of them would fail (some bytes may be there): Post() them, that says why. At most
  // kMaxReadNow.
  static constexpr size_t kMaxReadNow = 4;
  virtual bool ReadNow(std::span<const NowRead> /*reads*/) { return false; }
  // A READ of these bytes comes soon: where the initiator's CPU copies, starts to bring the first lines into
  // its cache. A hint: nothing happens where the address is wrong.
  virtual void Prefetch(RemoteAddress /*remote*/, size_t /*bytes*/) {}
  void set_context(void* context) { context_ = context; }
  void* context() const { return context_; }

 private:
  void* context_ = nullptr;  // the owner's; unused by providers
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  virtual size_t Poll(std::span<Completion> completions) = 0;
  // After kConnected: the connection, now the caller's. `connection` is the one of the completion.
  virtual std::unique_ptr<Connection> TakeAccepted(Connection* connection) = 0;
  // What the owner's EventLoop parks on: woken by waking notifications, SENDs, connections and completions.
  virtual Parker& parker() = 0;
};

struct ConnectionLimits {
  uint32_t max_requests = 1024;  // not yet completed, per connection
  uint32_t max_receives = 64;
  // For leases: where the network has lanes of different priority, this connection takes the better one.
  bool urgent = false;
};

// Where a node listens: for shm the path of a Unix socket, for verbs host:port, for sim the node's number.
using Endpoint = std::string;

// What a peer that connects has said; checked by the acceptor.
struct ConnectRequest {
  NodeId peer;
  std::string_view private_data;
};
struct AcceptDecision {
  CompletionQueue* queue = nullptr;  // of this fabric: the new connection belongs to it and its thread
  std::string private_data;          // at most Fabric::kMaxPrivateData bytes
};
// Called on a thread of the fabric. An error refuses the peer with its message.
using Acceptor = std::function<absl::StatusOr<AcceptDecision>(const ConnectRequest&)>;

// Who we are and whom we talk to. Both sides must agree on cluster and secret; the secret itself never
// travels.
struct FabricIdentity {
  NodeId node;
  std::string cluster_id;
  std::string secret;
};

class Fabric {
 public:
  static constexpr size_t kMaxPrivateData = 160;  // what rdma_cm's accept leaves us, rounded down
  static constexpr size_t kMaxSend = 1024;        // bytes of one SEND

  virtual ~Fabric() = default;
  // "shm", "sim", "verbs".
  virtual std::string_view name() const = 0;

  // The bytes of an aligned piece that a READ copies as one: 64 for a NIC in front of coherent memory, 8
  // where a CPU copies. Pieces come in any order. A reader of objects needs to know (storage/object.h).
  virtual size_t read_piece_bytes() const = 0;

  // Registers memory, which must outlive the registration. kNone: for local use only (READ targets, staging).
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(const MemoryFile& file, Access access) = 0;

  virtual absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue() = 0;

  // Accepts peers at `endpoint` until the fabric is destroyed. Once per fabric. Returns what peers connect
  // to: `endpoint`, with the port that was chosen where it had port 0.
  virtual absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor) = 0;

  // Opens a connection from `queue`. `done` is called once, on the queue's thread (through `loop`), with the
  // connection or with Unavailable (no peer there), PermissionDenied (wrong secret), FailedPrecondition
  // (version or cluster differ, or refused by the acceptor), DeadlineExceeded.
  using ConnectDone = std::function<void(absl::StatusOr<std::unique_ptr<Connection>>)>;
  virtual void Connect(CompletionQueue& queue, EventLoop& loop, const Endpoint& endpoint,
                       std::string private_data, ConnectionLimits limits, Nanos timeout_ns,
                       ConnectDone done) = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_FABRIC_H_
