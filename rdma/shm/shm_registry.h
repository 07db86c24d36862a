// ShmRegistry: what this fabric has registered: the table that peers read, the descriptors that they are
// sent, and the ranges that local buffers of requests must lie in. Thread-safe.
#ifndef FURROW_RDMA_SHM_SHM_REGISTRY_H_
#define FURROW_RDMA_SHM_SHM_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "rdma/shm/shm_layout.h"
#include "rdma/shm/shm_wire.h"

namespace furrow::rdma {

class ShmSession;

struct LocalRange {
  const std::byte* begin;
  const std::byte* end;
};

class ShmRegistry {
 public:
  static absl::StatusOr<std::unique_ptr<ShmRegistry>> Make();

  // Makes the memory known to all subscribed peers before it returns, or queues the news for those whose
  // socket is full. ResourceExhausted: kMaxRegistrations are alive.
  absl::StatusOr<RegistrationWord> Add(const MemoryFile& file, Access access);
  // From the return on peers' new requests fail; one that has begun its copy may still end it.
  void Remove(RegistrationWord word);

  // The peer of `session` learns of all registrations, now and later.
  void Subscribe(std::shared_ptr<ShmSession> session);
  void Unsubscribe(const ShmSession* session);

  // A descriptor of the table that can only be read.
  absl::StatusOr<Fd> TableDescriptor() const;

  // Grows with each change of ranges().
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // Registered local memory, sorted, overlapping ranges joined.
  std::vector<LocalRange> ranges() const;

 private:
  struct Registration {
    RegistrationWord word;  // bits 0: free
    LocalRange range = {};
    Fd fd;  // with the rights that peers get; none for Access::kNone
  };
  explicit ShmRegistry(MemoryFile table);
  uint64_t* word_at(uint32_t slot);
  absl::StatusOr<ShmMessage> MemoryMessage(const Registration& registration) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MemoryFile table_;
  std::atomic<uint64_t> version_{1};
  mutable Mutex mutex_;
  uint32_t next_generation_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Registration> registrations_ ABSL_GUARDED_BY(mutex_);  // by slot
  std::deque<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);          // the longest free first
  std::vector<std::shared_ptr<ShmSession>> subscribers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_REGISTRY_H_
