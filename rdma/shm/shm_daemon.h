// ShmDaemon: the thread of a shm fabric. It accepts and opens sessions, proves and checks the cluster's
// secret, opens connections on them, sees peers die (their socket is closed by the kernel) and unmaps what
// they have forgotten. No READ or WRITE passes through it.
//
// States of a peer, by who connected:
//   initiator  kConnecting --(socket)--> kAwaitChallenge --> kAwaitWelcome --> kReady
//   acceptor   kAwaitHello --> kAwaitProof --> kReady
// Any other message than the awaited one, a refusal, or the end of the socket ends the peer: its connections
// are lost, its openings fail.
#ifndef FURROW_RDMA_SHM_SHM_DAEMON_H_
#define FURROW_RDMA_SHM_SHM_DAEMON_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "rdma/fabric.h"
#include "rdma/secret_proof.h"
#include "rdma/shm/shm_connection.h"
#include "rdma/shm/shm_queue.h"
#include "rdma/shm/shm_registry.h"
#include "rdma/shm/shm_session.h"

namespace furrow::rdma {

// A connection that is being opened by this side.
struct ShmOpening {
  std::unique_ptr<ShmConnection> connection;
  EventLoop* loop = nullptr;
  Endpoint endpoint;
  std::string private_data;
  Nanos deadline = 0;
  Fabric::ConnectDone done;
  bool peer_closed = false;  // before its acceptance was seen
};

class ShmDaemon {
 public:
  // Peers in their handshake, at most; further ones are refused. Each has kHandshakeTime.
  static constexpr size_t kMaxStrangers = 256;
  static constexpr Nanos kHandshakeTime = 5 * kSecond;

  static absl::StatusOr<std::unique_ptr<ShmDaemon>> Start(FabricIdentity identity, const Clock& clock,
                                                          std::shared_ptr<ShmRegistry> registry);
  // Ends the thread and all sessions. Openings that are under way are dropped without a call.
  ~ShmDaemon();

  // --- any thread ---
  absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor);
  void Open(std::unique_ptr<ShmOpening> opening);
  void AddQueue(CompletionQueue* queue, std::shared_ptr<ShmQueue> implementation);
  void RemoveQueue(CompletionQueue* queue);
  // Ends all sessions and stops accepting, as the kernel does for a killed process.
  void Kill();

 private:
  enum class State : uint8_t {
    kConnecting,
    kAwaitChallenge,
    kAwaitWelcome,
    kAwaitHello,
    kAwaitProof,
    kReady
  };
  struct Peer {
    State state = State::kAwaitHello;
    bool initiator = false;
    Endpoint endpoint;
    std::shared_ptr<ShmSession> session;  // null while kConnecting
    HandshakeTranscript transcript;
    Nanos deadline = kNever;  // of an acceptor's handshake
    absl::Status failure;     // why it ends, if that is known
    uint32_t next_id = 1;
    std::vector<std::unique_ptr<ShmOpening>> waiting;         // for kReady
    std::map<uint32_t, std::unique_ptr<ShmOpening>> opening;  // for ACCEPT or DECLINE
  };
  ShmDaemon(FabricIdentity identity, const Clock& clock, std::shared_ptr<ShmRegistry> registry);
  void Wake();

  // shm_daemon.cc
  void Run();
  void WaitForEvents();
  int WaitMilliseconds() const;
  void TakeOpenings();
  void AcceptPeers();
  bool AcceptingIsPaused();
  void TryConnect(Peer& peer);
  void AttachSession(Peer& peer, Fd socket);
  void Process(Peer& peer);
  void Expire(Peer& peer, Nanos now);
  void EndPeer(Peer& peer);
  static void Finish(std::unique_ptr<ShmOpening> opening, absl::Status status);

  // shm_handshake.cc. Each handles one message; an error ends the peer.
  absl::Status Handle(Peer& peer, ShmMessage& message);
  absl::Status OnHello(Peer& peer, const ShmMessage& message);
  absl::Status OnChallenge(Peer& peer, const ShmMessage& message);
  absl::Status OnProof(Peer& peer, const ShmMessage& message);
  absl::Status OnWelcome(Peer& peer, const ShmMessage& message);
  absl::Status OnOpen(Peer& peer, const ShmMessage& message);
  absl::Status OnAccept(Peer& peer, const ShmMessage& message);
  absl::Status OnDecline(Peer& peer, const ShmMessage& message);
  absl::Status OnClose(Peer& peer, const ShmMessage& message);
  absl::Status BecomeReady(Peer& peer, NodeId node, uint64_t instance, const Fd& table);
  void SendOpen(Peer& peer, std::unique_ptr<ShmOpening> opening);
  absl::StatusOr<std::unique_ptr<ShmConnection>> Accept(Peer& peer, const ShmMessage& message,
                                                        std::string* private_data);
  // The two descriptors of a connection that its peer needs.
  static absl::Status AddDescriptors(const ShmConnection& connection, ShmMessage& message);
  void Refuse(Peer& peer, const absl::Status& why);

  const FabricIdentity identity_;
  const Clock& clock_;
  const std::shared_ptr<ShmRegistry> registry_;
  const uint64_t instance_;
  const Fd epoll_;
  const Fd event_;

  // The daemon's thread only.
  Nanos accept_again_ = 0;  // no descriptor was left for a peer: until then the listener is left alone; 0: no
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<uint64_t, std::weak_ptr<RemoteMemory>> remotes_;  // by instance

  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  Fd listener_ ABSL_GUARDED_BY(mutex_);
  Acceptor acceptor_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<ShmOpening>> new_openings_ ABSL_GUARDED_BY(mutex_);
  std::map<CompletionQueue*, std::shared_ptr<ShmQueue>> queues_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_DAEMON_H_
