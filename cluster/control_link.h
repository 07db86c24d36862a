// ControlLink: the beat between each member and the manager over the fabric: small WRITEs that carry a clock
// sample and a round of the safe point, and whose connection tells each side of the other's death. One
// thread, the control thread, whose EventLoop the owner runs; it is the only poller of its completion queue.
//
//   member                                manager
//     BEAT: local time, oldest active, G known  -->  slot of that member, channel 0
//     slot 0, channel 0   <--  ANSWER: that local time, cluster time, G, S, is anybody active, term, counter
//     BEAT again, the same with that counter    -->  is not answered
//     slot 1, channel 1   <--  POKE: somebody is active: beat now, do not wait for your slow turn
//
// Each side tells the other where its slots are when the connection is made (private data: a name, then
// address 8, key 4, little-endian). A slot holds the latest message; a newer one may replace it unread, since
// it says the same, and newer: each BEAT has the newest counter.
//
// Lease. BEAT, ANSWER and the BEAT that repeats its counter are the three messages of a handshake by which
// each side grants the other a lease (lease_book.h).
//
// Silence. Each side counts ticks, a fifth of a lease apart, in which it has run and not heard of the other.
// After six the other is lost: one that has been stopped, or hangs, while its connection is whole. The sixth
// tick comes between 1 and 1.2 leases after the last message. Ticks and not time: who was itself stopped, or
// the whole host, first listens again.
//
// Message (64 bytes, little-endian):
//   off  size  field      BEAT                  ANSWER                      POKE
//   0    1     type       1                     2                           3
//   1    1     active     here                  anywhere                    -
//   2    6     zero
//   8    8     local      send time             the beat's, echoed          -
//   16   8     cluster    -                     manager's time; 0: its      -
//                                               clock is disabled
//   24   8     oldest     oldest active         G, global oldest            -
//   32   8     safe       G as known here       S, safe point               -
//   40   8     counter    that of the last      manager's local time        -
//                         ANSWER; 0: none yet
//   48   8     term       -                     of the lease, ns; 0: none   -
//   56   8     checksum   XXH3 of bytes 0..55: the copy is whole when this says so
#ifndef FURROW_CLUSTER_CONTROL_LINK_H_
#define FURROW_CLUSTER_CONTROL_LINK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/memory_file.h"
#include "base/mutex.h"
#include "cluster/beat_schedule.h"
#include "cluster/cluster_clock.h"
#include "cluster/seams.h"
#include "rdma/fabric.h"
#include "rdma/operation.h"

namespace furrow::cluster {

struct BeatMessage {
  enum Type : uint8_t { kBeat = 1, kAnswer = 2, kPoke = 3 };
  uint8_t type;
  uint8_t active;
  uint8_t zero[6];
  int64_t local;
  uint64_t cluster;
  uint64_t oldest;
  uint64_t safe;
  int64_t counter;
  int64_t term;
  uint64_t checksum;
};
static_assert(sizeof(BeatMessage) == 64 && sizeof(BeatMessage) <= rdma::WorkRequest::kMaxInline);
static_assert(offsetof(BeatMessage, local) == 8 && offsetof(BeatMessage, checksum) == 56);
static_assert(std::is_trivially_copyable_v<BeatMessage>);

class ControlLink final : public rdma::QueueEvents {
 public:
  enum class Loss : uint8_t {
    kBroken,     // its connection
    kSilent,     // for a lease, while the connection is whole
    kNeverCame,  // it opened none by the deadline of Expect()
  };
  struct Safe {
    Timestamp global_oldest;
    Timestamp safe_point;
  };
  struct Options {
    NodeId self;
    bool manager = false;
    BeatSchedule::Options schedule;
    Nanos lease_ns = 5 * kSecond;  // how long a peer may be silent
    int renewals = 4;              // beats in a lease, at least
    // The manager's: one member's report, the answer to it.
    std::function<Safe(NodeId, Timestamp oldest_active, Timestamp known_global)> report;
    // The manager's: LeaseBook::OnRequest(), by this host's clock.
    std::function<Nanos(NodeId, Nanos now, Nanos counter)> lease;
    // Member: the manager has answered a beat that was sent at this time of this host's clock; with a lease
    // of `term`, or with none (0).
    std::function<void(Nanos sent, Nanos term)> answered;
    // `node` is lost, and nobody said that it leaves. On the control thread; must not block.
    std::function<void(NodeId node, Loss how)> lost;
    // A clock sample that cannot be. On the control thread; must not block.
    std::function<void(absl::Status)> bad_clock;
  };
  // All references outlive the link. `loop` runs on the control thread and parks on `queue`.
  ControlLink(Options options, EventLoop& loop, rdma::Fabric& fabric, rdma::CompletionQueue& queue,
              ClusterClock& clock, SafePoint& safe_point);
  ~ControlLink() override;

