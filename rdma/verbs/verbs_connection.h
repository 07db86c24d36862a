// VerbsConnection: one end of a connection of the verbs provider: a queue pair.
//
// What a WRITE with notification needs of the peer's CPU is bounded by credits: an end may have
// `notify_credits` notifications outstanding that the peer has not polled. Without a credit the bytes go all
// the same, as a plain WRITE; that its channel is to be notified is remembered and made up for, once per
// channel, when credits come back. So neither READ nor WRITE ever waits for a peer that is stopped, and the
// peer's queue always has a receive for what arrives. A SEND is a WRITE into a cell of the peer's inbox,
// which a posted receive gives credit for.
//
// On iWARP there is no WRITE with immediate data, and a WRITE has ended when its bytes are the transport's,
// not when they are at the peer. So there a notification is the WRITE and a SEND of the 4 bytes behind it,
// which is delivered after the WRITE's bytes are placed; and who asks for the end of WRITEs asks for that of
// a READ of nothing behind them. An entry of the ledger is then up to three requests of the device, in one
// doorbell.
//
// Threads: all of it belongs to the queue's thread, except the setup (before the queue's thread sees the
// connection) and LosePeer().
#ifndef FURROW_RDMA_VERBS_VERBS_CONNECTION_H_
#define FURROW_RDMA_VERBS_VERBS_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "rdma/fabric.h"
#include "rdma/verbs/send_ledger.h"
#include "rdma/verbs/verbs_queue.h"
#include "rdma/verbs/verbs_session.h"
#include "rdma/verbs/verbs_wire.h"

struct ibv_qp;
struct ibv_qp_attr;
struct ibv_send_wr;
struct ibv_sge;
struct ibv_wc;
struct rdma_cm_id;

namespace furrow::rdma {

class VerbsConnection final : public Connection {
 public:
  static constexpr uint32_t kMaxReceives = 1024;
  static constexpr uint32_t kMaxRequests = 65'536;

  // InvalidArgument: limits out of range, also of the device's. ResourceExhausted: the queue or the device is
  // full.
  static absl::StatusOr<std::unique_ptr<VerbsConnection>> Make(std::shared_ptr<VerbsQueue> queue,
                                                               ConnectionLimits limits);
  ~VerbsConnection() override;

  using Connection::Post;
  absl::Status Post(std::span<const WorkRequest> requests) override;
  absl::Status PostReceive(uint64_t id, std::span<std::byte> buffer) override;
  NodeId peer() const override { return link_->peer(); }
  std::string_view peer_private_data() const override { return peer_private_data_; }
  bool failed() const override { return failed_ || peer_gone_.load(std::memory_order_acquire); }
  bool idle() const override;

  // --- the fabric's thread, before the connection is handed out, in this order ---
  // What the peer needs to know of this end.
  VerbsEnd Describe() const;
  // What was agreed upon with the peer. InvalidArgument: it describes its end wrongly.
  absl::Status Agree(std::string private_data, const VerbsEnd& peer_end);
  // Adds the connection to the link, from where LosePeer() comes. From here on it is destroyed by its owner's
  // thread.
  absl::Status Join(std::shared_ptr<SessionLink> link, uint32_t id);
  // What `id`, which has a route to the peer, says of the way there, with our own settings. Prepare() before
  // the connection manager connects: receives are posted. Raise() when it knows both queue pairs, which takes
  // requests then; iWARP's has been raised by the kernel.
  absl::Status Prepare(rdma_cm_id* id);
  absl::Status Raise(rdma_cm_id* id);
  void LogConnected() const;
  uint32_t pair_number() const;
  uint8_t read_depth() const { return read_depth_; }
  const ConnectionLimits& limits() const { return limits_; }
  const std::shared_ptr<VerbsQueue>& queue() const { return queue_; }

  // --- for the link, which holds its lock; any thread ---
  void LosePeer();

  // For tests, which play a peer that breaks the rules, and look at the device's settings.
  const std::shared_ptr<SessionLink>& link() const { return link_; }
  ibv_qp* pair() const { return pair_; }
  uint32_t id() const { return id_; }

  // --- for the queue ---
  uint32_t send_entries() const {
    return SendLedger::capacity(limits_.max_requests) * (iwarp_ ? static_cast<uint32_t>(kParts) : 1);
  }
  uint32_t receive_entries() const;
  // The owner has it: what has come for it meanwhile follows.
  void Announce();
  bool announced() const { return announced_; }
  bool established() const { return link_ != nullptr; }
  void LoseWhenAnnounced() { lose_when_announced_ = true; }
  // The device ended a request, and all before it.
  void OnSent(uint32_t number, int status, uint32_t vendor_error);
  // True, once per batch, if Serve() has something to do.
  bool OnReceive(const ibv_wc& entry);
  void OnPolled(const Completion& completion);
  // Gives receives back to the device, credits to the peer, makes up for notifications, asks for the ends of
  // requests that nobody asked for.
  void Serve();
  // Nothing is posted any more; what is under way is flushed.
  void TakeDown();
  // As the process of a killed node.
  void Die();
  // The queue pair is gone and all that the device had to say has been polled: the rest ends as kPeerGone.
  void EndRest();

