#include "rdma/verbs/verbs_daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

// Requests that this thread has not looked at: every worker of every peer may connect at the same time.
constexpr int kBacklog = 1024;

absl::Status Watch(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
      epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return CallFailed("epoll_ctl", errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsDaemon>> VerbsDaemon::Start(std::shared_ptr<VerbsParts> parts) {
  std::unique_ptr<VerbsDaemon> daemon(new VerbsDaemon(std::move(parts)));
  FURROW_RETURN_IF_ERROR(daemon->Prepare());
  VerbsDaemon* self = daemon.get();
  daemon->thread_ = Thread({.name = "verbs-fabric"}, [self] { self->Run(); });
  return daemon;
}

VerbsDaemon::VerbsDaemon(std::shared_ptr<VerbsParts> parts)
    : parts_(std::move(parts)),
      identity_(parts_->options.identity),
      clock_(*parts_->options.clock),
      cluster_tag_(ClusterTag(identity_.cluster_id)) {}

absl::Status VerbsDaemon::Prepare() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || event_ < 0) return CallFailed("eventfd", errno);
  manager_ = rdma_create_event_channel();
  if (manager_ == nullptr) return NoConnectionManager(errno);
  if (rdma_create_id(manager_, &anchor_, nullptr, RDMA_PS_TCP) != 0)
    return CallFailed("rdma_create_id", errno);
  FURROW_RETURN_IF_ERROR(ParseEndpoint(parts_->options.address, /*with_port=*/false, &here_));
  sockaddr_storage address = here_;
  if (rdma_bind_addr(anchor_, reinterpret_cast<sockaddr*>(&address)) != 0) {
    return NoDeviceAt(errno, parts_->options.address);
  }
  completions_ = ibv_create_comp_channel(anchor_->verbs);
  if (completions_ == nullptr) return CallFailed("ibv_create_comp_channel", errno);
  for (int fd : {event_, manager_->fd, completions_->fd, parts_->device->context()->async_fd}) {
    FURROW_RETURN_IF_ERROR(Watch(epoll_, fd));
  }
  return absl::OkStatus();
}

VerbsDaemon::~VerbsDaemon() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  thread_.Join();
  for (auto& peer : peers_) {
    peer->waiting.clear();
    for (auto& [id, line] : peer->lines) line->opening.reset();
  }
  DropEverything();
  for (rdma_cm_id* id : buried_) DestroyId(id);
  for (rdma_cm_id* id : unanswered_) DestroyId(id);
  if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
  if (anchor_ != nullptr) rdma_destroy_id(anchor_);
  if (manager_ != nullptr) rdma_destroy_event_channel(manager_);
  if (event_ >= 0) close(event_);
  if (epoll_ >= 0) close(epoll_);
}

void VerbsDaemon::Wake() {
  const uint64_t one = 1;
  (void)!write(event_, &one, sizeof(one));
}

absl::StatusOr<Endpoint> VerbsDaemon::Listen(const Endpoint& endpoint, Acceptor acceptor) {
  sockaddr_storage address = {};
  FURROW_RETURN_IF_ERROR(ParseEndpoint(endpoint, /*with_port=*/true, &address));
  MutexLock lock(&mutex_);
  if (listener_ != nullptr)
    return absl::FailedPreconditionError("this fabric listens already; it can do so once");
  rdma_cm_id* listener = nullptr;
  if (rdma_create_id(manager_, &listener, nullptr, RDMA_PS_TCP) != 0)
    return CallFailed("rdma_create_id", errno);
  absl::Status status;
  if (rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) != 0) {
    status = errno == EADDRINUSE
                 ? absl::AlreadyExistsError(absl::StrCat("something listens at ", endpoint, " already"))
                 : NoDeviceAt(errno, endpoint);
  } else if (rdma_listen(listener, kBacklog) != 0) {
    status = CallFailed("rdma_listen", errno);
  }
  if (!status.ok()) {
    rdma_destroy_id(listener);
    return status;
  }
  listener_ = listener;
  acceptor_ = std::move(acceptor);
  // The host as it was given: a name says more than a number.
  return absl::StrCat(endpoint.substr(0, endpoint.rfind(':')), ":", ntohs(rdma_get_src_port(listener)));
}

