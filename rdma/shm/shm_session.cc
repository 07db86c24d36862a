#include "rdma/shm/shm_session.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "rdma/shm/shm_connection.h"

namespace furrow::rdma {
namespace {

bool IsNews(ShmMessageType type) {
  return type == ShmMessageType::kMemory || type == ShmMessageType::kForget;
}

}  // namespace

ShmSession::ShmSession(Fd socket, std::function<void(bool)> watch, std::function<void()> wake)
    : socket_(std::move(socket)), watch_(std::move(watch)), wake_(std::move(wake)) {}

void ShmSession::Send(ShmMessage message) {
  MutexLock lock(&io_mutex_);
  if (closed_) return;
  const bool was_empty = outgoing_.empty();
  if (outgoing_.size() == kMaxQueued) {
    CloseLocked();
    return;
  }
  outgoing_.push_back(std::move(message));
  if (was_empty) FlushLocked();
  if (was_empty && !outgoing_.empty()) watch_(true);
}

void ShmSession::Flush() {
  MutexLock lock(&io_mutex_);
  if (closed_ || outgoing_.empty()) return;
  FlushLocked();
  if (outgoing_.empty()) watch_(false);
}

void ShmSession::FlushLocked() {
  while (!outgoing_.empty()) {
    switch (SendMessage(socket_.get(), outgoing_.front())) {
      case SocketResult::kOk:
        outgoing_.pop_front();
        break;
      case SocketResult::kWouldBlock:
        return;
      default:
        // The peer has closed its end. What it said before is still to be read, so Drain() will end the
        // session.
        outgoing_.clear();
        return;
    }
  }
}

void ShmSession::Drain() {
  MutexLock lock(&io_mutex_);
  bool for_daemon = false;
  while (!closed_) {
    ShmMessage message;
    const SocketResult result = ReceiveMessage(socket_.get(), message);
    if (result == SocketResult::kWouldBlock) break;
    if (result != SocketResult::kOk) {
      CloseLocked();
      break;
    }
    const bool news = IsNews(message.type);
    if (news && remote_ != nullptr && !news_incoming_) {
      if (!ApplyNews(message, *remote_)) CloseLocked();
      for_daemon |= message.type == ShmMessageType::kForget;  // there is something to unmap
      continue;
    }
    news_incoming_ |= news;
    incoming_.push_back(std::move(message));
    for_daemon = true;
  }
  if (for_daemon) wake_();
}

std::vector<ShmMessage> ShmSession::TakeMessages() {
  MutexLock lock(&io_mutex_);
  // News that arrives while the caller applies these must not overtake them: news_incoming_ stays until a
  // call finds nothing.
  if (incoming_.empty()) news_incoming_ = false;
  return std::exchange(incoming_, {});
}

void ShmSession::SetRemote(std::shared_ptr<RemoteMemory> remote) {
  MutexLock lock(&io_mutex_);
  remote_ = std::move(remote);
}

std::shared_ptr<RemoteMemory> ShmSession::remote() const {
  MutexLock lock(&io_mutex_);
  return remote_;
}

void ShmSession::WaitReadable(int milliseconds) const {
  pollfd wait = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  (void)poll(&wait, 1, milliseconds);
}

void ShmSession::Close() {
  MutexLock lock(&io_mutex_);
  CloseLocked();
}

void ShmSession::CloseLocked() {
  if (closed_) return;
  closed_ = true;
  outgoing_.clear();
  shutdown(socket_.get(), SHUT_RDWR);
  wake_();
}

bool ShmSession::closed() const {
  MutexLock lock(&io_mutex_);
  return closed_;
}

void ShmSession::AddConnection(uint32_t id, ShmConnection* connection) {
  MutexLock lock(&connections_mutex_);
  connections_[id] = connection;
}

bool ShmSession::RemoveConnection(uint32_t id) {
  MutexLock lock(&connections_mutex_);
  return connections_.erase(id) > 0;
}

void ShmSession::LoseConnection(uint32_t id) {
  MutexLock lock(&connections_mutex_);
  auto it = connections_.find(id);
  if (it != connections_.end()) it->second->LosePeer();
}

void ShmSession::LoseAllConnections() {
  MutexLock lock(&connections_mutex_);
  for (auto& [id, connection] : connections_) connection->LosePeer();
}

bool ShmSession::ApplyNews(const ShmMessage& message, RemoteMemory& remote) {
  const RegistrationWord word{message.numbers[0]};
  if (word.generation() == 0) return false;
  if (message.type == ShmMessageType::kForget) {
    remote.Forget(word);
    return true;
  }
  const uint64_t base = message.numbers[1], bytes = message.numbers[2];
  if (message.fds.size() != 1 || bytes == 0 || base + bytes < base) return false;
  remote.Add(word, base, bytes, message.fds[0]);
  return true;
}

}  // namespace furrow::rdma
