#include "rdma/verbs/verbs_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

constexpr size_t kBatch = 32;
constexpr uint64_t kFirstEntries = 1024;
constexpr uint64_t kFixedEntries = 65'536;

}  // namespace

bool VerbsParker::Arm() { return queue_.Arm(); }

VerbsQueue::VerbsQueue(std::shared_ptr<VerbsParts> parts)
    : parts_(std::move(parts)), parker_(*this), keys_(parts_->memory), slots_(new Slot[kMaxConnections]) {}

absl::StatusOr<std::shared_ptr<VerbsQueue>> VerbsQueue::Make(std::shared_ptr<VerbsParts> parts) {
  std::shared_ptr<VerbsQueue> queue(new VerbsQueue(std::move(parts)));
  FURROW_RETURN_IF_ERROR(queue->Open());
  return queue;
}

absl::Status VerbsQueue::Open() {
  const VerbsDevice& device = *parts_->device;
  channel_ = ibv_create_comp_channel(device.context());
  if (channel_ == nullptr) return CallFailed("ibv_create_comp_channel", errno);
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return CallFailed("fcntl(O_NONBLOCK) of a completion channel", errno);
  }
  FURROW_RETURN_IF_ERROR(parker_.Open(channel_->fd));
  for (DeviceQueue* queue : {&sends_, &receives_}) FURROW_RETURN_IF_ERROR(Open(*queue));
  // Cards keep doorbells of one thread apart from those of others in a thread domain; Soft-RoCE has none.
  domain_ = device.domain();
  ibv_td_init_attr td = {};
  thread_domain_ = ibv_alloc_td(device.context(), &td);
  if (thread_domain_ != nullptr) {
    ibv_parent_domain_init_attr parent = {};
    parent.pd = device.domain();
    parent.td = thread_domain_;
    ibv_pd* domain = ibv_alloc_parent_domain(device.context(), &parent);
    if (domain != nullptr) domain_ = domain;
  }
  return absl::OkStatus();
}

absl::Status VerbsQueue::Open(DeviceQueue& queue) {
  const VerbsDevice& device = *parts_->device;
  // Where it cannot grow, it is large from the beginning.
  for (const uint64_t wanted : {kFirstEntries, kFixedEntries}) {
    const auto entries = static_cast<int>(std::min<uint64_t>(wanted, device.limits().completions));
    queue.cq = ibv_create_cq(device.context(), entries, nullptr, channel_, 0);
    if (queue.cq == nullptr) return CompletionQueueRefused(errno, static_cast<uint64_t>(entries), UINT64_MAX);
    if (wanted == kFixedEntries || ibv_resize_cq(queue.cq, entries) == 0) break;
    ibv_destroy_cq(std::exchange(queue.cq, nullptr));
  }
  return absl::OkStatus();
}

VerbsQueue::~VerbsQueue() {
  for (DeviceQueue* queue : {&sends_, &receives_}) {
    if (queue->cq == nullptr) continue;
    if (int error = ibv_destroy_cq(queue->cq); error != 0) {
      FURROW_LOG(ERROR) << CallFailed("ibv_destroy_cq", error).message();
    }
  }
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (domain_ != nullptr && domain_ != parts_->device->domain()) ibv_dealloc_pd(domain_);
  if (thread_domain_ != nullptr) ibv_dealloc_td(thread_domain_);
}

void VerbsQueue::Close() {
  std::vector<std::unique_ptr<VerbsConnection>> untaken;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    untaken.swap(accepted_);
  }
}

void VerbsQueue::Kill() {
  for (size_t i = 0; i < kMaxConnections; ++i) {
    VerbsConnection* connection = slots_[i].connection.load(std::memory_order_acquire);
    if (connection != nullptr) connection->Die();
  }
}

// --- connections ---

absl::Status VerbsQueue::Reserve(DeviceQueue& queue, uint64_t entries) {
  const uint64_t need = queue.reserved + entries;
  const uint64_t most = parts_->device->limits().completions;
  if (need > static_cast<uint64_t>(queue.cq->cqe)) {
    if (need > most) return CompletionQueueRefused(0, need, most);
    const int larger =
        static_cast<int>(std::min(most, std::max<uint64_t>(need, 2 * uint64_t(queue.cq->cqe))));
    if (int error = ibv_resize_cq(queue.cq, larger); error != 0) {
      if (error == EOPNOTSUPP || error == ENOSYS) {
        return CompletionQueueRefused(0, need, static_cast<uint64_t>(queue.cq->cqe));
      }
      return CompletionQueueRefused(error, static_cast<uint64_t>(larger), most);
    }
  }
  queue.reserved = need;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> VerbsQueue::AddConnection(VerbsConnection* connection, uint32_t sends,
                                                   uint32_t receives) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::FailedPreconditionError("the completion queue has been destroyed");
  if (next_slot_ == kMaxConnections && free_slots_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the completion queue has ", kMaxConnections, " connections, its maximum"));
  }
  FURROW_RETURN_IF_ERROR(Reserve(sends_, sends));
  if (absl::Status status = Reserve(receives_, receives); !status.ok()) {
    sends_.reserved -= sends;
    return status;
  }
  uint32_t slot;
  if (next_slot_ < kMaxConnections) {
    slot = next_slot_++;
  } else {
    slot = free_slots_.front();
    free_slots_.erase(free_slots_.begin());
  }
  slots_[slot].generation.fetch_add(1, std::memory_order_relaxed);
  slots_[slot].connection.store(connection, std::memory_order_release);
  return slot;
}