  // True if the private data is that of a control connection, not of a ring mesh.
  static bool IsControl(const rdma::ConnectRequest& request);
  // Manager; any thread. The caller has checked that the peer is a member. ResourceExhausted: too many.
  absl::StatusOr<rdma::AcceptDecision> Accept(NodeId peer);

  // --- control thread ---
  // Registers memory, and begins to beat (the manager, with itself).
  absl::Status Start();
  // Member: opens the connection to the manager and beats. `first` is called once, after the first answer or
  // with the error.
  void Connect(NodeId manager, const rdma::Endpoint& endpoint, Nanos timeout_ns,
               std::function<void(absl::Status)> first);
  // Manager: the end of this node's connection is no loss from now on. / Its connection must be there by
  // `deadline`.
  void Forget(NodeId node);
  void Expect(NodeId node, Nanos deadline);
  // No more callbacks, and no more connections: the peers see them end.
  void Stop();
  // True if no peer is connected any more, but for those that have left.
  bool alone() const;
  // Two peers that lose this process for the same reason do so within this time.
  Nanos tick_ns() const { return options_.lease_ns / kTicksInLease; }
  // Any thread: how long this process did not run (it was stopped, or got no core) when a tick was due, now
  // or at the last two; 0: for less than the time between two.
  Nanos overslept() const;

 private:
  struct Peer {
    std::unique_ptr<rdma::Connection> connection;
    NodeId node;                // 0: it has left; the connection's end means nothing
    rdma::RemoteAddress slots;  // the peer's
    size_t slot = 0;            // where it writes to: the first of ours
    bool active = false;
    bool poked = false;  // and has not beaten since
    Nanos local = 0;     // of its last beat that was answered
    int silent_ticks = 0;
  };
  static constexpr int kTicksInLease = 5;
  static constexpr int kSilentTicks = 6;
  static constexpr uint8_t kMessages = 0;  // channels, and slots of a member
  static constexpr uint8_t kPokes = 1;
  static constexpr size_t kMaxPeers = 260;

  void OnNotified(rdma::Connection& connection, uint8_t channel) override;
  void OnReceived(rdma::Connection& connection, uint64_t id, uint32_t bytes) override {}
  void OnConnected(rdma::Connection& connection) override;
  void OnDisconnected(rdma::Connection& connection) override;

  absl::Status AddPeer(std::unique_ptr<rdma::Connection> connection, size_t slot);
  void Send(Peer& peer, BeatMessage message, uint8_t channel);
  // The message in one of our slots. False: not whole.
  bool Load(size_t slot, BeatMessage* message) const;
  std::string PrivateData(size_t slot) const;
  void OnBeat(Peer& peer, const BeatMessage& message);
  void OnAnswer(const BeatMessage& message);
  void SendBeat();
  void Beat();
  void BeatAgainIn(Nanos delay);
  bool AnybodyActive() const;
  void PokeTheIdle();
  void Tick();
  // The peer leaves peers_, its connection dies in a later round.
  void Discard(Peer* peer);
  bool ActiveHere() const;

  const Options options_;
  EventLoop& loop_;
  rdma::Fabric& fabric_;
  rdma::CompletionQueue& queue_;
  ClusterClock& clock_;
  SafePoint& safe_point_;
  rdma::CompletionPoller poller_;

  // Control thread.
  bool stopped_ = false;
  BeatSchedule schedule_;
  EventLoop::TimerId timer_ = 0;
  EventLoop::TimerId tick_timer_ = 0;
  std::atomic<Nanos> tick_due_{0};  // 0: not started
  std::atomic<Nanos> overslept_{0};
  std::atomic<Nanos> overslept_before_{0};
  MemoryFile memory_;  // the slots; written by peers
  std::unique_ptr<rdma::MemoryRegion> registered_;
  std::vector<std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<NodeId, EventLoop::TimerId> expected_;
  std::function<void(absl::Status)> first_;
  bool active_ = false;  // here, at the last beat
  Timestamp oldest_;     // the same
  Nanos sent_ = 0;       // when that was
  Nanos counter_ = 0;    // of the last answer
  bool active_anywhere_ = false;

  Mutex mutex_;
  absl::flat_hash_map<NodeId, size_t> slots_ ABSL_GUARDED_BY(mutex_);  // manager: by peer; 0 is never one
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONTROL_LINK_H_
