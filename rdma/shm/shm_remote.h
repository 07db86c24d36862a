// RemoteMemory: the registered memory of one peer process as this process has it mapped. Shared by all
// connections to that peer, so that each region is mapped (and its pages are faulted in) once per process.
//
// Finding a region is lock-free. A region that the peer forgets is taken out at once and unmapped when no
// connection is inside a Post() that might still use it: each connection has a PostGuard, odd while it posts.
#ifndef FURROW_RDMA_SHM_SHM_REMOTE_H_
#define FURROW_RDMA_SHM_SHM_REMOTE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "rdma/shm/shm_layout.h"
#include "rdma/shm/shm_wire.h"

namespace furrow::rdma {

class ShmSession;

struct alignas(64) PostGuard {
  std::atomic<uint64_t> entries{0};  // odd: inside Post(); written by the connection's thread only
  void Enter() { entries.store(entries.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }
  void Leave() { entries.store(entries.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
};

struct RemoteRegion {
  RegistrationWord word;
  uint64_t base = 0;  // in the owner's numbering
  uint64_t bytes = 0;
  std::byte* data = nullptr;  // null: it could not be mapped here
  MemoryFile mapping;
};

class RemoteMemory {
 public:
  // `table`: the peer's RegistrationTable, mapped read-only.
  RemoteMemory(NodeId node, uint64_t instance, MemoryFile table);
  ~RemoteMemory();

  NodeId node() const { return node_; }
  uint64_t instance() const { return instance_; }

  // --- a connection's thread, inside its PostGuard ---
  const RemoteRegion* Find(RemoteKey key) const {
    const RemoteRegion* region = regions_[key.value() % kMaxRegistrations].load(std::memory_order_seq_cst);
    return region != nullptr && region->word.key() == key ? region : nullptr;
  }
  // False once the owner has deregistered it.
  bool Alive(const RemoteRegion& region) const { return TableWord(region.word.slot()) == region.word.bits; }
  // Find() after reading the news that lie in the sockets; waits for those of a registration that the table
  // knows, at most kPatience times two milliseconds.
  const RemoteRegion* FindSlowly(RemoteKey key);

  // --- any thread ---
  void AddSession(const std::shared_ptr<ShmSession>& session);
  std::shared_ptr<PostGuard> NewGuard();
  // News of the owner. The same may come through several sessions: generations tell.
  void Add(RegistrationWord word, uint64_t base, uint64_t bytes, const Fd& fd);
  void Forget(RegistrationWord word);

  // --- the fabric's thread ---
  // Unmaps what was forgotten.
  void Reap();

 private:
  static constexpr int kPatience = 100;
  uint64_t TableWord(uint32_t slot) const {
    return __atomic_load_n(&reinterpret_cast<const RegistrationTable*>(table_.data())->words[slot],
                           __ATOMIC_ACQUIRE);
  }
  void Retire(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeId node_;
  const uint64_t instance_;
  const MemoryFile table_;
  std::unique_ptr<std::atomic<const RemoteRegion*>[]> regions_;

  Mutex mutex_;
  std::vector<uint32_t> last_generation_ ABSL_GUARDED_BY(mutex_);  // by slot: the newest that was heard of
  std::vector<std::unique_ptr<const RemoteRegion>> retired_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<ShmSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<PostGuard>> guards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_REMOTE_H_