uint64_t VerbsQueue::WorkId(uint32_t slot) const {
  return uint64_t{slot} << 48 | uint64_t{slots_[slot].generation.load(std::memory_order_relaxed)} << 32;
}

VerbsConnection* VerbsQueue::Find(uint64_t work_id) const {
  const Slot& slot = slots_[work_id >> 48];
  VerbsConnection* connection = slot.connection.load(std::memory_order_acquire);
  // Completions of a destroyed queue pair may be in the device's queue still.
  if (static_cast<uint16_t>(work_id >> 32) != slot.generation.load(std::memory_order_relaxed)) return nullptr;
  return connection;
}

void VerbsQueue::RemoveConnection(uint32_t slot, const VerbsConnection* connection) {
  if (connection->established()) {
    ready_.Forget(connection);
    std::erase(received_, connection);
  }
  slots_[slot].connection.store(nullptr, std::memory_order_release);
  MutexLock lock(&mutex_);
  std::erase_if(events_, [connection](const Event& e) { return e.connection == connection; });
  free_slots_.push_back(slot);
  sends_.leaving += connection->send_entries();
  receives_.leaving += connection->receive_entries();
  leaving_.store(true, std::memory_order_relaxed);
}

std::unique_ptr<VerbsConnection> VerbsQueue::Adopt(std::unique_ptr<VerbsConnection> connection) {
  MutexLock lock(&mutex_);
  if (closed_) return connection;
  accepted_.push_back(std::move(connection));
  return nullptr;
}

void VerbsQueue::PushEvent(Event event) {
  events_.push_back(event);
  has_events_.store(true, std::memory_order_seq_cst);
}

void VerbsQueue::PushConnected(VerbsConnection* connection) {
  {
    MutexLock lock(&mutex_);
    PushEvent({Completion::Kind::kConnected, connection});
  }
  parker_.Wake();
}

void VerbsQueue::PushDisconnected(VerbsConnection* connection) {
  {
    MutexLock lock(&mutex_);
    PushEvent({Completion::Kind::kDisconnected, connection});
  }
  parker_.Wake();
}

std::unique_ptr<Connection> VerbsQueue::TakeAccepted(Connection* connection) {
  MutexLock lock(&mutex_);
  for (auto it = accepted_.begin(); it != accepted_.end(); ++it) {
    if (it->get() != connection) continue;
    std::unique_ptr<Connection> taken = std::move(*it);
    accepted_.erase(it);
    return taken;
  }
  return nullptr;
}

// --- completions ---

size_t VerbsQueue::Poll(std::span<Completion> completions) {
  if (has_events_.load(std::memory_order_seq_cst)) [[unlikely]]
    Gather();
  if (!serve_.empty()) [[unlikely]]
    ServeConnections();
  while (ready_.size() < completions.size()) {
    const bool more_sends = (under_way_ > 0 || leaving_.load(std::memory_order_relaxed)) && PollSends();
    const bool more_receives = PollReceives();
    if (!more_sends && !more_receives) break;
  }
  const size_t count = std::min(completions.size(), ready_.size());
  for (size_t i = 0; i < count; ++i) {
    completions[i] = ready_.front();
    ready_.Pop();
    if (completions[i].kind == Completion::Kind::kRequest ||
        completions[i].kind == Completion::Kind::kNotified) {
      static_cast<VerbsConnection*>(completions[i].connection)->OnPolled(completions[i]);
    }
  }
  return count;
}

