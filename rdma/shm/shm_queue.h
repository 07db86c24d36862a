// ShmQueue: a completion queue of the shm provider. Requests end inside Post(), which puts their completions
// here; what peers do arrives through the doorbells (shm_layout.h); what the fabric's thread learns arrives
// as events.
#ifndef FURROW_RDMA_SHM_SHM_QUEUE_H_
#define FURROW_RDMA_SHM_SHM_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/event_loop.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "rdma/completion_ring.h"
#include "rdma/fabric.h"
#include "rdma/shm/shm_layout.h"
#include "rdma/shm/shm_registry.h"

namespace furrow::rdma {

class ShmConnection;

// Sleeps on the doorbells' parking word.
class ShmParker final : public Parker {
 public:
  explicit ShmParker(uint32_t* word) : word_(word) {}
  void PrepareToPark() override;
  void CancelPark() override;
  void Park(Nanos deadline) override;
  void Wake() override { WakeParked(word_); }
  const uint32_t* word() const { return word_; }
  // Of any process.
  static void WakeParked(uint32_t* word);

 private:
  uint32_t* const word_;
};

class ShmQueue {
 public:
  // `registry` outlives the queue.
  static absl::StatusOr<std::shared_ptr<ShmQueue>> Make(std::shared_ptr<ShmRegistry> registry);
  ~ShmQueue();

  // --- owner thread ---
  size_t Poll(std::span<Completion> completions);
  std::unique_ptr<Connection> TakeAccepted(Connection* connection);
  ShmParker& parker() { return parker_; }
  void Push(const Completion& completion) { ready_.Push(completion); }
  // True if `bytes` lie in memory registered here.
  bool IsLocal(std::span<const std::byte> bytes) {
    if (last_range_.begin <= bytes.data() && bytes.data() + bytes.size() <= last_range_.end &&
        registry_->version() == ranges_version_) [[likely]] {
      return true;
    }
    return FindRange(bytes);
  }
  // Ends what AddConnection() began: nothing comes for the connection any more.
  void RemoveConnection(uint32_t slot, const ShmConnection* connection);
  // The owner of the CompletionQueue lets go: connections that nobody took are destroyed.
  void Close();

  // --- any thread ---
  // Gives the connection a doorbell slot. ResourceExhausted: all are taken.
  absl::StatusOr<uint32_t> AddConnection(ShmConnection* connection);
  void PushConnected(std::unique_ptr<ShmConnection> connection);
  void PushDisconnected(ShmConnection* connection);
  const MemoryFile& doorbells_file() const { return doorbells_file_; }

 private:
  struct Event {
    Completion::Kind kind;
    ShmConnection* connection;
  };
  ShmQueue(std::shared_ptr<ShmRegistry> registry, MemoryFile doorbells);
  QueueDoorbells* doorbells() const { return reinterpret_cast<QueueDoorbells*>(doorbells_file_.data()); }
  bool Rung() const;
  void Gather();
  void Sweep(uint32_t slot);
  bool FindRange(std::span<const std::byte> bytes);
  void PushEvent(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ShmRegistry> registry_;
  const MemoryFile doorbells_file_;
  ShmParker parker_;

  // Owner thread only.
  CompletionRing ready_;
  std::vector<LocalRange> ranges_;
  uint64_t ranges_version_ = 0;
  LocalRange last_range_ = {nullptr, nullptr};

  // Set by whoever adds a connection, before its peer learns of it; cleared by the owner.
  std::unique_ptr<std::atomic<ShmConnection*>[]> connections_;  // by slot
  std::atomic<uint32_t> summary_words_{0};                      // those of the slots ever used
  std::atomic<bool> has_events_{false};

  Mutex mutex_;
  uint32_t next_slot_ ABSL_GUARDED_BY(mutex_) = 0;           // never used before
  std::deque<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);  // the longest free first
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);        // at most two per connection
  std::vector<std::unique_ptr<ShmConnection>> accepted_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_QUEUE_H_