void VerbsDaemon::Open(std::unique_ptr<VerbsOpening> opening) {
  {
    MutexLock lock(&mutex_);
    new_openings_.push_back(std::move(opening));
  }
  Wake();
}

void VerbsDaemon::AddQueue(CompletionQueue* queue, std::shared_ptr<VerbsQueue> implementation) {
  MutexLock lock(&mutex_);
  queues_[queue] = std::move(implementation);
}

void VerbsDaemon::RemoveQueue(CompletionQueue* queue) {
  MutexLock lock(&mutex_);
  queues_.erase(queue);
}

void VerbsDaemon::Kill() {
  MutexLock lock(&mutex_);
  kill_ = true;
  Wake();
  while (!killed_) killed_changed_.Wait(&mutex_);
}

// --- the thread ---

void VerbsDaemon::Run() {
  Nanos stop_by = kNever;
  for (;;) {
    WaitForEvents();
    bool stop = false, kill = false;
    {
      MutexLock lock(&mutex_);
      stop = stop_;
      kill = std::exchange(kill_, false);
    }
    if (kill) {
      DropEverything();
      MutexLock lock(&mutex_);
      killed_ = true;
      killed_changed_.SignalAll();
    }
    TakeManagerEvents();
    TakeSessionEvents();
    TakeDeviceEvents();
    TakeOpenings();
    const Nanos now = clock_.Now();
    const bool probe = now >= next_probe_;
    if (probe) next_probe_ = now + kProbeEvery;
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = *peers_[i];
      if (!peer.over) Work(peer);
      if (!peer.over) Expire(peer, now);
      if (!peer.over) ExpireProbe(peer, now);
      if (!peer.over && peer.state == State::kReady && (probe || peer.link->TakeProbe()))
        peer.session->Probe(now);
    }
    std::erase_if(peers_, [this](const std::unique_ptr<Peer>& peer) {
      if (peer->over) EndPeer(*peer);
      return peer->over;
    });
    EndBuriedIds();
    if (!stop) continue;
    if (stop_by == kNever) stop_by = now + kFlushTime;
    if (now >= stop_by || Settled()) return;
  }
}

void VerbsDaemon::WaitForEvents() {
  epoll_event events[8];
  const int count = epoll_wait(epoll_, events, 8, WaitMilliseconds());
  for (int i = 0; i < count; ++i) {
    if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0 && (events[i].events & EPOLLIN) == 0) {
      LoseDescriptor(events[i].data.fd);
    }
    if (events[i].data.fd != event_) continue;
    uint64_t ignored;
    (void)!read(event_, &ignored, sizeof(ignored));
  }
}

// What the kernel does when a device is removed: its descriptors tell nothing any more, and would end every
// wait at once.
void VerbsDaemon::LoseDescriptor(int fd) {
  (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  FURROW_LOG(ERROR) << "the RDMA device " << parts_->device->name()
                    << " is gone: its sessions end. Restart this process when it is back";
  for (auto& peer : peers_) {
    Fail(*peer, absl::UnavailableError(absl::StrCat("the RDMA device ", parts_->device->name(), " is gone")));
  }
}

int VerbsDaemon::WaitMilliseconds() const {
  Nanos next = peers_.empty() && buried_.empty() ? kNever : next_probe_;
  for (const auto& peer : peers_) {
    next = std::min(next, peer->deadline);
    for (const auto& opening : peer->waiting) next = std::min(next, opening->deadline);
    for (const auto& [id, line] : peer->lines) next = std::min(next, line->deadline);
  }
  if (next == kNever) return -1;
  const Nanos left = next - clock_.Now();
  return left <= 0 ? 0 : static_cast<int>(std::min<Nanos>(left / kMillisecond + 1, 1'000'000));
}

bool VerbsDaemon::Settled() {
  return std::all_of(peers_.begin(), peers_.end(), [](const std::unique_ptr<Peer>& peer) {
    return peer->session == nullptr || peer->session->drained();
  });
}

void VerbsDaemon::TakeSessionEvents() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(completions_, &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    // Armed again before it is polled: Work() comes next.
    (void)ibv_req_notify_cq(cq, 0);
  }
}

