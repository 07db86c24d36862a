#include "rdma/shm/shm_daemon.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "rdma/shm/shm_socket.h"

namespace furrow::rdma {
namespace {

constexpr int kRetryMilliseconds = 5;  // between attempts to connect to a peer whose backlog is full
constexpr Nanos kAcceptPauseNs = 100 * kMillisecond;  // when there is no descriptor for a peer that waits

void Watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  (void)epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmDaemon>> ShmDaemon::Start(FabricIdentity identity, const Clock& clock,
                                                            std::shared_ptr<ShmRegistry> registry) {
  std::unique_ptr<ShmDaemon> daemon(new ShmDaemon(std::move(identity), clock, std::move(registry)));
  if (!daemon->epoll_ || !daemon->event_) {
    return absl::ErrnoToStatus(errno, "cannot create the descriptors of the shm fabric's thread");
  }
  Watch(daemon->epoll_.get(), EPOLL_CTL_ADD, daemon->event_.get(), EPOLLIN);
  ShmDaemon* self = daemon.get();
  daemon->thread_ = Thread({.name = "shm-fabric"}, [self] { self->Run(); });
  return daemon;
}

ShmDaemon::ShmDaemon(FabricIdentity identity, const Clock& clock, std::shared_ptr<ShmRegistry> registry)
    : identity_(std::move(identity)),
      clock_(clock),
      registry_(std::move(registry)),
      instance_(EntropySeed() | 1),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ShmDaemon::~ShmDaemon() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  thread_.Join();
  for (auto& peer : peers_) {
    peer->waiting.clear();
    peer->opening.clear();
    EndPeer(*peer);
  }
}

void ShmDaemon::Wake() {
  const uint64_t one = 1;
  (void)!write(event_.get(), &one, sizeof(one));
}

absl::StatusOr<Endpoint> ShmDaemon::Listen(const Endpoint& endpoint, Acceptor acceptor) {
  MutexLock lock(&mutex_);
  if (listener_) return absl::FailedPreconditionError("this fabric listens already; it can do so once");
  FURROW_ASSIGN_OR_RETURN(listener_, ListenAt(endpoint));
  acceptor_ = std::move(acceptor);
  Watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
  return endpoint;
}

void ShmDaemon::Open(std::unique_ptr<ShmOpening> opening) {
  {
    MutexLock lock(&mutex_);
    new_openings_.push_back(std::move(opening));
  }
  Wake();
}

void ShmDaemon::AddQueue(CompletionQueue* queue, std::shared_ptr<ShmQueue> implementation) {
  MutexLock lock(&mutex_);
  queues_[queue] = std::move(implementation);
}

void ShmDaemon::RemoveQueue(CompletionQueue* queue) {
  MutexLock lock(&mutex_);
  queues_.erase(queue);
}

void ShmDaemon::Kill() {
  {
    MutexLock lock(&mutex_);
    killed_ = true;
  }
  Wake();
}

void ShmDaemon::Run() {
  for (;;) {
    WaitForEvents();
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (killed_) {
        listener_ = Fd();
        for (auto& peer : peers_) {
          if (peer->session != nullptr) peer->session->Close();
        }
      }
    }
    AcceptPeers();
    TakeOpenings();
    const Nanos now = clock_.Now();
    for (auto& peer : peers_) {
      if (peer->state == State::kConnecting) TryConnect(*peer);
      Process(*peer);
      Expire(*peer, now);
    }
    std::erase_if(peers_, [this](const std::unique_ptr<Peer>& peer) {
      const bool idle = peer->session == nullptr && peer->waiting.empty();
      const bool over = peer->session != nullptr && peer->session->closed();
      if (idle || over) EndPeer(*peer);
      return idle || over;
    });
    std::erase_if(remotes_, [](const auto& entry) {
      const std::shared_ptr<RemoteMemory> remote = entry.second.lock();
      if (remote != nullptr) remote->Reap();
      return remote == nullptr;
    });
  }
}