size_t VerbsQueue::PollDevice(DeviceQueue& queue, std::span<ibv_wc> entries) {
  const int count = ibv_poll_cq(queue.cq, static_cast<int>(entries.size()), entries.data());
  if (count < 0) {
    FURROW_LOG_EVERY(ERROR, kSecond) << "ibv_poll_cq failed on " << parts_->device->name() << ": " << count;
    return 0;
  }
  if (static_cast<size_t>(count) < entries.size() && leaving_.load(std::memory_order_relaxed)) [[unlikely]] {
    MutexLock lock(&mutex_);
    queue.reserved -= std::exchange(queue.leaving, 0);
    leaving_.store(sends_.leaving + receives_.leaving > 0, std::memory_order_relaxed);
  }
  if (count > 0) now_ = parts_->options.clock->Now();
  return static_cast<size_t>(count);
}

bool VerbsQueue::PollSends() {
  std::array<ibv_wc, kBatch> entries;
  const size_t orphans = orphans_.size();
  const size_t count = PollDevice(sends_, entries);
  for (size_t i = 0; i < count; ++i) {
    VerbsConnection* connection = Find(entries[i].wr_id);
    if (connection == nullptr) continue;
    connection->OnSent(static_cast<uint32_t>(entries[i].wr_id), entries[i].status, entries[i].vendor_err);
  }
  if (orphans > 0 && count < kBatch) [[unlikely]] {
    for (size_t i = 0; i < orphans; ++i) {
      VerbsConnection* connection = slots_[orphans_[i]].connection.load(std::memory_order_acquire);
      if (connection != nullptr) connection->EndRest();
    }
    orphans_.erase(orphans_.begin(), orphans_.begin() + static_cast<ptrdiff_t>(orphans));
  }
  return count == kBatch;
}

bool VerbsQueue::PollReceives() {
  std::array<ibv_wc, kBatch> entries;
  const size_t count = PollDevice(receives_, entries);
  for (size_t i = 0; i < count; ++i) {
    VerbsConnection* connection = Find(entries[i].wr_id);
    if (connection == nullptr) continue;
    if (connection->OnReceive(entries[i])) received_.push_back(connection);
  }
  // Their receives go back to the device and their credits to the peers once per batch.
  for (VerbsConnection* connection : received_) connection->Serve();
  received_.clear();
  return count == kBatch;
}

void VerbsQueue::ServeConnections() {
  serving_.swap(serve_);
  for (uint32_t slot : serving_) {
    VerbsConnection* connection = slots_[slot].connection.load(std::memory_order_acquire);
    if (connection != nullptr) connection->Serve();
  }
  serving_.clear();
}

// In the order in which an owner can make use of it: a connection before its notifications, and the end of a
// peer after all that it did before.
void VerbsQueue::Gather() {
  std::vector<Event> events;
  if (has_events_.exchange(false, std::memory_order_seq_cst)) {
    MutexLock lock(&mutex_);
    events.swap(events_);
  }
  for (const Event& event : events) {
    if (event.kind != Completion::Kind::kConnected) continue;
    Push({.kind = event.kind, .connection = event.connection});
    event.connection->Announce();
  }
  bool lost = false;
  for (const Event& event : events) {
    if (event.kind != Completion::Kind::kDisconnected) continue;
    // The fabric's thread may be bringing up one that is not announced.
    if (event.connection->announced()) event.connection->TakeDown();
    lost = true;
  }
  if (!lost) return;
  while (PollReceives()) {
  }
  for (const Event& event : events) {
    if (event.kind == Completion::Kind::kDisconnected) Lose(event.connection);
  }
}

void VerbsQueue::Lose(VerbsConnection* connection) {
  if (connection->announced()) {
    Push({.kind = Completion::Kind::kDisconnected, .connection = connection});
    return;
  }
  // A peer's that nobody has heard of; one of ours is told when it is handed out.
  std::unique_ptr<Connection> untold = TakeAccepted(connection);
  if (untold == nullptr) connection->LoseWhenAnnounced();
}

// --- parking ---

void VerbsQueue::TakeEvents() {
  unsigned int taken[2] = {};
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) ++taken[cq == receives_.cq ? 1 : 0];
  if (taken[0] > 0) ibv_ack_cq_events(sends_.cq, taken[0]);
  if (taken[1] > 0) ibv_ack_cq_events(receives_.cq, taken[1]);
}

bool VerbsQueue::Arm() {
  TakeEvents();
  int error = ibv_req_notify_cq(receives_.cq, /*solicited_only=*/parts_->device->solicits() ? 1 : 0);
  if (error == 0 && under_way_ > 0) error = ibv_req_notify_cq(sends_.cq, /*solicited_only=*/0);
  if (error == 0) [[likely]]
    return true;
  // The device is gone, or its driver is broken: the owner looks around every now and then.
  FURROW_LOG_EVERY(ERROR, kSecond) << CallFailed("ibv_req_notify_cq", error).message();
  return false;
}

}  // namespace furrow::rdma
