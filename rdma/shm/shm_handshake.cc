#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rdma/shm/shm_daemon.h"

namespace furrow::rdma {
namespace {

absl::Status Unexpected(const ShmMessage& message) {
  return absl::FailedPreconditionError(
      absl::StrCat("the peer sent message ", static_cast<int>(message.type),
                   ", which has no place in this state of the shm protocol, or is malformed"));
}

uint64_t CodeOf(const absl::Status& status) { return static_cast<uint64_t>(status.code()); }

// Of a sentence that travels to the peer.
std::string Clipped(const absl::Status& status) {
  return std::string(status.message().substr(0, kMaxShmText));
}

}  // namespace

absl::Status ShmDaemon::Handle(Peer& peer, ShmMessage& message) {
  if (message.version != kShmVersion) {
    absl::Status status = absl::FailedPreconditionError(absl::StrCat(
        "the shm fabric of one node speaks version ", kShmVersion, ", that of the other version ",
        message.version, ": run the same release of Furrow on both"));
    if (!peer.initiator) Refuse(peer, status);
    return status;
  }
  switch (message.type) {
    case ShmMessageType::kHello:
      return OnHello(peer, message);
    case ShmMessageType::kChallenge:
      return OnChallenge(peer, message);
    case ShmMessageType::kProof:
      return OnProof(peer, message);
    case ShmMessageType::kWelcome:
      return OnWelcome(peer, message);
    case ShmMessageType::kRefuse:
      return StatusFromWire(message.numbers[0], message.texts[0]);
    case ShmMessageType::kMemory:
    case ShmMessageType::kForget:
      if (peer.state != State::kReady || !ShmSession::ApplyNews(message, *peer.session->remote())) {
        return Unexpected(message);
      }
      return absl::OkStatus();
    case ShmMessageType::kOpen:
      return OnOpen(peer, message);
    case ShmMessageType::kAccept:
      return OnAccept(peer, message);
    case ShmMessageType::kDecline:
      return OnDecline(peer, message);
    case ShmMessageType::kClose:
      return OnClose(peer, message);
  }
  return Unexpected(message);
}

void ShmDaemon::Refuse(Peer& peer, const absl::Status& why) {
  ShmMessage refusal;
  refusal.type = ShmMessageType::kRefuse;
  refusal.numbers[0] = CodeOf(why);
  refusal.texts[0] = Clipped(why);
  peer.session->Send(std::move(refusal));
  peer.session->Close();
}

absl::Status ShmDaemon::OnHello(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kAwaitHello || message.texts[1].size() != kNonceBytes) return Unexpected(message);
  const NodeId node(static_cast<uint32_t>(message.numbers[0]));
  if (message.texts[0] != identity_.cluster_id) {
    absl::Status status = OtherCluster(node, message.texts[0], identity_.node);
    Refuse(peer, status);
    return status;
  }
  peer.transcript = {.protocol = ShmProtocol(),
                     .cluster_id = identity_.cluster_id,
                     .initiator_node = node,
                     .acceptor_node = identity_.node,
                     .initiator_instance = message.numbers[1],
                     .acceptor_instance = instance_,
                     .initiator_nonce = message.texts[1],
                     .acceptor_nonce = MakeNonce()};
  ShmMessage challenge;
  challenge.type = ShmMessageType::kChallenge;
  challenge.numbers = {identity_.node.value(), instance_, 0, 0};
  challenge.texts[1] = peer.transcript.acceptor_nonce;
  peer.session->Send(std::move(challenge));
  peer.state = State::kAwaitProof;
  return absl::OkStatus();
}

absl::Status ShmDaemon::OnChallenge(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kAwaitChallenge || message.texts[1].size() != kNonceBytes)
    return Unexpected(message);
  peer.transcript.acceptor_node = NodeId(static_cast<uint32_t>(message.numbers[0]));
  peer.transcript.acceptor_instance = message.numbers[1];
  peer.transcript.acceptor_nonce = message.texts[1];
  ShmMessage proof;
  proof.type = ShmMessageType::kProof;
  proof.texts[0] = ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/true);
  FURROW_ASSIGN_OR_RETURN(Fd table, registry_->TableDescriptor());
  proof.fds.push_back(std::move(table));
  peer.session->Send(std::move(proof));
  peer.state = State::kAwaitWelcome;
  return absl::OkStatus();
}

