// How the connection manager connects the connections that sessions have agreed upon: the initiator asks with
// the ticket that it was given over the session, and the acceptor takes whoever holds it, once.
#include <errno.h>
#include <rdma/rdma_cma.h>

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

rdma_conn_param Parameters(const VerbsConnection& connection, const VerbsOptions& options,
                           const DeviceLimits& device) {
  rdma_conn_param parameters = {};
  parameters.responder_resources = std::min(options.read_depth, device.read_depth_in);
  parameters.initiator_depth = connection.read_depth();
  parameters.retry_count = options.retry_count;
  parameters.rnr_retry_count = options.rnr_retry_count;
  parameters.qp_num = connection.pair_number();
  return parameters;
}

}  // namespace

VerbsDaemon::Line& VerbsDaemon::AddLine(Peer& peer, uint32_t connection, LineState state, Nanos deadline) {
  auto line = std::make_unique<Line>(peer, connection);
  line->state = state;
  line->deadline = deadline;
  return *(peer.lines[connection] = std::move(line));
}

// --- the initiator ---

absl::Status VerbsDaemon::StartDialing(Line& line) {
  const VerbsOptions& options = parts_->options;
  const bool urgent = line.opening->connection->limits().urgent;
  FURROW_ASSIGN_OR_RETURN(
      line.id, Resolve(line.peer, &line, urgent ? options.urgent_traffic_class : options.traffic_class));
  line.state = LineState::kResolving;
  return absl::OkStatus();
}

void VerbsDaemon::Handle(Line& line, const rdma_cm_event& event, std::string_view data) {
  if (line.state == LineState::kUp) {
    // An answer that the connection manager repeats, or a confirmation of what READY says, tell nothing new.
    const bool over =
        event.event != RDMA_CM_EVENT_ESTABLISHED && event.event != RDMA_CM_EVENT_CONNECT_RESPONSE;
    if (over) line.peer.link->LoseConnection(line.connection);
    return;
  }
  if (absl::Status status = Advance(line, event, data); !status.ok()) FailLine(line, std::move(status));
}

absl::Status VerbsDaemon::Advance(Line& line, const rdma_cm_event& event, std::string_view data) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(line.id, kResolveMilliseconds) != 0) {
        return Unreachable(line.peer.endpoint, "finding a route", errno);
      }
      line.state = LineState::kRouting;
      return absl::OkStatus();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Dial(line);
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
      return Answered(line);
    case RDMA_CM_EVENT_ADDR_ERROR:
      return Unreachable(line.peer.endpoint, "finding its address", event.status);
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return Unreachable(line.peer.endpoint, "finding a route", event.status);
    case RDMA_CM_EVENT_REJECTED: {
      absl::Status refusal;
      const bool in_words = ParseRefusal(std::as_bytes(std::span(data)), &refusal);
      return in_words ? refusal : ConnectionRejected(event.status, line.peer.endpoint);
    }
    default:
      return Unreachable(line.peer.endpoint, "connecting", event.status);
  }
}

absl::Status VerbsDaemon::Dial(Line& line) {
  FURROW_RETURN_IF_ERROR(parts_->device->CheckPort());
  VerbsConnection& connection = *line.opening->connection;
  FURROW_RETURN_IF_ERROR(connection.Join(line.peer.link, line.connection));
  FURROW_RETURN_IF_ERROR(connection.Prepare(line.id));
  const VerbsTicket ticket = MakeTicket(identity_.node, line.connection, line.ticket);
  rdma_conn_param parameters = Parameters(connection, parts_->options, parts_->device->limits());
  parameters.private_data = &ticket;
  parameters.private_data_len = sizeof(ticket);
  if (rdma_connect(line.id, &parameters) != 0) return Unreachable(line.peer.endpoint, "connecting", errno);
  line.state = LineState::kConnecting;
  return absl::OkStatus();
}

absl::Status VerbsDaemon::Answered(Line& line) {
  if (line.state != LineState::kConnecting) return absl::InternalError("an answer that nobody asked for");
  VerbsConnection& connection = *line.opening->connection;
  FURROW_RETURN_IF_ERROR(connection.Raise(line.id));
  if (!parts_->device->iwarp() && rdma_establish(line.id) != 0) return CallFailed("rdma_establish", errno);
  line.state = LineState::kUp;
  line.deadline = kNever;
  connection.LogConnected();
  VerbsMessage ready;
  ready.type = VerbsMessageType::kReady;
  ready.connection = line.connection;
  line.peer.link->Send(ready);
  Finish(std::move(line.opening), absl::OkStatus());
  return absl::OkStatus();
}

