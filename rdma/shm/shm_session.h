// ShmSession: the socket between two fabrics, with what both sides' threads need of it: sending, reading the
// news about memory, the connections that hang on it. The handshake and everything else is the daemon's
// (shm_daemon.h).
//
// Thread-safe where not said otherwise. Locks: registry -> io -> remote memory; connections -> queue.
#ifndef FURROW_RDMA_SHM_SHM_SESSION_H_
#define FURROW_RDMA_SHM_SHM_SESSION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "rdma/shm/shm_remote.h"
#include "rdma/shm/shm_wire.h"

namespace furrow::rdma {

class ShmConnection;

class ShmSession {
 public:
  // Messages that wait for room in the socket. A peer that lets more pile up (it is stopped for long while
  // much is registered and deregistered) is cut off.
  static constexpr size_t kMaxQueued = 1 << 16;

  // `watch(true)`: the socket is to be watched for room; `wake`: TakeMessages() or closed() has something for
  // the fabric's thread. Both are thread-safe.
  ShmSession(Fd socket, std::function<void(bool)> watch, std::function<void()> wake);

  int socket() const { return socket_.get(); }
  // Queues if the socket is full. Messages to a closed session are dropped.
  void Send(ShmMessage message);
  // The socket has room again.
  void Flush();
  // Reads what has arrived. News about memory is applied here; the rest is kept for TakeMessages().
  void Drain();
  std::vector<ShmMessage> TakeMessages();
  // From here on Drain() applies news to `remote`; what it had kept so far, the caller applies.
  void SetRemote(std::shared_ptr<RemoteMemory> remote);
  std::shared_ptr<RemoteMemory> remote() const;
  void WaitReadable(int milliseconds) const;
  // Ends the session as seen by both sides.
  void Close();
  bool closed() const;

  // --- connections ---
  void AddConnection(uint32_t id, ShmConnection* connection);
  // False if it was not there (any more).
  bool RemoveConnection(uint32_t id);
  // The peer of this connection is gone: marks it and tells its queue.
  void LoseConnection(uint32_t id);
  void LoseAllConnections();

  // Applies a kMemory or kForget message; false for a malformed one.
  static bool ApplyNews(const ShmMessage& message, RemoteMemory& remote);

 private:
  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(io_mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(io_mutex_);

  const Fd socket_;
  const std::function<void(bool)> watch_;
  const std::function<void()> wake_;

  mutable Mutex io_mutex_;
  std::deque<ShmMessage> outgoing_ ABSL_GUARDED_BY(io_mutex_);
  std::vector<ShmMessage> incoming_ ABSL_GUARDED_BY(io_mutex_);
  bool news_incoming_ ABSL_GUARDED_BY(io_mutex_) =
      false;  // incoming_ holds news: later news queues behind it
  bool closed_ ABSL_GUARDED_BY(io_mutex_) = false;
  std::shared_ptr<RemoteMemory> remote_ ABSL_GUARDED_BY(io_mutex_);

  Mutex connections_mutex_;
  absl::flat_hash_map<uint32_t, ShmConnection*> connections_ ABSL_GUARDED_BY(connections_mutex_);
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_SESSION_H_