absl::Status ShmDaemon::OnProof(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kAwaitProof || message.fds.size() != 1) return Unexpected(message);
  if (!SameProof(message.texts[0], ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/true))) {
    absl::Status status = OtherSecret(peer.transcript.initiator_node, identity_.node);
    Refuse(peer, status);
    return status;
  }
  ShmMessage welcome;
  welcome.type = ShmMessageType::kWelcome;
  welcome.texts[0] = ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/false);
  FURROW_ASSIGN_OR_RETURN(Fd table, registry_->TableDescriptor());
  welcome.fds.push_back(std::move(table));
  peer.session->Send(std::move(welcome));
  return BecomeReady(peer, peer.transcript.initiator_node, peer.transcript.initiator_instance,
                     message.fds[0]);
}

absl::Status ShmDaemon::OnWelcome(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kAwaitWelcome || message.fds.size() != 1) return Unexpected(message);
  if (!SameProof(message.texts[0], ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/false))) {
    return NotOfThisCluster(peer.endpoint);
  }
  FURROW_RETURN_IF_ERROR(
      BecomeReady(peer, peer.transcript.acceptor_node, peer.transcript.acceptor_instance, message.fds[0]));
  for (auto& opening : std::exchange(peer.waiting, {})) SendOpen(peer, std::move(opening));
  return absl::OkStatus();
}

absl::Status ShmDaemon::BecomeReady(Peer& peer, NodeId node, uint64_t instance, const Fd& table) {
  std::shared_ptr<RemoteMemory> remote = remotes_[instance].lock();
  if (remote == nullptr) {
    FURROW_ASSIGN_OR_RETURN(
        MemoryFile mapping,
        MemoryFile::MapDescriptor(table.get(), sizeof(RegistrationTable), /*writable=*/false));
    remote = std::make_shared<RemoteMemory>(node, instance, std::move(mapping));
    remotes_[instance] = remote;
  }
  remote->AddSession(peer.session);
  peer.session->SetRemote(std::move(remote));
  peer.state = State::kReady;
  peer.deadline = kNever;
  registry_->Subscribe(peer.session);
  return absl::OkStatus();
}

