// VerbsQueue: a completion queue of the verbs provider. It has two of the device's: one for the ends of its
// own requests, one for what peers do, on one completion channel. So a parked owner sleeps through what is
// not meant to wake it:
//
//   queue      armed for               wakes on
//   sends      any completion          the end of a request that asked for it, every failure. Not armed while
//                                      nothing is under way
//   receives   solicited ones only     waking notifications, SENDs, credits that a peer waits for, failures.
//                                      A quiet notification waits there until the owner polls
//
// The device's queues hold every completion that the connections can have outstanding (each reserves its
// share, and the queues grow with them): they never overflow.
#ifndef FURROW_RDMA_VERBS_VERBS_QUEUE_H_
#define FURROW_RDMA_VERBS_VERBS_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd_parker.h"
#include "base/mutex.h"
#include "rdma/completion_ring.h"
#include "rdma/fabric.h"
#include "rdma/verbs/verbs_device.h"
#include "rdma/verbs/verbs_memory.h"
#include "rdma/verbs/verbs_options.h"

struct ibv_comp_channel;
struct ibv_cq;
struct ibv_pd;
struct ibv_td;
struct ibv_wc;

namespace furrow::rdma {

class VerbsConnection;
class VerbsQueue;

// Of a fabric.
struct VerbsCounters {
  std::atomic<uint64_t> queue_pairs{0};  // there are now
  std::atomic<uint64_t> sessions{0};     // there are now
  std::atomic<uint64_t> manager_ids{0};  // of the connection manager, there are now
  std::atomic<uint64_t> failures{0};     // first failures of connections
  std::atomic<uint64_t> flushed{0};      // requests behind them
};

// What all parts of a fabric share.
struct VerbsParts {
  VerbsOptions options;
  std::unique_ptr<VerbsDevice> device;
  std::shared_ptr<VerbsMemory> memory;  // dies before the device
  VerbsCounters counters;
};

class VerbsParker final : public FdParker {
 public:
  explicit VerbsParker(VerbsQueue& queue) : queue_(queue) {}

 protected:
  bool Arm() override;

 private:
  VerbsQueue& queue_;
};

class VerbsQueue {
 public:
  static constexpr size_t kMaxConnections = 1024;

  static absl::StatusOr<std::shared_ptr<VerbsQueue>> Make(std::shared_ptr<VerbsParts> parts);
  ~VerbsQueue();

  // --- owner thread ---
  size_t Poll(std::span<Completion> completions);
  std::unique_ptr<Connection> TakeAccepted(Connection* connection);
  VerbsParker& parker() { return parker_; }
  void Push(const Completion& completion) { ready_.Push(completion); }
  LocalKeys& keys() { return keys_; }
  // When the last poll found something.
  Nanos now() const { return now_; }
  // The connection has something to do that did not fit: the next Poll() calls its Serve().
  void ServeLater(uint32_t slot) { serve_.push_back(slot); }
  // The connection's queue pair is gone: its EndRest() is called when the device's queue has been seen empty.
  void EndRestLater(uint32_t slot) { orphans_.push_back(slot); }
  // The device has so many requests more, or less.
  void AddUnderWay(int64_t requests) { under_way_ += requests; }
  // Ends what AddConnection() began: nothing comes for the connection any more. On any thread for one that
  // was never established.
  void RemoveConnection(uint32_t slot, const VerbsConnection* connection);
  // The owner of the CompletionQueue lets go: connections that nobody took are destroyed.
  void Close();
  // All connections lose their queue pairs, as those of a killed process do. For tests.
  void Kill();
  // For the parker. False: the device does not do it.
  bool Arm();

  // --- any thread ---
  // Gives the connection a slot and reserves room for its completions. ResourceExhausted: there is none.
  absl::StatusOr<uint32_t> AddConnection(VerbsConnection* connection, uint32_t sends, uint32_t receives);
  // What a device's completion carries to find the connection again, for a request number's lower half.
  uint64_t WorkId(uint32_t slot) const;
  // The peer's connection is there; it becomes the owner's when that is announced, and is destroyed on its
  // thread. Gives it back if the queue is closed.
  std::unique_ptr<VerbsConnection> Adopt(std::unique_ptr<VerbsConnection> connection);
  void PushConnected(VerbsConnection* connection);
  void PushDisconnected(VerbsConnection* connection);

  const std::shared_ptr<VerbsParts>& parts() const { return parts_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* sends() const { return sends_.cq; }
  ibv_cq* receives() const { return receives_.cq; }

 private:
  struct Event {
    Completion::Kind kind;
    VerbsConnection* connection;
  };
  // One of the device's queues. `reserved` counts what connections may have outstanding; what a destroyed one
  // had comes free when the queue has been seen empty after that.
  struct DeviceQueue {
    ibv_cq* cq = nullptr;
    uint64_t reserved = 0;
    uint64_t leaving = 0;
  };
  explicit VerbsQueue(std::shared_ptr<VerbsParts> parts);
  absl::Status Open();
  absl::Status Open(DeviceQueue& queue);
  absl::Status Reserve(DeviceQueue& queue, uint64_t entries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Gather();
  void Lose(VerbsConnection* connection);
  bool PollSends();
  bool PollReceives();
  // Entries that the device gave; fewer than asked for: it has no more.
  size_t PollDevice(DeviceQueue& queue, std::span<ibv_wc> entries);
  VerbsConnection* Find(uint64_t work_id) const;
  void ServeConnections();
  void TakeEvents();
  void PushEvent(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<VerbsParts> parts_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_td* thread_domain_ = nullptr;  // null: the device has none
  ibv_pd* domain_ = nullptr;         // the fabric's, or one of this thread's within it
  DeviceQueue sends_;
  DeviceQueue receives_;
  VerbsParker parker_;

  // Owner thread only.
  CompletionRing ready_;
  LocalKeys keys_;
  Nanos now_ = 0;
  int64_t under_way_ = 0;
  std::vector<uint32_t> serve_;
  std::vector<uint32_t> serving_;
  std::vector<uint32_t> orphans_;
  std::vector<VerbsConnection*> received_;  // of the batch in hand

  // By slot. Set by whoever adds a connection, before the device can know it; cleared by the owner.
  struct Slot {
    std::atomic<VerbsConnection*> connection{nullptr};
    std::atomic<uint16_t> generation{0};
  };
  std::unique_ptr<Slot[]> slots_;
  std::atomic<bool> has_events_{false};
  std::atomic<bool> leaving_{false};  // some DeviceQueue has `leaving`

  mutable Mutex mutex_;
  uint32_t next_slot_ ABSL_GUARDED_BY(mutex_) = 0;  // never used before
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);  // at most two per connection
  std::vector<std::unique_ptr<VerbsConnection>> accepted_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_QUEUE_H_
