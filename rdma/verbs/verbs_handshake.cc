// What a VerbsDaemon's peers say over their sessions.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_daemon.h"

namespace furrow::rdma {
namespace {

absl::Status Unexpected(const VerbsMessage& message) {
  return absl::FailedPreconditionError(
      absl::StrCat("the peer sent message ", static_cast<int>(message.type),
                   ", which has no place in this state of the verbs protocol, or is malformed"));
}

std::string_view ProofOf(const VerbsMessage& message) {
  return {reinterpret_cast<const char*>(message.proof), kProofBytes};
}

VerbsMessage Message(VerbsMessageType type, uint32_t connection = 0) {
  VerbsMessage message;
  message.type = type;
  message.connection = connection;
  return message;
}

}  // namespace

absl::Status VerbsDaemon::Handle(Peer& peer, const VerbsMessage& message) {
  switch (message.type) {
    case VerbsMessageType::kProof:
      return OnProof(peer, message);
    case VerbsMessageType::kWelcome:
      return OnWelcome(peer, message);
    case VerbsMessageType::kRefuse:
      return StatusFromWire(message.code, message.Text());
    case VerbsMessageType::kOpen:
      return OnOpen(peer, message);
    case VerbsMessageType::kAccept:
      return OnAccept(peer, message);
    case VerbsMessageType::kDecline:
      return OnDecline(peer, message);
    case VerbsMessageType::kReady:
      if (peer.state != State::kReady || peer.initiator) return Unexpected(message);
      return peer.link->ConnectionReady(message.connection) ? absl::OkStatus() : Unexpected(message);
    case VerbsMessageType::kClose:
      if (peer.state != State::kReady) return Unexpected(message);
      OnClose(peer, message);
      return absl::OkStatus();
  }
  return Unexpected(message);
}

void VerbsDaemon::Refuse(Peer& peer, const absl::Status& why) {
  VerbsMessage refusal = Message(VerbsMessageType::kRefuse);
  refusal.SetStatus(why);
  peer.link->Send(refusal);
  peer.closing = true;
  peer.failure = why;
  peer.deadline = clock_.Now() + kFlushTime;
}

void VerbsDaemon::SendProof(Peer& peer) {
  VerbsMessage proof = Message(VerbsMessageType::kProof);
  const std::string mac = ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/true);
  std::memcpy(proof.proof, mac.data(), kProofBytes);
  peer.session->TellProbed(&proof.end);
  peer.link->Send(proof);
}

absl::Status VerbsDaemon::OnProof(Peer& peer, const VerbsMessage& message) {
  if (peer.state != State::kAwaitProof) return Unexpected(message);
  if (!SameProof(ProofOf(message), ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/true))) {
    Refuse(peer, OtherSecret(peer.transcript.initiator_node, identity_.node));
    return absl::OkStatus();
  }
  VerbsMessage welcome = Message(VerbsMessageType::kWelcome);
  const std::string mac = ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/false);
  std::memcpy(welcome.proof, mac.data(), kProofBytes);
  peer.session->TellProbed(&welcome.end);
  peer.session->LearnProbed(message.end);
  peer.link->Send(welcome);
  peer.state = State::kReady;
  peer.deadline = kNever;
  return absl::OkStatus();
}

absl::Status VerbsDaemon::OnWelcome(Peer& peer, const VerbsMessage& message) {
  if (peer.state != State::kAwaitWelcome) return Unexpected(message);
  if (!SameProof(ProofOf(message), ProveSecret(identity_.secret, peer.transcript, /*by_initiator=*/false))) {
    return NotOfThisCluster(peer.endpoint);
  }
  peer.session->LearnProbed(message.end);
  peer.state = State::kReady;
  for (auto& opening : std::exchange(peer.waiting, {})) SendOpen(peer, std::move(opening));
  return absl::OkStatus();
}

void VerbsDaemon::SendOpen(Peer& peer, std::unique_ptr<VerbsOpening> opening) {
  const VerbsConnection& connection = *opening->connection;
  VerbsMessage message = Message(VerbsMessageType::kOpen, peer.next_id++);
  message.max_requests = connection.limits().max_requests;
  message.max_receives = connection.limits().max_receives;
  message.urgent = connection.limits().urgent ? 1 : 0;
  message.end = connection.Describe();
  message.SetText(opening->private_data);
  Line& line = AddLine(peer, message.connection, LineState::kAsked, opening->deadline);
  line.opening = std::move(opening);
  peer.link->Send(message);
}