void VerbsDaemon::TakeDeviceEvents() {
  ibv_async_event event = {};
  while (ibv_get_async_event(parts_->device->context(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    ibv_ack_async_event(&event);
    switch (type) {
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        break;
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_QP_REQ_ERR:
        // The owner of the queue pair finds its receives flushed, and says so.
        break;
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_GID_CHANGE:
        FURROW_LOG(INFO) << "RDMA device " << parts_->device->name() << ": " << ibv_event_type_str(type);
        break;
      default:
        FURROW_LOG(ERROR) << "RDMA device " << parts_->device->name() << ": " << ibv_event_type_str(type);
    }
  }
}

void VerbsDaemon::TakeOpenings() {
  std::vector<std::unique_ptr<VerbsOpening>> openings;
  {
    MutexLock lock(&mutex_);
    openings.swap(new_openings_);
  }
  for (auto& opening : openings) {
    auto it = std::find_if(peers_.begin(), peers_.end(), [&](const std::unique_ptr<Peer>& peer) {
      return peer->initiator && peer->endpoint == opening->endpoint && !peer->over && !peer->closing;
    });
    if (it != peers_.end() && (*it)->state == State::kReady) {
      SendOpen(**it, std::move(opening));
      continue;
    }
    if (it == peers_.end()) {
      auto peer = std::make_unique<Peer>();
      peer->initiator = true;
      peer->endpoint = opening->endpoint;
      peer->address = opening->address;
      it = peers_.insert(peers_.end(), std::move(peer));
      if (absl::Status status = StartConnecting(**it); !status.ok()) Fail(**it, std::move(status));
    }
    (*it)->waiting.push_back(std::move(opening));
  }
}

void VerbsDaemon::Work(Peer& peer) {
  if (peer.session == nullptr || peer.link == nullptr) return;
  absl::Status why;
  const bool alive = peer.session->Poll(
      [&](const VerbsMessage& message) {
        if (peer.over || peer.closing) return;
        if (absl::Status status = Handle(peer, message); !status.ok()) Fail(peer, std::move(status));
      },
      &why);
  if (!alive) Fail(peer, std::move(why));
  if (peer.over) return;
  EndRemovedLines(peer);
  Flush(peer);
}

void VerbsDaemon::Flush(Peer& peer) {
  VerbsMessage message;
  while (peer.session->HasRoom() && peer.link->TakeMessage(&message)) {
    if (!peer.session->Send(message)) {
      Fail(peer, absl::UnavailableError("the device takes no more messages for the peer"));
      return;
    }
  }
  if (peer.link->overrun()) {
    Fail(peer, absl::UnavailableError(
                   absl::StrCat("node ", peer.link->peer().value(), " has not taken its messages for long")));
  }
  if (peer.closing && peer.session->drained()) peer.over = true;
}

void VerbsDaemon::Fail(Peer& peer, absl::Status why) {
  peer.over = true;
  if (peer.failure.ok()) peer.failure = std::move(why);
}

void VerbsDaemon::Expire(Peer& peer, Nanos now) {
  if (now >= peer.deadline) {
    Fail(peer, absl::DeadlineExceededError("the peer did not end its handshake in time"));
    return;
  }
  for (auto it = peer.waiting.begin(); it != peer.waiting.end();) {
    if (now < (*it)->deadline) {
      ++it;
      continue;
    }
    absl::Status status =
        absl::DeadlineExceededError(absl::StrCat("the node at ", peer.endpoint, " did not answer in time"));
    Finish(std::move(*it), std::move(status));
    it = peer.waiting.erase(it);
  }
  ExpireLines(peer, now);
  // A handshake that nobody waits for any more.
  if (peer.initiator && peer.state != State::kReady && peer.waiting.empty()) peer.over = true;
}

// InfiniBand's devices give a request up by themselves.
void VerbsDaemon::ExpireProbe(Peer& peer, Nanos now) {
  if (!parts_->device->iwarp() || peer.session == nullptr) return;
  const Nanos since = peer.session->probing_since();
  if (since == kNever || now - since < kProbePatience) return;
  Fail(peer, absl::UnavailableError(absl::StrCat("the peer's device has not answered for ",
                                                 (now - since) / kMillisecond,
                                                 " ms: the peer is dead or its link is cut")));
}

void VerbsDaemon::EndId(rdma_cm_id* id, bool connecting) {
  if (id == nullptr) return;
  id->context = nullptr;
  if (connecting && parts_->device->iwarp()) {
    unanswered_.push_back(id);
  } else if (parts_->device->CheckPort().ok()) {
    DestroyId(id);
  } else {
    buried_.push_back(id);
  }
}

void VerbsDaemon::DestroyId(rdma_cm_id* id) {
  rdma_destroy_id(id);
  --parts_->counters.manager_ids;
}

void VerbsDaemon::EndBuriedIds() {
  if (buried_.empty() || !parts_->device->CheckPort().ok()) return;
  for (rdma_cm_id* id : std::exchange(buried_, {})) DestroyId(id);
}

void VerbsDaemon::EndPeer(Peer& peer) {
  if (peer.failure.ok()) {
    peer.failure =
        absl::UnavailableError(absl::StrCat("the node at ", peer.endpoint, " has closed the connection"));
  }
  if (peer.link != nullptr) {
    if (peer.state == State::kReady) {
      FURROW_LOG(INFO) << "session with node " << peer.link->peer().value()
                       << " is over: " << peer.failure.message();
    }
    peer.link->End();
  }
  // The peer is told before the queue pair goes; the id goes last.
  const bool connected = peer.session != nullptr && peer.link != nullptr;
  if (connected && parts_->device->CheckPort().ok()) (void)rdma_disconnect(peer.id);
  peer.session.reset();
  EndId(std::exchange(peer.id, nullptr), peer.state == State::kConnecting);
  for (auto& opening : std::exchange(peer.waiting, {})) Finish(std::move(opening), peer.failure);
  for (auto& [connection, line] : std::exchange(peer.lines, {})) {
    EndId(line->id, line->state == LineState::kConnecting);
    if (line->opening != nullptr) Finish(std::move(line->opening), peer.failure);
  }
}

void VerbsDaemon::DropEverything() {
  std::map<CompletionQueue*, std::shared_ptr<VerbsQueue>> queues;
  rdma_cm_id* listener = nullptr;
  {
    MutexLock lock(&mutex_);
    queues = queues_;
    listener = std::exchange(listener_, nullptr);
    acceptor_ = nullptr;
  }
  for (auto& [key, queue] : queues) queue->Kill();
  if (listener != nullptr) rdma_destroy_id(listener);
  for (auto& peer : peers_) {
    Fail(*peer, absl::UnavailableError("the fabric ends"));
    EndPeer(*peer);
  }
  peers_.clear();
}

void VerbsDaemon::Finish(std::unique_ptr<VerbsOpening> opening, absl::Status status) {
  EventLoop* loop = opening->loop;
  // std::function wants a copyable target.
  auto shared = std::make_shared<std::unique_ptr<VerbsOpening>>(std::move(opening));
  loop->Post([shared, status = std::move(status)] {
    std::unique_ptr<VerbsOpening> done = std::move(*shared);
    if (status.ok()) {
      done->connection->Announce();
      done->done(std::unique_ptr<Connection>(std::move(done->connection)));
    } else {
      done->connection.reset();
      done->done(status);
    }
  });
}

}  // namespace furrow::rdma
