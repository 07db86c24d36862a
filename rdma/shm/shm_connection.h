// ShmConnection: one end of a connection of the shm provider. READ and WRITE are copies made inside Post()
// from and to the peer's memory as it is mapped here.
//
// Threads: all of it belongs to the queue's thread, except the setup (before the queue's thread sees the
// connection) and LosePeer().
#ifndef FURROW_RDMA_SHM_SHM_CONNECTION_H_
#define FURROW_RDMA_SHM_SHM_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "rdma/fabric.h"
#include "rdma/shm/shm_layout.h"
#include "rdma/shm/shm_queue.h"
#include "rdma/shm/shm_remote.h"

namespace furrow::rdma {

class ShmSession;

class ShmConnection final : public Connection {
 public:
  // Takes a slot of the queue and makes the inbox. InvalidArgument: limits out of range.
  static absl::StatusOr<std::unique_ptr<ShmConnection>> Make(std::shared_ptr<ShmQueue> queue,
                                                             ConnectionLimits limits);
  ~ShmConnection() override;

  using Connection::Post;
  absl::Status Post(std::span<const WorkRequest> requests) override;
  absl::Status PostReceive(uint64_t id, std::span<std::byte> buffer) override;
  NodeId peer() const override { return remote_->node(); }
  std::string_view peer_private_data() const override { return peer_private_data_; }
  bool failed() const override { return failed_ || peer_gone_.load(std::memory_order_acquire); }
  bool idle() const override { return unpolled_ == 0; }
  bool completes_at_once() const override { return true; }
  bool ReadNow(std::span<const NowRead> reads) override;
  void Prefetch(RemoteAddress remote, size_t bytes) override;

  // --- the fabric's thread, before the connection is handed out ---
  // What the peer has told. Adds the connection to the session, from where LosePeer() comes.
  absl::Status Establish(std::shared_ptr<ShmSession> session, uint32_t id, std::string private_data,
                         uint32_t peer_slot, int peer_doorbells, int peer_inbox);
  const ConnectionLimits& limits() const { return limits_; }
  uint32_t slot() const { return slot_; }
  const MemoryFile& inbox_file() const { return inbox_file_; }
  const std::shared_ptr<ShmQueue>& queue() const { return queue_; }

  // --- for the session, which holds its lock; any thread ---
  void LosePeer();

  // --- for the queue ---
  void OnPolled() { --unpolled_; }
  void ReceiveArrived();

 private:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Target {
    std::byte* shared = nullptr;
    CompletionStatus status = CompletionStatus::kOk;
  };
  struct Receive {
    uint64_t id;
    std::span<std::byte> buffer;
  };
  ShmConnection(std::shared_ptr<ShmQueue> queue, ConnectionLimits limits, MemoryFile inbox)
      : queue_(std::move(queue)), limits_(limits), inbox_file_(std::move(inbox)) {}

  Target Resolve(const WorkRequest& request);
  // The peer's bytes, if it grants `want` on them.
  Target Locate(RemoteAddress at, size_t bytes, Access want);
  void Execute(const WorkRequest& request, const Target& target);
  void End(const WorkRequest& request, CompletionStatus status);
  CompletionStatus Send(const WorkRequest& request);
  void Ring(uint64_t* word, uint64_t bit, bool wake);

  static InboxHeader* Header(const MemoryFile& inbox) { return reinterpret_cast<InboxHeader*>(inbox.data()); }
  static InboxCell* Cells(const MemoryFile& inbox) {
    return reinterpret_cast<InboxCell*>(inbox.data() + sizeof(InboxHeader));
  }

  // Constant once the queue's thread sees the connection.
  const std::shared_ptr<ShmQueue> queue_;
  const ConnectionLimits limits_;
  const MemoryFile inbox_file_;  // the peer's SENDs
  uint32_t slot_ = kNoSlot;
  uint32_t id_ = 0;
  bool established_ = false;
  std::shared_ptr<ShmSession> session_;
  std::shared_ptr<RemoteMemory> remote_;
  std::shared_ptr<PostGuard> guard_;
  std::string peer_private_data_;
  MemoryFile peer_doorbells_file_;
  MemoryFile peer_inbox_file_;
  uint32_t peer_slot_ = 0;
  ConnectionSlot* peer_slot_line_ = nullptr;
  uint64_t* peer_summary_ = nullptr;
  uint32_t* peer_parking_ = nullptr;

  // The queue's thread only.
  bool failed_ = false;
  uint32_t unpolled_ = 0;  // completions in the queue; at most limits_.max_requests
  uint64_t sent_ = 0;
  uint64_t posted_ = 0;
  uint64_t received_ = 0;
  std::deque<Receive> receives_;  // posted_ - received_ of them, at most limits_.max_receives

  std::atomic<bool> peer_gone_{false};
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_CONNECTION_H_
