// VerbsDaemon: the thread of a verbs fabric. It connects sessions with rdma_cm, proves and checks the
// cluster's secret, agrees upon connections on the sessions and connects them, and sees peers die. No READ or
// WRITE passes through it.
//
// States of a peer, by who connected:
//   initiator  kResolving --> kRouting --> kConnecting --(reply)--> kAwaitWelcome --> kReady
//   acceptor   (request) kAwaitProof --> kReady
// Any other message than the awaited one, a refusal, or the end of the session ends the peer: its connections
// are lost, its openings fail.
//
// States of a line, which is what a ready peer's session knows of a connection:
//   initiator  kAsked --(ACCEPT)--> kResolving --> kRouting --> kConnecting --(reply)--> kUp
//   acceptor   kOffered --(a request with its ticket)--> kUp
// Each state before kUp has a time limit: that of the opening, or kHandshakeTime. A line ends when its
// connection has been destroyed, when it is given up (the other side is told by CLOSE), and with the session.
//
// A peer's process that dies is noticed because the kernel tells ours (once, in a datagram), because a
// request to it fails, or because the probe of its session does, which goes out every second. All three lead
// to the end of the session, and that ends all connections.
#ifndef FURROW_RDMA_VERBS_VERBS_DAEMON_H_
#define FURROW_RDMA_VERBS_VERBS_DAEMON_H_

#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "rdma/fabric.h"
#include "rdma/secret_proof.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_queue.h"
#include "rdma/verbs/verbs_session.h"
#include "rdma/verbs/verbs_wire.h"

struct ibv_comp_channel;
struct rdma_cm_event;
struct rdma_cm_id;
struct rdma_event_channel;

namespace furrow::rdma {

// A connection that is being opened by this side.
struct VerbsOpening {
  std::unique_ptr<VerbsConnection> connection;
  EventLoop* loop = nullptr;
  Endpoint endpoint;
  sockaddr_storage address = {};  // of the endpoint: the daemon looks up no names
  std::string private_data;
  Nanos deadline = 0;
  Fabric::ConnectDone done;
};

class VerbsDaemon {
 public:
  // Peers in their handshake, at most; further ones are refused. Each has kHandshakeTime.
  static constexpr size_t kMaxStrangers = 256;
  static constexpr Nanos kHandshakeTime = 30 * kSecond;
  static constexpr Nanos kProbeEvery = kSecond;
  // On iWARP, whose transport would go on for many minutes.
  static constexpr Nanos kProbePatience = 5 * kSecond;
  // What the end of the fabric waits for its last messages to arrive.
  static constexpr Nanos kFlushTime = kSecond;

  static absl::StatusOr<std::unique_ptr<VerbsDaemon>> Start(std::shared_ptr<VerbsParts> parts);
  // Ends the thread and all sessions. Openings that are under way are dropped without a call.
  ~VerbsDaemon();

  // --- any thread ---
  absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor);
  void Open(std::unique_ptr<VerbsOpening> opening);
  void AddQueue(CompletionQueue* queue, std::shared_ptr<VerbsQueue> implementation);
  void RemoveQueue(CompletionQueue* queue);
  // Ends all sessions, all queue pairs and the listening, as the kernel does for a killed process. The owners
  // of the queues do nothing meanwhile.
  void Kill();

 private:
  enum class State : uint8_t { kResolving, kRouting, kConnecting, kAwaitWelcome, kAwaitProof, kReady };
  enum class LineState : uint8_t { kAsked, kOffered, kResolving, kRouting, kConnecting, kUp };
  struct Line;
  // What an id of the connection manager stands for.
  struct Owner {
    Line* line = nullptr;  // null: a peer's session
  };
  struct Peer : Owner {
    State state = State::kResolving;
    bool initiator = false;
    bool over = false;     // to be ended in this round
    bool closing = false;  // to be over once what was sent has arrived
    Endpoint endpoint;
    sockaddr_storage address = {};  // an initiator's peer's
    rdma_cm_id* id = nullptr;
    std::unique_ptr<VerbsSession> session;
    std::shared_ptr<SessionLink> link;
    HandshakeTranscript transcript;
    Nanos deadline = kNever;  // of an acceptor's handshake, or of closing
    absl::Status failure;     // why it ends, if that is known
    uint32_t next_id = 1;
    std::vector<std::unique_ptr<VerbsOpening>> waiting;  // for kReady
    std::map<uint32_t, std::unique_ptr<Line>> lines;     // by the id of the connection
  };
  struct Line : Owner {
    Line(Peer& of, uint32_t connection_id) : peer(of), connection(connection_id) { line = this; }
    Peer& peer;
    const uint32_t connection;
    LineState state = LineState::kAsked;
    rdma_cm_id* id = nullptr;
    std::string ticket;
    Nanos deadline = kNever;
    std::unique_ptr<VerbsOpening> opening;     // the initiator's, until it is kUp
    std::unique_ptr<VerbsConnection> offered;  // the acceptor's, until it is kUp
  };
  explicit VerbsDaemon(std::shared_ptr<VerbsParts> parts);
  absl::Status Prepare();
  void Wake();