// --- the acceptor ---

VerbsDaemon::Line* VerbsDaemon::FindOffered(const VerbsTicket& ticket) {
  for (auto& peer : peers_) {
    if (peer->initiator || peer->over || peer->state != State::kReady ||
        peer->link->peer() != NodeId(ticket.node)) {
      continue;
    }
    auto it = peer->lines.find(ticket.connection);
    if (it == peer->lines.end() || it->second->state != LineState::kOffered) continue;
    const std::string_view said(reinterpret_cast<const char*>(ticket.ticket), kNonceBytes);
    if (SameProof(said, it->second->ticket)) return it->second.get();
  }
  return nullptr;
}

void VerbsDaemon::OnTicket(rdma_cm_id* id, std::string_view data) {
  id->context = nullptr;
  VerbsTicket ticket;
  absl::Status status = ParseTicket(std::as_bytes(std::span(data)), &ticket);
  Line* line = status.ok() ? FindOffered(ticket) : nullptr;
  if (line != nullptr) {
    status = TakeUp(*line, id);
    if (status.ok()) return;
  } else if (status.ok()) {
    status = absl::FailedPreconditionError(
        "no such connection was agreed upon with this node, or the request came too late");
  }
  FURROW_LOG_EVERY(WARNING, kSecond) << "a connection is refused: " << status.message();
  const VerbsRefusal refusal = MakeRefusal(status);
  (void)rdma_reject(id, &refusal, sizeof(refusal));
  EndId(id);
}

absl::Status VerbsDaemon::TakeUp(Line& line, rdma_cm_id* id) {
  std::unique_ptr<VerbsConnection> connection = std::move(line.offered);
  line.state = LineState::kUp;
  line.deadline = kNever;
  line.ticket.clear();
  const std::shared_ptr<SessionLink> link = line.peer.link;
  FURROW_RETURN_IF_ERROR(connection->Join(link, line.connection));
  absl::Status status = connection->Prepare(id);
  if (status.ok()) status = connection->Raise(id);
  if (status.ok()) {
    rdma_conn_param parameters = Parameters(*connection, parts_->options, parts_->device->limits());
    if (rdma_accept(id, &parameters) != 0) status = CallFailed("rdma_accept", errno);
  }
  if (status.ok()) {
    line.id = id;
    id->context = static_cast<Owner*>(&line);
    connection->LogConnected();
  }
  const std::shared_ptr<VerbsQueue> queue = connection->queue();
  // If the queue has been destroyed meanwhile, its connection sends CLOSE as it goes.
  const std::unique_ptr<VerbsConnection> unwanted = queue->Adopt(std::move(connection));
  // Its owner's thread destroys it, and that ends the line.
  if (!status.ok()) link->LoseConnection(line.connection);
  return status;
}

// --- ends ---

void VerbsDaemon::FailLine(Line& line, absl::Status status) {
  // The peer may have accepted it meanwhile.
  VerbsMessage close;
  close.type = VerbsMessageType::kClose;
  close.connection = line.connection;
  line.peer.link->Send(close);
  if (line.opening != nullptr) Finish(std::move(line.opening), std::move(status));
  EndLine(line);
}

void VerbsDaemon::EndLine(Line& line) {
  EndId(line.id, line.state == LineState::kConnecting);
  line.peer.lines.erase(line.connection);
}

void VerbsDaemon::EndRemovedLines(Peer& peer) {
  for (const uint32_t connection : peer.link->TakeRemoved()) {
    auto it = peer.lines.find(connection);
    if (it != peer.lines.end()) EndLine(*it->second);
  }
}

void VerbsDaemon::ExpireLines(Peer& peer, Nanos now) {
  for (auto it = peer.lines.begin(); it != peer.lines.end();) {
    Line& line = *it++->second;
    if (now < line.deadline) continue;
    FailLine(line, absl::DeadlineExceededError(
                       absl::StrCat("the node at ", peer.endpoint, " did not answer in time")));
  }
}

}  // namespace furrow::rdma
