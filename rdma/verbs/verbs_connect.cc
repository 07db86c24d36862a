// What the connection manager tells a VerbsDaemon: how sessions come to be, and end.
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_daemon.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

constexpr int kResolveMilliseconds = 2000;

rdma_conn_param SessionParameters(const VerbsHello& hello) {
  rdma_conn_param parameters = {};
  parameters.private_data = &hello;
  parameters.private_data_len = sizeof(hello);
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 6;
  // A peer that is stopped keeps its session: openings and probes have time limits of their own.
  parameters.rnr_retry_count = 7;
  return parameters;
}

std::span<const std::byte> Bytes(std::string_view data) { return std::as_bytes(std::span(data)); }

void SetByte(rdma_cm_id* id, int option, uint8_t value) {
  // Kernels that do not know an option go on with their default.
  (void)rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof(value));
}

}  // namespace

void VerbsDaemon::TakeManagerEvents() {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(manager_, &event) == 0) {
    rdma_cm_event copy = *event;
    std::string data;
    if (event->param.conn.private_data != nullptr) {
      data.assign(static_cast<const char*>(event->param.conn.private_data),
                  event->param.conn.private_data_len);
    }
    // An id whose events are not acknowledged cannot be destroyed.
    rdma_ack_cm_event(event);
    Handle(copy, data);
  }
}

void VerbsDaemon::Handle(const rdma_cm_event& event, std::string_view data) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    ++parts_->counters.manager_ids;
    IsTicket(Bytes(data)) ? OnTicket(event.id, data) : OnRequest(event.id, data);
    return;
  }
  auto* owner = static_cast<Owner*>(event.id->context);
  if (owner == nullptr) {  // the listener's, or too late
    if (std::erase(unanswered_, event.id) > 0) EndId(event.id);
    return;
  }
  if (owner->line != nullptr) {
    if (!owner->line->peer.over) Handle(*owner->line, event, data);
    return;
  }
  auto* peer = static_cast<Peer*>(owner);
  if (peer->over) return;
  absl::Status status;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      status = OnResolved(*peer);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      status = OnRouted(*peer);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (peer->initiator) status = OnReply(*peer, data);
      if (peer->session != nullptr && !parts_->device->iwarp()) peer->session->SetTimer();
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
      status = Unreachable(peer->endpoint, "finding its address", event.status);
      break;
    case RDMA_CM_EVENT_ROUTE_ERROR:
      status = Unreachable(peer->endpoint, "finding a route", event.status);
      break;
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      status = Unreachable(peer->endpoint, "connecting", event.status);
      break;
    case RDMA_CM_EVENT_REJECTED:
      status = OnRejected(*peer, event.status, data);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      Work(*peer);  // what it said before
      status = absl::UnavailableError(absl::StrCat(
          "the node at ", peer->initiator ? peer->endpoint : "the other end", " has closed the connection"));
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      status = absl::UnavailableError(absl::StrCat("the RDMA device ", parts_->device->name(), " is gone"));
      break;
    default:
      break;
  }
  if (!status.ok()) Fail(*peer, std::move(status));
}

// --- the acceptor ---

absl::Status VerbsDaemon::Admit(Peer& peer, const VerbsHello& hello) {
  const NodeId node(hello.node);
  if (hello.cluster_tag != cluster_tag_) return OtherCluster(node, "", identity_.node);
  const auto strangers = std::count_if(peers_.begin(), peers_.end(), [](const std::unique_ptr<Peer>& p) {
    return !p->initiator && p->state != State::kReady;
  });
  if (static_cast<size_t>(strangers) >= kMaxStrangers) {
    return absl::ResourceExhaustedError("too many peers are connecting at the same time; try again");
  }
  peer.transcript = {.protocol = VerbsProtocol(),
                     .cluster_id = identity_.cluster_id,
                     .initiator_node = node,
                     .acceptor_node = identity_.node,
                     .initiator_nonce = NonceOf(hello),
                     .acceptor_nonce = MakeNonce()};
  FURROW_ASSIGN_OR_RETURN(peer.session, VerbsSession::Make(peer.id, completions_, *parts_));
  SetByte(peer.id, RDMA_OPTION_ID_ACK_TIMEOUT, parts_->options.session_ack_timeout);
  const VerbsChallenge challenge = MakeHello(identity_.node, cluster_tag_, peer.transcript.acceptor_nonce);
  rdma_conn_param parameters = SessionParameters(challenge);
  if (rdma_accept(peer.id, &parameters) != 0) return CallFailed("rdma_accept", errno);
  AttachSession(peer, node);
  peer.state = State::kAwaitProof;
  peer.deadline = clock_.Now() + kHandshakeTime;
  return absl::OkStatus();
}

