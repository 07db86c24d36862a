#include "node/doctor/peer_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace furrow::node {

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(rdma::Fabric& fabric,
                                                              const rdma::Endpoint& endpoint) {
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<PeerLink> link, PeerLink::Make(fabric, kOfferedBytes, true));
  std::unique_ptr<PeerServer> server(new PeerServer(std::move(link)));
  Door& door = *server->door_;
  std::memcpy(door.offer.magic, kPeerMagic, sizeof(kPeerMagic));
  door.offer.version = kPeerVersion;
  door.offer.key = server->link_->address().key.value();
  door.offer.address = server->link_->address().address;
  door.offer.bytes = kOfferedBytes;
  door.queue = &server->link_->queue();
  FURROW_RETURN_IF_ERROR(fabric
                             .Listen(endpoint,
                                     [shared = server->door_](const rdma::ConnectRequest& request)
                                         -> absl::StatusOr<rdma::AcceptDecision> {
                                       if (!DecodeHello(request.private_data).has_value())
                                         return absl::FailedPreconditionError(
                                             "this is a furrow doctor, and serves its own version only");
                                       if (shared->busy.exchange(true))
                                         return absl::ResourceExhaustedError(
                                             "this doctor examines somebody else: try again later");
                                       return rdma::AcceptDecision{shared->queue, EncodeHello(shared->offer)};
                                     })
                             .status());
  return server;
}

void PeerServer::LetGo() {
  StoreWord(link_->memory(), kReadyAt, 0);
  (void)link_->Take(nullptr);
  watching_ = false;
  door_->busy = false;
}

uint64_t PeerServer::WrongBytes(uint64_t seed, uint64_t bytes) {
  uint64_t wrong = 0;
  const std::span<std::byte> payload = link_->memory().subspan(kPayloadAt, kPayloadBytes);
  for (size_t i = 0; i < std::min<uint64_t>(bytes, kPayloadBytes); ++i)
    wrong += payload[i] != PatternByte(seed, i);
  return wrong;
}

// The flag was written after the block of its round: who sees the flag sees no older word in the block.
void PeerServer::Look() {
  const std::span<std::byte> memory = link_->memory();
  const uint64_t round = LoadWord(memory, kFlagAt);
  bool old = false;
  for (size_t at = 0; at < kBlockBytes; at += 8) old |= LoadWord(memory, kBlockAt + at) < round;
  ++looks_;
  old_looks_ += old;
}

absl::Status PeerServer::Answer(const PeerMessage& question) {
  PeerMessage answer = question;
  switch (question.kind) {
    case PeerMessage::kEcho:
      break;
    case PeerMessage::kPattern:
      answer.a = WrongBytes(question.a, question.b);
      break;
    case PeerMessage::kWatch:
      // What an earlier peer has left is no flag of this one's.
      StoreWord(link_->memory(), kFlagAt, 0);
      watching_ = true;
      looks_ = old_looks_ = 0;
      break;
    case PeerMessage::kWatched:
      Look();
      watching_ = false;
      answer.a = looks_;
      answer.b = old_looks_;
      break;
    default:
      return absl::InvalidArgumentError("the peer asks what no doctor asks");
  }
  return link_->Send(answer);
}

absl::StatusOr<bool> PeerServer::Step() {
  FURROW_ASSIGN_OR_RETURN(bool any, link_->Poll());
  if (link_->arrived() != nullptr) {
    FURROW_RETURN_IF_ERROR(link_->Take(link_->TakeArrived()));
    StoreWord(link_->memory(), kReadyAt, 1);
  }
  if (!door_->busy || link_->connection() != nullptr) {
    let_in_ = kNever;
  } else if (let_in_ == kNever) {
    let_in_ = link_->loop().Now();
  } else if (link_->loop().Now() - let_in_ > kPatience) {
    return absl::DeadlineExceededError("it was let in and did not come");
  }
  if (watching_) {
    Look();
    any = true;
  }
  while (std::optional<PeerMessage> question = link_->TakeMessage())
    FURROW_RETURN_IF_ERROR(Answer(*question));
  return any;
}

absl::Status PeerServer::Serve(const std::function<bool()>& stop, bool once) {
  EventLoop& loop = link_->loop();
  Parker& parker = link_->queue().parker();
  while (!stop()) {
    loop.RunOnce();
    parker.PrepareToPark();
    absl::StatusOr<bool> any = Step();
    if (any.ok() && !*any) {
      parker.Park(loop.Now() + 100 * kMillisecond);
      continue;
    }
    parker.CancelPark();
    if (any.ok()) continue;
    FURROW_LOG(INFO) << "a peer was served: " << any.status().message();
    LetGo();
    if (once) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace furrow::node
