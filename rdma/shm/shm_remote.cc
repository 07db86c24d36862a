#include "rdma/shm/shm_remote.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "rdma/shm/shm_session.h"

namespace furrow::rdma {

RemoteMemory::RemoteMemory(NodeId node, uint64_t instance, MemoryFile table)
    : node_(node),
      instance_(instance),
      table_(std::move(table)),
      regions_(new std::atomic<const RemoteRegion*>[kMaxRegistrations]()),
      last_generation_(kMaxRegistrations) {}

RemoteMemory::~RemoteMemory() {
  for (uint32_t slot = 0; slot < kMaxRegistrations; ++slot)
    delete regions_[slot].load(std::memory_order_acquire);
}

const RemoteRegion* RemoteMemory::FindSlowly(RemoteKey key) {
  std::vector<std::shared_ptr<ShmSession>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& weak : sessions_) {
      if (auto session = weak.lock()) sessions.push_back(std::move(session));
    }
  }
  for (int attempt = 0;; ++attempt) {
    for (const auto& session : sessions) session->Drain();
    if (const RemoteRegion* region = Find(key)) return region;
    const RegistrationWord word{TableWord(key.value() % kMaxRegistrations)};
    if (word.bits == 0 || word.key() != key || attempt == kPatience || sessions.empty()) return nullptr;
    sessions.front()->WaitReadable(/*milliseconds=*/2);
  }
}

void RemoteMemory::AddSession(const std::shared_ptr<ShmSession>& session) {
  MutexLock lock(&mutex_);
  std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
  sessions_.push_back(session);
}

std::shared_ptr<PostGuard> RemoteMemory::NewGuard() {
  auto guard = std::make_shared<PostGuard>();
  MutexLock lock(&mutex_);
  std::erase_if(guards_, [](const auto& weak) { return weak.expired(); });
  guards_.push_back(guard);
  return guard;
}

void RemoteMemory::Add(RegistrationWord word, uint64_t base, uint64_t bytes, const Fd& fd) {
  const uint32_t slot = word.slot();
  MutexLock lock(&mutex_);
  if (word.generation() <= last_generation_[slot]) return;
  last_generation_[slot] = word.generation();
  Retire(slot);
  auto region = std::make_unique<RemoteRegion>();
  region->word = word;
  region->base = base;
  region->bytes = bytes;
  absl::StatusOr<MemoryFile> mapping =
      MemoryFile::MapDescriptor(fd.get(), bytes, /*writable=*/Grants(word.access(), Access::kWrite));
  if (mapping.ok()) {
    region->mapping = *std::move(mapping);
    region->data = region->mapping.data();
  }
  regions_[slot].store(region.release(), std::memory_order_seq_cst);
}

void RemoteMemory::Forget(RegistrationWord word) {
  const uint32_t slot = word.slot();
  MutexLock lock(&mutex_);
  if (word.generation() < last_generation_[slot]) return;
  last_generation_[slot] = word.generation();
  Retire(slot);
}

void RemoteMemory::Retire(uint32_t slot) {
  const RemoteRegion* old = regions_[slot].exchange(nullptr, std::memory_order_seq_cst);
  if (old != nullptr) retired_.emplace_back(old);
}

void RemoteMemory::Reap() {
  std::vector<std::unique_ptr<const RemoteRegion>> retired;
  std::vector<std::shared_ptr<PostGuard>> guards;
  {
    MutexLock lock(&mutex_);
    if (retired_.empty()) return;
    retired.swap(retired_);
    for (const auto& weak : guards_) {
      if (auto guard = weak.lock()) guards.push_back(std::move(guard));
    }
  }
  // Without the lock: a connection inside Post() may be waiting for it.
  for (const auto& guard : guards) {
    const uint64_t seen = guard->entries.load(std::memory_order_seq_cst);
    while (seen % 2 == 1 && guard->entries.load(std::memory_order_seq_cst) == seen) sched_yield();
  }
}

}  // namespace furrow::rdma
