// The simulated provider of rdma::Fabric: SimFabric, its queues, registrations and connections.
// Endpoints are any strings ("1", "2", ...), unique in a network. Made by SimNetwork::MakeFabric().
#ifndef FURROW_RDMA_SIM_SIM_FABRIC_H_
#define FURROW_RDMA_SIM_SIM_FABRIC_H_

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rdma/fabric.h"
#include "rdma/sim/sim_endpoint.h"
#include "rdma/sim/sim_network.h"

namespace furrow::rdma {

class SimQueue final : public CompletionQueue {
 public:
  SimQueue(SimNetwork& network, SimParker& parker) : network_(network), parker_(parker) {}
  ~SimQueue() override;
  size_t Poll(std::span<Completion> completions) override;
  std::unique_ptr<Connection> TakeAccepted(Connection* connection) override;
  Parker& parker() override { return parker_; }

  // Bounded by max_requests + max_receives + 64 channels + 2 per connection.
  void Push(const Completion& completion, bool wake);
  void Notify(Connection& connection, uint8_t channel, bool wake);
  void AddAccepted(std::unique_ptr<Connection> connection);
  void Forget(const Connection* connection);  // drops its completions

 private:
  SimNetwork& network_;
  SimParker& parker_;
  std::deque<Completion> completions_;
  std::vector<std::unique_ptr<Connection>> accepted_;
};

class SimConnection final : public Connection {
 public:
  explicit SimConnection(SimEnd& end) : end_(end) { end.handle = this; }
  ~SimConnection() override { end_.Close(); }
  using Connection::Post;
  absl::Status Post(std::span<const WorkRequest> requests) override { return end_.Post(requests); }
  absl::Status PostReceive(uint64_t id, std::span<std::byte> buffer) override {
    return end_.PostReceive(id, buffer);
  }
  NodeId peer() const override { return end_.peer->process.node(); }
  std::string_view peer_private_data() const override { return end_.peer_private_data; }
  bool failed() const override { return end_.failed(); }
  bool idle() const override { return end_.idle(); }
  bool completes_at_once() const override { return end_.network.options().at_once; }
  bool ReadNow(std::span<const NowRead> reads) override { return end_.ReadNow(reads); }
  SimEnd& end() { return end_; }

 private:
  SimEnd& end_;
};

class SimFabric final : public Fabric {
 public:
  SimFabric(SimNetwork& network, SimProcess& process, FabricIdentity identity);
  ~SimFabric() override;

  std::string_view name() const override { return "sim"; }
  size_t read_piece_bytes() const override { return network_.options().piece_bytes; }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(const MemoryFile& file, Access access) override;
  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue() override;
  absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor) override;
  void Connect(CompletionQueue& queue, EventLoop& loop, const Endpoint& endpoint, std::string private_data,
               ConnectionLimits limits, Nanos timeout_ns, ConnectDone done) override;

  SimProcess& process() const { return process_; }
  const FabricIdentity& identity() const { return identity_; }
  // The registration that holds all of `bytes`, null if none does.
  std::shared_ptr<SimRegistration> FindLocal(std::span<const std::byte> bytes) const;
  std::shared_ptr<SimRegistration> FindRemote(RemoteKey key) const;

 private:
  friend class SimNetwork;
  struct Connecting;
  struct Region;
  void Attempt(const std::shared_ptr<Connecting>& c);
  void Reply(const std::shared_ptr<Connecting>& c, absl::Status status);
  static void Finish(const std::shared_ptr<Connecting>& c, absl::Status status);
  // As the target: makes both ends, or says why not.
  absl::Status Accept(Connecting& c);

  SimNetwork& network_;
  SimProcess& process_;
  const FabricIdentity identity_;
  Random random_;
  uint64_t next_base_ = uint64_t{1} << 32;
  std::map<const std::byte*, std::vector<std::shared_ptr<SimRegistration>>> local_;
  std::unordered_map<uint32_t, std::shared_ptr<SimRegistration>> remote_;
  Acceptor acceptor_;
  std::vector<std::weak_ptr<Connecting>> connecting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SIM_SIM_FABRIC_H_
