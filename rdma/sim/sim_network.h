// SimNetwork: the wires and cards between simulated processes: latency, rate, order, cuts, and the copies in
// flight.
//
// Model of a request (see sim_endpoint.h for the connection's side of it):
//   post -> leaves when the sender's card is free -> arrives after base + jitter (+ tail, + slow link), never
//   before an earlier packet of the same connection -> at the target a READ or WRITE becomes a transfer:
//   pieces of piece_bytes, aligned to that, moved in a drawn order, at a drawn number of instants spread over
//   a drawn time; any StorePoint() of the target's process may draw pieces forward -> the answer travels back
//   in the same way.
// Packets of different connections overtake each other freely.
//
// Faults: Cut() (one way), Partition(), Slow(), and what SimWorld does to processes. A packet on a cut link
// waits for the link; after a drawn time between peer_timeout_min and _max its request fails with kPeerGone.
#ifndef FURROW_RDMA_SIM_SIM_NETWORK_H_
#define FURROW_RDMA_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "rdma/fabric.h"
#include "rdma/sim/sim_world.h"

namespace furrow::rdma {

struct SimNetworkOptions {
  Nanos base_latency = 1'000;  // one way
  Nanos jitter = 2'000;        // drawn from [0, jitter] and added
  uint32_t tail_one_in = 200;  // this often a packet takes up to tail_ns more; 0: never
  Nanos tail_ns = 50 * kMicrosecond;
  uint64_t bytes_per_second = 10'000'000'000;
  uint64_t messages_per_second = 0;  // of one process' card, each way; 0: no limit

  uint32_t piece_bytes = 8;  // 8: copies by a CPU; 64: a card's cache lines
  Nanos spread = 2'000;      // a transfer takes a drawn time up to this, in at most max_instants steps
  uint32_t max_instants = 6;
  uint32_t stall_one_in = 0;  // this often a transfer stops for up to stall_ns between two steps; 0: never
  Nanos stall_ns = 2 * kMillisecond;
  // The initiator's CPU makes the copies, as in shared memory: they stop while it is paused. Otherwise cards
  // do.
  bool initiator_copies = false;
  // READ and WRITE end inside Post(), as in shared memory: code has a path of its own for that. Nothing tears
  // then, and links are neither cut nor slow (requests that meet a cut link take the slow way, in spite of
  // what is promised).
  bool at_once = false;

  Nanos peer_timeout_min = kMillisecond;  // until a request that gets no answer fails
  Nanos peer_timeout_max = 3 * kMillisecond;
  Nanos death_notice_min = 20 * kMicrosecond;  // until peers hear that a process has died
  Nanos death_notice_max = 2 * kMillisecond;
  Nanos receiver_timeout = kMillisecond;  // SEND without a posted receive

  // Peers on one host through shared memory, seen piece by piece; the same with at_once; and a 100 Gbit/s
  // card of 2017.
  static SimNetworkOptions SharedMemory();
  static SimNetworkOptions AtOnce();
  static SimNetworkOptions Card();
};

class SimEnd;
class SimFabric;
class SimQueue;
class SimTransfer;

class SimNetwork final : private SimProcessObserver {
 public:
  explicit SimNetwork(SimWorld& world, SimNetworkOptions options = {});
  ~SimNetwork() override;
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  SimWorld& world() const { return world_; }
  const SimNetworkOptions& options() const { return options_; }

  // The fabric of one process; dies before the network.
  std::unique_ptr<Fabric> MakeFabric(SimProcess& process, FabricIdentity identity);

  // --- links; between nodes, so that they outlast processes ---
  void Cut(NodeId from, NodeId to);
  void Heal(NodeId from, NodeId to);
  // Cuts both ways between nodes of different groups (a node in no group is left alone).
  void Partition(const std::vector<std::vector<NodeId>>& groups);
  void HealAll();
  // Adds to the latency of every packet; 0 ends it.
  void Slow(NodeId from, NodeId to, Nanos extra);
  bool IsCut(NodeId from, NodeId to) const { return cuts_.contains({from, to}); }

  // Transfers that have begun and are not over; for tests.
  size_t transfers() const;

 private:
  friend class SimEnd;
  friend class SimFabric;
  friend class SimQueue;
  friend class SimTransfer;

  void OnKilled(SimProcess& process) override;
  void OnPaused(SimProcess& process) override {}
  void OnResumed(SimProcess& process) override;
  void OnStorePointOf(SimProcess* running) override;

  SimEnd& NewEnd(SimFabric& fabric, CompletionQueue& queue, ConnectionLimits limits);
  Nanos DrawLatency(NodeId from, NodeId to);
  // When a packet that `from` sends now arrives at `to`.
  Nanos ArrivalTime(SimProcess& from, SimProcess& to, size_t bytes);
  void Begin(std::shared_ptr<SimTransfer> transfer);
  void RunChunk(const std::shared_ptr<SimTransfer>& transfer);
  void ScheduleChunk(const std::shared_ptr<SimTransfer>& transfer);
  void Remove(const std::shared_ptr<SimTransfer>& transfer);

  struct CardState {
    Nanos send_free = 0;
    Nanos receive_free = 0;
  };
  CardState& card(const SimProcess& process);
  std::vector<std::shared_ptr<SimTransfer>>& active(const SimProcess& process);

  SimWorld& world_;
  const SimNetworkOptions options_;
  Random random_;
  std::set<std::pair<NodeId, NodeId>> cuts_;
  std::map<std::pair<NodeId, NodeId>, Nanos> slow_;
  std::map<Endpoint, SimFabric*> listeners_;
  // Bounded by the connections that one simulation ever opens; kept, so that events may point at them.
  std::vector<std::unique_ptr<SimEnd>> ends_;
  std::vector<CardState> cards_;                                   // by process serial
  std::vector<std::vector<std::shared_ptr<SimTransfer>>> active_;  // by serial of the target's process
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_NETWORK_H_