void ShmDaemon::WaitForEvents() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, WaitMilliseconds());
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == event_.get()) {
      uint64_t ignored;
      (void)!read(fd, &ignored, sizeof(ignored));
      continue;
    }
    auto it = std::find_if(peers_.begin(), peers_.end(), [fd](const std::unique_ptr<Peer>& peer) {
      return peer->session != nullptr && peer->session->socket() == fd;
    });
    if (it == peers_.end()) continue;  // the listener
    if ((events[i].events & EPOLLOUT) != 0) (*it)->session->Flush();
    (*it)->session->Drain();
  }
}

int ShmDaemon::WaitMilliseconds() const {
  Nanos next = accept_again_ != 0 ? accept_again_ : kNever;
  for (const auto& peer : peers_) {
    if (peer->state == State::kConnecting) return kRetryMilliseconds;
    next = std::min(next, peer->deadline);
    for (const auto& opening : peer->waiting) next = std::min(next, opening->deadline);
    for (const auto& [id, opening] : peer->opening) next = std::min(next, opening->deadline);
  }
  if (next == kNever) return -1;
  const Nanos left = next - clock_.Now();
  return left <= 0 ? 0 : static_cast<int>(std::min<Nanos>(left / kMillisecond + 1, 1'000'000));
}

void ShmDaemon::TakeOpenings() {
  std::vector<std::unique_ptr<ShmOpening>> openings;
  {
    MutexLock lock(&mutex_);
    openings.swap(new_openings_);
  }
  for (auto& opening : openings) {
    auto it = std::find_if(peers_.begin(), peers_.end(), [&](const std::unique_ptr<Peer>& peer) {
      return peer->initiator && peer->endpoint == opening->endpoint &&
             (peer->session == nullptr || !peer->session->closed());
    });
    if (it != peers_.end() && (*it)->state == State::kReady) {
      SendOpen(**it, std::move(opening));
      continue;
    }
    if (it == peers_.end()) {
      auto peer = std::make_unique<Peer>();
      peer->state = State::kConnecting;
      peer->initiator = true;
      peer->endpoint = opening->endpoint;
      it = peers_.insert(peers_.end(), std::move(peer));
    }
    (*it)->waiting.push_back(std::move(opening));
  }
}

// A peer that cannot be accepted keeps the listener readable, and the thread would spin on it.
bool ShmDaemon::AcceptingIsPaused() {
  if (accept_again_ == 0) return false;
  if (clock_.Now() < accept_again_) return true;
  accept_again_ = 0;
  MutexLock lock(&mutex_);
  if (listener_) Watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  return false;
}

void ShmDaemon::AcceptPeers() {
  if (AcceptingIsPaused()) return;
  for (;;) {
    Fd socket;
    {
      MutexLock lock(&mutex_);
      if (!listener_) return;
      absl::StatusOr<Fd> accepted = AcceptFrom(listener_.get());
      if (absl::IsResourceExhausted(accepted.status())) {
        FURROW_LOG_EVERY(ERROR, 10 * kSecond) << accepted.status().message();
        accept_again_ = clock_.Now() + kAcceptPauseNs;
        Watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), 0);
      }
      if (!accepted.ok()) return;
      socket = *std::move(accepted);
    }
    const absl::Status same_user = CheckSameUser(socket.get());
    auto peer = std::make_unique<Peer>();
    peer->deadline = clock_.Now() + kHandshakeTime;
    AttachSession(*peer, std::move(socket));
    const auto strangers = std::count_if(peers_.begin(), peers_.end(), [](const std::unique_ptr<Peer>& p) {
      return !p->initiator && p->state != State::kReady;
    });
    if (!same_user.ok()) {
      Refuse(*peer, same_user);
    } else if (static_cast<size_t>(strangers) >= kMaxStrangers) {
      Refuse(*peer,
             absl::ResourceExhaustedError("too many peers are connecting at the same time; try again"));
    }
    peers_.push_back(std::move(peer));
  }
}