 private:
  static constexpr size_t kChain = 32;
  static constexpr size_t kParts = 3;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Chain;
  struct Receive {
    uint64_t id;
    std::span<std::byte> buffer;
  };
  VerbsConnection(std::shared_ptr<VerbsQueue> queue, ConnectionLimits limits);
  absl::Status MakePair();
  void ApplySettings(ibv_qp_attr& receive) const;

  // verbs_post.cc
  // How the request will end if it cannot go to the device; else kOk, and the key of its buffer.
  CompletionStatus Check(const WorkRequest& request, uint32_t* key) const;
  void PostChain(std::span<const WorkRequest> requests);
  void Fill(const WorkRequest& request, uint32_t key, bool ask, uint64_t number, Chain& chain);
  void FillNotify(const WorkRequest& request, ibv_send_wr& wr, uint64_t number, Chain& chain);
  ibv_send_wr& Add(Chain& chain, uint64_t number) const;
  // The immediate data of `write`; on iWARP a SEND behind it, and `write` may be null.
  void Tell(Chain& chain, ibv_send_wr* write, uint64_t number, uint32_t immediate, bool solicited);
  void AddProof(Chain& chain, uint64_t number) const;
  // False: the device refuses it, or a part of it, which is doomed.
  bool Submit(Chain& chain);
  // Not even a marker goes to the device: nothing will tell the ends of what did not ask. Ends everything.
  void GiveUp();
  void Doom();
  std::byte* WordAt(uint32_t receive) const {
    return inbox_file_.data() + limits_.max_receives * Fabric::kMaxSend + receive * sizeof(uint32_t);
  }
  // A WRITE of nothing, with `immediate` unless it is a marker. False: it does not fit now, or the device
  // refuses it.
  bool PostInternal(uint32_t immediate, bool solicited);
  bool PostMarker(bool last);
  void PostReceives(uint32_t count);
  void ReturnCredits();
  void MakeUpNotifications();
  // Ends what is doomed and has nothing before it.
  void EndDoomed();
  void End(const SendEntry& entry, CompletionStatus status);
  void Fail(const SendEntry& entry, CompletionStatus status);
  void Account();
  void ServeLater() const;
  // The peer broke the rules of this file.
  void Break(const char* why);

  // Constant once the queue's thread sees the connection.
  const std::shared_ptr<VerbsQueue> queue_;
  const ConnectionLimits limits_;
  const bool iwarp_;
  uint32_t slot_ = kNoSlot;
  uint64_t work_id_ = 0;
  ibv_qp* pair_ = nullptr;  // null once dead
  MemoryFile inbox_file_;   // the peer's SENDs: max_receives cells
  ibv_mr* inbox_ = nullptr;
  std::shared_ptr<SessionLink> link_;
  uint32_t id_ = 0;
  std::string peer_private_data_;
  VerbsEnd peer_end_ = {};
  std::string route_;  // for the log
  uint32_t mtu_ = 0;
  uint8_t read_depth_ = 0;

  // The queue's thread only.
  SendLedger ledger_;
  uint32_t accounted_ = 0;     // of the ledger's, what the queue knows
  uint32_t unpolled_ = 0;      // completions in the queue
  bool failed_ = false;        // a request has failed
  bool doomed_ = false;        // one will fail, when what is before it has ended
  bool down_ = false;          // the queue pair is in its error state
  bool rest_is_open_ = false;  // EndRest() will be called
  bool announced_ = false;
  bool lose_when_announced_ = false;
  bool serving_ = false;              // in the queue's list of this batch
  mutable bool serve_later_ = false;  // in the queue's list for its next poll
  mutable bool marker_wanted_ = false;
  int last_status_ = 0;  // the device's, of the request that failed
  uint32_t last_vendor_error_ = 0;
  Nanos last_success_ = 0;
  uint64_t flushed_ = 0;
  // Towards the peer.
  uint32_t notify_credits_ = 0;
  uint32_t send_credits_ = 0;
  uint64_t sent_ = 0;
  uint64_t owed_wake_ = 0;  // channels
  uint64_t owed_quiet_ = 0;
  // From the peer.
  uint32_t next_receive_ = 0;     // to post
  uint32_t used_receives_ = 0;    // to give back to the device
  uint32_t polled_notifies_ = 0;  // to give back to the peer
  uint32_t new_receives_ = 0;     // posted, the peer does not know
  bool peer_waits_ = false;       // its last credit has been used
  uint64_t channels_ = 0;         // notified, not polled by the owner
  uint64_t received_ = 0;
  std::deque<Receive> receives_;  // at most limits_.max_receives

  std::atomic<bool> peer_gone_{false};
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_CONNECTION_H_