absl::Status ShmDaemon::AddDescriptors(const ShmConnection& connection, ShmMessage& message) {
  for (int fd : {connection.queue()->doorbells_file().fd(), connection.inbox_file().fd()}) {
    FURROW_ASSIGN_OR_RETURN(Fd copy, Duplicate(fd));
    message.fds.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

void ShmDaemon::SendOpen(Peer& peer, std::unique_ptr<ShmOpening> opening) {
  const ShmConnection& connection = *opening->connection;
  ShmMessage message;
  message.type = ShmMessageType::kOpen;
  message.numbers = {peer.next_id, connection.slot(), connection.limits().max_requests,
                     connection.limits().max_receives};
  message.texts[0] = opening->private_data;
  if (absl::Status status = AddDescriptors(connection, message); !status.ok()) {
    Finish(std::move(opening), std::move(status));
    return;
  }
  peer.opening[peer.next_id++] = std::move(opening);
  peer.session->Send(std::move(message));
}

absl::Status ShmDaemon::OnOpen(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kReady || peer.initiator || message.fds.size() != 2) return Unexpected(message);
  std::string private_data;
  absl::StatusOr<std::unique_ptr<ShmConnection>> connection = Accept(peer, message, &private_data);
  ShmMessage answer;
  answer.numbers[0] = message.numbers[0];
  if (connection.ok()) {
    answer.type = ShmMessageType::kAccept;
    answer.numbers[1] = (*connection)->slot();
    answer.texts[0] = std::move(private_data);
    if (absl::Status status = AddDescriptors(**connection, answer); !status.ok())
      connection = std::move(status);
  }
  if (!connection.ok()) {
    answer.type = ShmMessageType::kDecline;
    answer.fds.clear();
    answer.numbers[1] = static_cast<uint64_t>(absl::StatusCode::kFailedPrecondition);
    answer.texts[0] = Clipped(connection.status());
    peer.session->Send(std::move(answer));
    return absl::OkStatus();
  }
  // In this order, so that the queue yields the connection before its first notification.
  const std::shared_ptr<ShmQueue> queue = (*connection)->queue();
  queue->PushConnected(*std::move(connection));
  peer.session->Send(std::move(answer));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShmConnection>> ShmDaemon::Accept(Peer& peer, const ShmMessage& message,
                                                                 std::string* private_data) {
  Acceptor acceptor;
  {
    MutexLock lock(&mutex_);
    acceptor = acceptor_;
  }
  FURROW_ASSIGN_OR_RETURN(AcceptDecision decision, acceptor({.peer = peer.transcript.initiator_node,
                                                             .private_data = message.texts[0]}));
  if (decision.private_data.size() > Fabric::kMaxPrivateData) {
    return absl::InternalError(absl::StrCat("the acceptor answers with ", decision.private_data.size(),
                                            " bytes of private data; ", Fabric::kMaxPrivateData,
                                            " are possible"));
  }
  std::shared_ptr<ShmQueue> queue;
  {
    MutexLock lock(&mutex_);
    auto it = queues_.find(decision.queue);
    if (it == queues_.end())
      return absl::UnavailableError("the acceptor named no completion queue of its fabric");
    queue = it->second;
  }
  const auto clamp = [](uint64_t number) {
    return static_cast<uint32_t>(std::min<uint64_t>(number, UINT32_MAX));
  };
  const ConnectionLimits limits{.max_requests = clamp(message.numbers[2]),
                                .max_receives = clamp(message.numbers[3])};
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<ShmConnection> connection,
                          ShmConnection::Make(std::move(queue), limits));
  FURROW_RETURN_IF_ERROR(connection->Establish(peer.session, static_cast<uint32_t>(message.numbers[0]),
                                               message.texts[0], clamp(message.numbers[1]),
                                               message.fds[0].get(), message.fds[1].get()));
  *private_data = std::move(decision.private_data);
  return connection;
}

absl::Status ShmDaemon::OnAccept(Peer& peer, const ShmMessage& message) {
  if (peer.state != State::kReady || !peer.initiator || message.fds.size() != 2) return Unexpected(message);
  const uint32_t id = static_cast<uint32_t>(message.numbers[0]);
  auto it = peer.opening.find(id);
  if (it == peer.opening.end()) return absl::OkStatus();  // it was given up, and the peer has been told
  std::unique_ptr<ShmOpening> opening = std::move(it->second);
  peer.opening.erase(it);
  absl::Status status = opening->connection->Establish(
      peer.session, id, message.texts[0],
      static_cast<uint32_t>(std::min<uint64_t>(message.numbers[1], UINT32_MAX)), message.fds[0].get(),
      message.fds[1].get());
  const bool closed = opening->peer_closed;
  if (closed) peer.session->LoseConnection(id);
  Finish(std::move(opening), std::move(status));
  return absl::OkStatus();
}

absl::Status ShmDaemon::OnDecline(Peer& peer, const ShmMessage& message) {
  auto it = peer.opening.find(static_cast<uint32_t>(message.numbers[0]));
  if (it == peer.opening.end()) return absl::OkStatus();
  std::unique_ptr<ShmOpening> opening = std::move(it->second);
  peer.opening.erase(it);
  Finish(std::move(opening), StatusFromWire(message.numbers[1], message.texts[0]));
  return absl::OkStatus();
}

absl::Status ShmDaemon::OnClose(Peer& peer, const ShmMessage& message) {
  const uint32_t id = static_cast<uint32_t>(message.numbers[0]);
  if (auto it = peer.opening.find(id); it != peer.opening.end()) it->second->peer_closed = true;
  peer.session->LoseConnection(id);
  return absl::OkStatus();
}

}  // namespace furrow::rdma
