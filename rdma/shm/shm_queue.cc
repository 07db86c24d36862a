#include "rdma/shm/shm_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/futex.h"
#include "base/status_macros.h"
#include "rdma/shm/shm_connection.h"

namespace furrow::rdma {
namespace {

constexpr uint32_t kAwake = 0;
constexpr uint32_t kParking = 1;

}  // namespace

void ShmParker::PrepareToPark() { __atomic_exchange_n(word_, kParking, __ATOMIC_SEQ_CST); }
void ShmParker::CancelPark() { __atomic_exchange_n(word_, kAwake, __ATOMIC_SEQ_CST); }
void ShmParker::Park(Nanos deadline) {
  while (FutexWait(word_, kParking, deadline) == FutexResult::kWoken &&
         __atomic_load_n(word_, __ATOMIC_SEQ_CST) == kParking) {
  }
  CancelPark();
}
void ShmParker::WakeParked(uint32_t* word) {
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == kParking &&
      __atomic_exchange_n(word, kAwake, __ATOMIC_SEQ_CST) == kParking) {
    FutexWake(word);
  }
}

absl::StatusOr<std::shared_ptr<ShmQueue>> ShmQueue::Make(std::shared_ptr<ShmRegistry> registry) {
  FURROW_ASSIGN_OR_RETURN(MemoryFile file, MemoryFile::Anonymous(sizeof(QueueDoorbells)));
  return std::shared_ptr<ShmQueue>(new ShmQueue(std::move(registry), std::move(file)));
}

ShmQueue::ShmQueue(std::shared_ptr<ShmRegistry> registry, MemoryFile file)
    : registry_(std::move(registry)),
      doorbells_file_(std::move(file)),
      parker_(&doorbells()->parking),
      connections_(new std::atomic<ShmConnection*>[kMaxConnectionsPerQueue]()) {}

ShmQueue::~ShmQueue() = default;

void ShmQueue::Close() {
  std::vector<std::unique_ptr<ShmConnection>> untaken;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    untaken.swap(accepted_);
  }
}

absl::StatusOr<uint32_t> ShmQueue::AddConnection(ShmConnection* connection) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::FailedPreconditionError("the completion queue has been destroyed");
  uint32_t slot;
  // A slot rests as long as possible: its former peer may still ring it.
  if (next_slot_ < kMaxConnectionsPerQueue) {
    slot = next_slot_++;
    summary_words_.store((slot + 64) / 64, std::memory_order_release);
  } else if (!free_slots_.empty()) {
    slot = free_slots_.front();
    free_slots_.pop_front();
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat("the completion queue has ", kMaxConnectionsPerQueue, " connections, its maximum"));
  }
  connections_[slot].store(connection, std::memory_order_release);
  return slot;
}

void ShmQueue::RemoveConnection(uint32_t slot, const ShmConnection* connection) {
  ready_.Forget(connection);
  connections_[slot].store(nullptr, std::memory_order_release);
  MutexLock lock(&mutex_);
  std::erase_if(events_, [connection](const Event& e) { return e.connection == connection; });
  free_slots_.push_back(slot);
}

void ShmQueue::PushEvent(Event event) {
  events_.push_back(event);
  has_events_.store(true, std::memory_order_seq_cst);
}

void ShmQueue::PushConnected(std::unique_ptr<ShmConnection> connection) {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;  // `connection` goes with the queue's others, after the lock
    PushEvent({Completion::Kind::kConnected, connection.get()});
    accepted_.push_back(std::move(connection));
  }
  parker_.Wake();
}

void ShmQueue::PushDisconnected(ShmConnection* connection) {
  {
    MutexLock lock(&mutex_);
    PushEvent({Completion::Kind::kDisconnected, connection});
  }
  parker_.Wake();
}

std::unique_ptr<Connection> ShmQueue::TakeAccepted(Connection* connection) {
  MutexLock lock(&mutex_);
  for (auto it = accepted_.begin(); it != accepted_.end(); ++it) {
    if (it->get() != connection) continue;
    std::unique_ptr<Connection> taken = std::move(*it);
    accepted_.erase(it);
    return taken;
  }
  return nullptr;
}

bool ShmQueue::Rung() const {
  const uint32_t words = summary_words_.load(std::memory_order_acquire);
  for (uint32_t w = 0; w < words; ++w) {
    if (__atomic_load_n(&doorbells()->summary[w], __ATOMIC_SEQ_CST) != 0) return true;
  }
  return false;
}

size_t ShmQueue::Poll(std::span<Completion> completions) {
  if (has_events_.load(std::memory_order_seq_cst) || Rung()) [[unlikely]]
    Gather();
  const size_t count = std::min(completions.size(), ready_.size());
  for (size_t i = 0; i < count; ++i) {
    completions[i] = ready_.front();
    ready_.Pop();
    if (completions[i].kind == Completion::Kind::kRequest) {
      static_cast<ShmConnection*>(completions[i].connection)->OnPolled();
    }
  }
  return count;
}

// In the order in which an owner can make use of it: a connection before its notifications, and the end of a
// peer after all that it did before.
void ShmQueue::Gather() {
  std::vector<Event> events;
  if (has_events_.exchange(false, std::memory_order_seq_cst)) {
    MutexLock lock(&mutex_);
    events.swap(events_);
  }
  for (const Event& event : events) {
    if (event.kind == Completion::Kind::kConnected) {
      Push({.kind = event.kind, .connection = event.connection});
    }
  }
  const uint32_t words = summary_words_.load(std::memory_order_acquire);
  for (uint32_t w = 0; w < words; ++w) {
    uint64_t* word = &doorbells()->summary[w];
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) continue;
    for (uint64_t bits = __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST); bits != 0; bits &= bits - 1) {
      Sweep(w * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  for (const Event& event : events) {
    if (event.kind != Completion::Kind::kDisconnected) continue;
    Sweep(event.connection->slot());
    Push({.kind = event.kind, .connection = event.connection});
  }
}

void ShmQueue::Sweep(uint32_t slot) {
  ConnectionSlot& shared = doorbells()->slots[slot];
  uint64_t channels = __atomic_exchange_n(&shared.channels, 0, __ATOMIC_SEQ_CST);
  const uint64_t sends = __atomic_exchange_n(&shared.sends, 0, __ATOMIC_SEQ_CST);
  ShmConnection* connection = connections_[slot].load(std::memory_order_acquire);
  if (connection == nullptr) return;  // a former peer's ring
  for (; channels != 0; channels &= channels - 1) {
    Push({.kind = Completion::Kind::kNotified,
          .channel = static_cast<uint8_t>(std::countr_zero(channels)),
          .connection = connection});
  }
  if (sends != 0) connection->ReceiveArrived();
}

bool ShmQueue::FindRange(std::span<const std::byte> bytes) {
  if (const uint64_t version = registry_->version(); version != ranges_version_) {
    ranges_ = registry_->ranges();
    ranges_version_ = version;
    last_range_ = {nullptr, nullptr};
  }
  auto it = std::upper_bound(ranges_.begin(), ranges_.end(), bytes.data(),
                             [](const std::byte* at, const LocalRange& range) { return at < range.begin; });
  if (it == ranges_.begin()) return false;
  --it;
  if (bytes.size() > static_cast<size_t>(it->end - bytes.data()) || bytes.data() >= it->end) return false;
  last_range_ = *it;
  return true;
}

}  // namespace furrow::rdma