absl::Status VerbsDaemon::OnOpen(Peer& peer, const VerbsMessage& message) {
  if (peer.state != State::kReady || peer.initiator || peer.lines.contains(message.connection)) {
    return Unexpected(message);
  }
  std::string private_data;
  absl::StatusOr<std::unique_ptr<VerbsConnection>> connection = Accept(peer, message, &private_data);
  if (!connection.ok()) {
    VerbsMessage decline = Message(VerbsMessageType::kDecline, message.connection);
    decline.SetStatus(absl::FailedPreconditionError(connection.status().message()));
    peer.link->Send(decline);
    return absl::OkStatus();
  }
  Line& line = AddLine(peer, message.connection, LineState::kOffered, clock_.Now() + kHandshakeTime);
  line.ticket = MakeNonce();
  line.offered = *std::move(connection);
  VerbsMessage accept = Message(VerbsMessageType::kAccept, message.connection);
  accept.end = line.offered->Describe();
  std::memcpy(accept.proof, line.ticket.data(), kNonceBytes);
  accept.SetText(private_data);
  peer.link->Send(accept);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VerbsConnection>> VerbsDaemon::Accept(Peer& peer, const VerbsMessage& message,
                                                                     std::string* private_data) {
  Acceptor acceptor;
  {
    MutexLock lock(&mutex_);
    acceptor = acceptor_;
  }
  if (acceptor == nullptr) return absl::UnavailableError("the node does not listen");
  FURROW_ASSIGN_OR_RETURN(AcceptDecision decision,
                          acceptor({.peer = peer.transcript.initiator_node, .private_data = message.Text()}));
  if (decision.private_data.size() > Fabric::kMaxPrivateData) {
    return absl::InternalError(absl::StrCat("the acceptor answers with ", decision.private_data.size(),
                                            " bytes of private data; ", Fabric::kMaxPrivateData,
                                            " are possible"));
  }
  std::shared_ptr<VerbsQueue> queue;
  {
    MutexLock lock(&mutex_);
    auto it = queues_.find(decision.queue);
    if (it == queues_.end()) {
      return absl::UnavailableError("the acceptor named no completion queue of its fabric");
    }
    queue = it->second;
  }
  const ConnectionLimits limits{.max_requests = message.max_requests,
                                .max_receives = message.max_receives,
                                .urgent = message.urgent != 0};
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<VerbsConnection> connection,
                          VerbsConnection::Make(std::move(queue), limits));
  FURROW_RETURN_IF_ERROR(connection->Agree(std::string(message.Text()), message.end));
  *private_data = std::move(decision.private_data);
  return connection;
}

absl::Status VerbsDaemon::OnAccept(Peer& peer, const VerbsMessage& message) {
  if (peer.state != State::kReady || !peer.initiator) return Unexpected(message);
  auto it = peer.lines.find(message.connection);
  if (it == peer.lines.end()) return absl::OkStatus();  // it was given up, and the peer has been told
  Line& line = *it->second;
  if (line.state != LineState::kAsked) return Unexpected(message);
  line.ticket = ProofOf(message);
  absl::Status status = line.opening->connection->Agree(std::string(message.Text()), message.end);
  if (status.ok()) status = StartDialing(line);
  if (!status.ok()) FailLine(line, std::move(status));
  return absl::OkStatus();
}

absl::Status VerbsDaemon::OnDecline(Peer& peer, const VerbsMessage& message) {
  auto it = peer.lines.find(message.connection);
  if (it == peer.lines.end()) return absl::OkStatus();
  if (!peer.initiator || it->second->state != LineState::kAsked) return Unexpected(message);
  Finish(std::move(it->second->opening), StatusFromWire(message.code, message.Text()));
  EndLine(*it->second);
  return absl::OkStatus();
}

void VerbsDaemon::OnClose(Peer& peer, const VerbsMessage& message) {
  auto it = peer.lines.find(message.connection);
  if (it == peer.lines.end()) return;
  if (it->second->state == LineState::kUp) {
    peer.link->LoseConnection(message.connection);
  } else {
    FailLine(*it->second, absl::UnavailableError(absl::StrCat(
                              "the node at ", peer.endpoint, " has closed the connection while it came up")));
  }
}

}  // namespace furrow::rdma
