// Inside the simulated fabric: one end of a connection (SimEnd), its requests, and transfers.
//
// States of an end:
//   open --(first failed request | peer closed or died)--> failed --(owner destroys the Connection)--> closed
//
// As initiator an end keeps its requests in order of posting (outstanding_) and completes them from the
// front; as responder it starts the peer's requests in order of arrival: a WRITE or SEND only when the one
// before has ended, a READ when every earlier WRITE has. So WRITEs become visible in order, and a later WRITE
// may overlap an earlier READ.
#ifndef FURROW_RDMA_SIM_SIM_ENDPOINT_H_
#define FURROW_RDMA_SIM_SIM_ENDPOINT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rdma/fabric.h"
#include "rdma/sim/sim_network.h"
#include "rdma/sim/sim_world.h"

namespace furrow::rdma {

// Memory registered with a simulated fabric.
struct SimRegistration {
  std::span<std::byte> bytes;
  Access access = Access::kNone;
  uint64_t base = 0;  // the address that peers use; page-aligned and the same in every run
  RemoteKey key;
  bool alive = true;
};

struct SimRequest {
  WorkRequest work;
  std::shared_ptr<SimRegistration> local;  // null: inlined or empty
  std::vector<std::byte> payload;  // inlined or detached bytes of WRITE and SEND; READ: what was fetched
  bool own_payload = false;        // WRITE, SEND: the bytes are in `payload`
  CompletionStatus status = CompletionStatus::kOk;
  bool arrived = false;
  bool finished = false;
  bool cancelled = false;  // never takes effect if it has not begun
  size_t size() const { return work.local.size(); }
  const std::byte* source() const { return own_payload ? payload.data() : work.local.data(); }
  // Copies the bytes, so that the initiator's memory is not touched any more.
  void Detach();
};

// The bytes of one READ or WRITE on their way.
class SimTransfer {
 public:
  SimTransfer(SimEnd& initiator, SimEnd& responder, std::shared_ptr<SimRequest> request,
              std::shared_ptr<SimRegistration> target, uint32_t piece_bytes, Random& random);
  // Moves the next pieces of the drawn order.
  void Move(size_t pieces);
  size_t left() const { return order_.size() - next_; }
  CompletionStatus Check() const;  // not kOk: memory was deregistered under it

  SimEnd& initiator;
  SimEnd& responder;
  const std::shared_ptr<SimRequest> request;
  const std::shared_ptr<SimRegistration> target;
  uint32_t instants_left = 1;
  Nanos gap = 0;  // between instants, on average
  bool over = false;
  bool suspended = false;  // its initiator is paused

 private:
  void MovePiece(uint32_t index);
  std::byte* const remote_;
  uint32_t piece_bytes_;
  uint32_t head_;  // bytes before the first piece boundary
  std::vector<uint32_t> order_;
  size_t next_ = 0;
};

class SimQueue;
class SimConnection;

class SimEnd {
 public:
  SimEnd(SimNetwork& network, SimFabric& fabric, SimQueue& queue, ConnectionLimits limits);

  // --- for SimConnection ---
  absl::Status Post(std::span<const WorkRequest> requests);
  bool ReadNow(std::span<const Connection::NowRead> reads);
  absl::Status PostReceive(uint64_t id, std::span<std::byte> buffer);
  void Close();  // the owner destroyed the connection

  // --- for the network ---
  void OnPeerLost();  // closed or dead
  void OnProcessKilled();
  void OnTransferOver(SimTransfer& transfer, CompletionStatus status);
  void ArmTimeout();
  // The link to the peer works again: a stall has to be continuous to end a connection.
  void OnHealed();
  // Delivers what waited for a link or for the connection to be established.
  void Redeliver();
  // The owner has seen the completion of a request: its place is free.
  void OnPolled() { --unpolled_; }
  void Establish() {
    established = true;
    if (peer != nullptr) peer->Redeliver();
  }

  SimNetwork& network;
  SimProcess& process;
  SimFabric* fabric;
  SimQueue* queue;  // null once the queue is destroyed
  SimEnd* peer = nullptr;
  Connection* handle = nullptr;
  std::string peer_private_data;
  bool established = false;
  bool failed() const { return state_ != State::kOpen; }
  bool closed() const { return state_ == State::kClosed; }
  bool idle() const { return outstanding_.empty() && unpolled_ == 0; }

 private:
  enum class State : uint8_t { kOpen, kFailed, kClosed };
  struct Packet {
    uint64_t sequence;
    std::function<void()> deliver;
    SimEnd* waits;  // whose request hangs on it; may be null
  };
  struct Receive {
    uint64_t id;
    std::span<std::byte> buffer;
    std::shared_ptr<SimRegistration> memory;
  };

  // Initiator.
  void PostOne(const WorkRequest& work);
  bool TryAtOnce(const std::shared_ptr<SimRequest>& request);
  void OnResponse(const std::shared_ptr<SimRequest>& request, CompletionStatus status);
  void CompleteInOrder();
  void Fail(CompletionStatus status);
  void FlushSoon();
  void ReleaseRequests();
  void OnTimeout();
  void ArmWaiting();
  void ReportDisconnected();
  void PushEnd(const SimRequest& request, CompletionStatus status);

  // Responder.
  void Arrive(std::shared_ptr<SimRequest> request);
  void StartArrived();
  void StartTransfer(std::shared_ptr<SimRequest> request);
  // Null if the peer may not do what it asks for.
  std::shared_ptr<SimRegistration> FindTarget(const SimRequest& request) const;
  void NotifyAfter(const WorkRequest& work);
  bool StartSend(const std::shared_ptr<SimRequest>& request);
  void Respond(const std::shared_ptr<SimRequest>& request, CompletionStatus status);

  // Packets to the peer, in order.
  void Send(size_t bytes, SimEnd* waits, std::function<void()> deliver);
  void Deliver(uint64_t sequence);
  bool Blocked() const;

  const ConnectionLimits limits_;
  State state_ = State::kOpen;
  bool disconnected_ = false;  // reported
  bool peer_lost_ = false;
  bool timeout_armed_ = false;
  uint64_t timeout_epoch_ = 0;

  std::deque<std::shared_ptr<SimRequest>> outstanding_;
  uint32_t unpolled_ = 0;   // completions of requests that lie in the queue
  bool held_back_ = false;  // a request failed locally: what is behind it never leaves

  std::deque<std::shared_ptr<SimRequest>> arrived_;
  bool busy_ = false;     // a WRITE of the peer is under way
  bool refused_ = false;  // a request of the peer failed: the rest is dropped
  bool receiver_timer_ = false;
  std::deque<Receive> receives_;

  std::deque<Packet> packets_;
  uint64_t next_packet_ = 1;
  uint64_t arrived_packet_ = 0;  // packets up to this one are at the far end of the link
  Nanos last_arrival_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_ENDPOINT_H_