void ShmDaemon::TryConnect(Peer& peer) {
  absl::StatusOr<Fd> socket = ConnectTo(peer.endpoint);
  if (absl::IsResourceExhausted(socket.status())) return;  // again in kRetryMilliseconds
  absl::Status status = socket.ok() ? CheckSameUser(socket->get()) : socket.status();
  if (!status.ok()) {
    for (auto& opening : std::exchange(peer.waiting, {})) Finish(std::move(opening), status);
    return;
  }
  AttachSession(peer, *std::move(socket));
  peer.state = State::kAwaitChallenge;
  peer.transcript.protocol = ShmProtocol();
  peer.transcript.cluster_id = identity_.cluster_id;
  peer.transcript.initiator_node = identity_.node;
  peer.transcript.initiator_instance = instance_;
  peer.transcript.initiator_nonce = MakeNonce();
  ShmMessage hello;
  hello.type = ShmMessageType::kHello;
  hello.numbers = {identity_.node.value(), instance_, 0, 0};
  hello.texts = {identity_.cluster_id, peer.transcript.initiator_nonce};
  peer.session->Send(std::move(hello));
}

void ShmDaemon::AttachSession(Peer& peer, Fd socket) {
  const int fd = socket.get(), epoll = epoll_.get();
  Watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
  peer.session = std::make_shared<ShmSession>(
      std::move(socket),
      [epoll, fd](bool room) { Watch(epoll, EPOLL_CTL_MOD, fd, room ? EPOLLIN | EPOLLOUT : EPOLLIN); },
      [this] { Wake(); });
}

void ShmDaemon::Process(Peer& peer) {
  if (peer.session == nullptr) return;
  for (;;) {
    std::vector<ShmMessage> messages = peer.session->TakeMessages();
    if (messages.empty()) return;
    for (ShmMessage& message : messages) {
      absl::Status status = Handle(peer, message);
      if (status.ok()) continue;
      if (peer.failure.ok()) peer.failure = std::move(status);
      peer.session->Close();
      return;
    }
  }
}

void ShmDaemon::Expire(Peer& peer, Nanos now) {
  if (now >= peer.deadline && peer.session != nullptr) peer.session->Close();
  const auto too_late = [&](const ShmOpening& opening) {
    return absl::DeadlineExceededError(
        absl::StrCat("the node at ", opening.endpoint, " did not answer in time"));
  };
  for (auto it = peer.waiting.begin(); it != peer.waiting.end();) {
    if (now < (*it)->deadline) {
      ++it;
      continue;
    }
    absl::Status status = too_late(**it);
    Finish(std::move(*it), std::move(status));
    it = peer.waiting.erase(it);
  }
  for (auto it = peer.opening.begin(); it != peer.opening.end();) {
    if (now < it->second->deadline) {
      ++it;
      continue;
    }
    // The peer may have accepted it meanwhile.
    ShmMessage close;
    close.type = ShmMessageType::kClose;
    close.numbers[0] = it->first;
    peer.session->Send(std::move(close));
    absl::Status status = too_late(*it->second);
    Finish(std::move(it->second), std::move(status));
    it = peer.opening.erase(it);
  }
  // A handshake that nobody waits for any more.
  if (peer.initiator && peer.session != nullptr && peer.state != State::kReady && peer.waiting.empty()) {
    peer.session->Close();
  }
}

void ShmDaemon::EndPeer(Peer& peer) {
  if (peer.session != nullptr) {
    peer.session->Close();
    Watch(epoll_.get(), EPOLL_CTL_DEL, peer.session->socket(), 0);
    registry_->Unsubscribe(peer.session.get());
    peer.session->LoseAllConnections();
  }
  if (peer.failure.ok()) {
    peer.failure =
        absl::UnavailableError(absl::StrCat("the node at ", peer.endpoint, " has closed the connection"));
  }
  for (auto& opening : std::exchange(peer.waiting, {})) Finish(std::move(opening), peer.failure);
  for (auto& [id, opening] : std::exchange(peer.opening, {})) Finish(std::move(opening), peer.failure);
}

void ShmDaemon::Finish(std::unique_ptr<ShmOpening> opening, absl::Status status) {
  EventLoop* loop = opening->loop;
  // std::function wants a copyable target.
  auto shared = std::make_shared<std::unique_ptr<ShmOpening>>(std::move(opening));
  loop->Post([shared, status = std::move(status)] {
    std::unique_ptr<ShmOpening> done = std::move(*shared);
    if (status.ok()) {
      done->done(std::unique_ptr<Connection>(std::move(done->connection)));
    } else {
      done->connection.reset();
      done->done(status);
    }
  });
}

}  // namespace furrow::rdma