  // verbs_daemon.cc
  void Run();
  void WaitForEvents();
  void LoseDescriptor(int fd);
  int WaitMilliseconds() const;
  void TakeOpenings();
  void TakeSessionEvents();
  void TakeDeviceEvents();
  void Work(Peer& peer);
  void Flush(Peer& peer);
  void Expire(Peer& peer, Nanos now);
  void ExpireProbe(Peer& peer, Nanos now);
  void EndPeer(Peer& peer);
  // `connecting`: the connection manager has been asked to connect it, and has not answered.
  void EndId(rdma_cm_id* id, bool connecting = false);
  void DestroyId(rdma_cm_id* id);
  void EndBuriedIds();
  static void Fail(Peer& peer, absl::Status why);
  static void Finish(std::unique_ptr<VerbsOpening> opening, absl::Status status);
  bool Settled();
  void DropEverything();

  // verbs_connect.cc: what the connection manager tells.
  void TakeManagerEvents();
  void Handle(const rdma_cm_event& event, std::string_view data);
  void OnRequest(rdma_cm_id* id, std::string_view data);
  absl::Status StartConnecting(Peer& peer);
  absl::Status OnResolved(Peer& peer);
  absl::Status OnRouted(Peer& peer);
  absl::Status OnReply(Peer& peer, std::string_view data);
  absl::Status OnRejected(Peer& peer, int reason, std::string_view data);
  void AttachSession(Peer& peer, NodeId node);
  absl::Status Admit(Peer& peer, const VerbsHello& hello);
  absl::StatusOr<rdma_cm_id*> Resolve(const Peer& peer, Owner* owner, uint8_t traffic_class);

  // verbs_lines.cc: how the connection manager connects the connections.
  Line& AddLine(Peer& peer, uint32_t connection, LineState state, Nanos deadline);
  absl::Status StartDialing(Line& line);
  void Handle(Line& line, const rdma_cm_event& event, std::string_view data);
  absl::Status Advance(Line& line, const rdma_cm_event& event, std::string_view data);
  absl::Status Dial(Line& line);
  absl::Status Answered(Line& line);
  void OnTicket(rdma_cm_id* id, std::string_view data);
  Line* FindOffered(const VerbsTicket& ticket);
  absl::Status TakeUp(Line& line, rdma_cm_id* id);
  // Gives an initiator's opening back to its owner, as `status`, and forgets the line unless it is up.
  void FailLine(Line& line, absl::Status status);
  void EndLine(Line& line);
  void EndRemovedLines(Peer& peer);
  void ExpireLines(Peer& peer, Nanos now);

  // verbs_handshake.cc. Each handles one message; an error ends the peer.
  absl::Status Handle(Peer& peer, const VerbsMessage& message);
  absl::Status OnProof(Peer& peer, const VerbsMessage& message);
  absl::Status OnWelcome(Peer& peer, const VerbsMessage& message);
  absl::Status OnOpen(Peer& peer, const VerbsMessage& message);
  absl::Status OnAccept(Peer& peer, const VerbsMessage& message);
  absl::Status OnDecline(Peer& peer, const VerbsMessage& message);
  void OnClose(Peer& peer, const VerbsMessage& message);
  void SendProof(Peer& peer);
  void SendOpen(Peer& peer, std::unique_ptr<VerbsOpening> opening);
  absl::StatusOr<std::unique_ptr<VerbsConnection>> Accept(Peer& peer, const VerbsMessage& message,
                                                          std::string* private_data);
  void Refuse(Peer& peer, const absl::Status& why);

  const std::shared_ptr<VerbsParts> parts_;
  const FabricIdentity& identity_;
  const Clock& clock_;
  const uint64_t cluster_tag_;
  sockaddr_storage here_ = {};  // options.address
  int epoll_ = -1;
  int event_ = -1;
  rdma_event_channel* manager_ = nullptr;
  rdma_cm_id* anchor_ = nullptr;  // keeps the connection manager's use of the device
  ibv_comp_channel* completions_ = nullptr;

  // The daemon's thread only.
  std::vector<std::unique_ptr<Peer>> peers_;
  Nanos next_probe_ = 0;
  // Connected ids that were done with while the port was down. To destroy one sends a datagram, and one that
  // is sent then makes Soft-RoCE's queue pair for such datagrams fail for good.
  std::vector<rdma_cm_id*> buried_;
  // Ids that were done with while the kernel was connecting them, where to destroy one would wait for that.
  std::vector<rdma_cm_id*> unanswered_;

  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool kill_ ABSL_GUARDED_BY(mutex_) = false;
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar killed_changed_;
  rdma_cm_id* listener_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Acceptor acceptor_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<VerbsOpening>> new_openings_ ABSL_GUARDED_BY(mutex_);
  std::map<CompletionQueue*, std::shared_ptr<VerbsQueue>> queues_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_DAEMON_H_