void VerbsDaemon::OnRequest(rdma_cm_id* id, std::string_view data) {
  auto peer = std::make_unique<Peer>();
  peer->id = id;
  id->context = static_cast<Owner*>(peer.get());
  VerbsHello hello;
  absl::Status status = ParseHello(Bytes(data), &hello);
  if (status.ok()) status = Admit(*peer, hello);
  if (status.ok()) {
    peers_.push_back(std::move(peer));
    return;
  }
  FURROW_LOG_EVERY(WARNING, kSecond) << "a peer is refused: " << status.message();
  const VerbsRefusal refusal = MakeRefusal(status);
  (void)rdma_reject(id, &refusal, sizeof(refusal));
  peer->session.reset();
  DestroyId(id);
}

// --- the initiator ---

absl::Status VerbsDaemon::StartConnecting(Peer& peer) {
  FURROW_ASSIGN_OR_RETURN(peer.id, Resolve(peer, &peer, parts_->options.traffic_class));
  peer.state = State::kResolving;
  return absl::OkStatus();
}

absl::StatusOr<rdma_cm_id*> VerbsDaemon::Resolve(const Peer& peer, Owner* owner, uint8_t traffic_class) {
  FURROW_RETURN_IF_ERROR(parts_->device->CheckPort());
  sockaddr_storage here = here_, there = peer.address;
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(manager_, &id, owner, RDMA_PS_TCP) != 0) return CallFailed("rdma_create_id", errno);
  ++parts_->counters.manager_ids;
  SetByte(id, RDMA_OPTION_ID_TOS, traffic_class);
  if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&here), reinterpret_cast<sockaddr*>(&there),
                        kResolveMilliseconds) != 0) {
    const int error = errno;
    DestroyId(id);
    return Unreachable(peer.endpoint, "finding its address", error);
  }
  return id;
}

absl::Status VerbsDaemon::OnResolved(Peer& peer) {
  if (rdma_resolve_route(peer.id, kResolveMilliseconds) != 0) {
    return Unreachable(peer.endpoint, "finding a route", errno);
  }
  peer.state = State::kRouting;
  return absl::OkStatus();
}

absl::Status VerbsDaemon::OnRouted(Peer& peer) {
  FURROW_ASSIGN_OR_RETURN(peer.session, VerbsSession::Make(peer.id, completions_, *parts_));
  SetByte(peer.id, RDMA_OPTION_ID_ACK_TIMEOUT, parts_->options.session_ack_timeout);
  peer.transcript = {.protocol = VerbsProtocol(),
                     .cluster_id = identity_.cluster_id,
                     .initiator_node = identity_.node,
                     .initiator_nonce = MakeNonce()};
  const VerbsHello hello = MakeHello(identity_.node, cluster_tag_, peer.transcript.initiator_nonce);
  rdma_conn_param parameters = SessionParameters(hello);
  if (rdma_connect(peer.id, &parameters) != 0) return Unreachable(peer.endpoint, "connecting", errno);
  peer.state = State::kConnecting;
  return absl::OkStatus();
}

absl::Status VerbsDaemon::OnReply(Peer& peer, std::string_view data) {
  VerbsChallenge challenge;
  FURROW_RETURN_IF_ERROR(ParseHello(Bytes(data), &challenge));
  const NodeId node(challenge.node);
  if (challenge.cluster_tag != cluster_tag_) return OtherCluster(node, "", identity_.node);
  peer.transcript.acceptor_node = node;
  peer.transcript.acceptor_nonce = NonceOf(challenge);
  AttachSession(peer, node);
  SendProof(peer);
  peer.state = State::kAwaitWelcome;
  return absl::OkStatus();
}

absl::Status VerbsDaemon::OnRejected(Peer& peer, int reason, std::string_view data) {
  absl::Status refusal;
  if (ParseRefusal(Bytes(data), &refusal)) return refusal;
  return absl::UnavailableError(absl::StrCat("no node of Furrow listens at ", peer.endpoint,
                                             " (the host refuses, reason ", reason, ")"));
}

void VerbsDaemon::AttachSession(Peer& peer, NodeId node) {
  peer.link = std::make_shared<SessionLink>(node, [this] { Wake(); });
}

}  // namespace furrow::rdma
