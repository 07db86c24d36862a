// The contract suite of fabrics over the simulated one, under several seeds and kinds of fabric.
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "rdma/fabric_contract.h"
#include "rdma/sim/sim_network.h"

namespace furrow::rdma {
namespace {

class SimContractWorld final : public FabricWorld {
 public:
  SimContractWorld(uint64_t seed, SimNetworkOptions options) : world_(seed), network_(world_, options) {
    Tick();
  }
  ~SimContractWorld() override {
    for (auto& host : hosts_) host->process.Detach(*host->loop);
  }

  Node AddNode(const FabricIdentity& identity) override {
    hosts_.push_back(std::make_unique<Host>(network_, identity));
    Host& host = *hosts_.back();
    return {host.fabric.get(), host.queue.get(), host.loop.get(), std::to_string(hosts_.size())};
  }
  bool RunUntil(const std::function<bool()>& done) override {
    return world_.RunUntil(done, world_.now() + 20 * kSecond).ok();
  }
  void Settle(const std::function<void()>& poll) override {
    (void)world_.RunUntil(
        [&] {
          poll();
          return false;
        },
        world_.now() + 20 * kMillisecond);
  }
  bool Kill(const Node& node) override {
    for (auto& host : hosts_) {
      if (host->fabric.get() == node.fabric) world_.Kill(host->process);
    }
    return true;
  }

 private:
  struct Host {
    Host(SimNetwork& network, const FabricIdentity& identity)
        : process(network.world().StartProcess(identity.node)),
          fabric(network.MakeFabric(process, identity)),
          queue(*fabric->CreateCompletionQueue()),
          loop(std::make_unique<EventLoop>(process.clock(), queue->parker())) {
      process.Attach(*loop, queue->parker());
    }
    SimProcess& process;
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<CompletionQueue> queue;
    std::unique_ptr<EventLoop> loop;
  };
  // Something happens every 100 microseconds, so that the suite gets to poll.
  void Tick() {
    world_.After(100 * kMicrosecond, [this] { Tick(); });
  }

  SimWorld world_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

FabricWorldFactory Make(uint64_t seed, SimNetworkOptions options) {
  return [seed, options] { return std::make_unique<SimContractWorld>(seed, options); };
}

std::string KindAndSeed(const testing::TestParamInfo<FabricWorldFactory>& info) {
  static constexpr const char* kKinds[] = {"Default", "SharedMemory", "AtOnce", "Card"};
  return kKinds[info.index % 4] + std::string("Seed") + std::to_string(info.index / 4 + 1);
}

std::vector<FabricWorldFactory> AllKinds(uint64_t seeds) {
  std::vector<FabricWorldFactory> all;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    all.push_back(Make(seed, SimNetworkOptions()));
    all.push_back(Make(seed, SimNetworkOptions::SharedMemory()));
    all.push_back(Make(seed, SimNetworkOptions::AtOnce()));
    all.push_back(Make(seed, SimNetworkOptions::Card()));
  }
  return all;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Sim, FabricContractTest, testing::ValuesIn(AllKinds(3)), KindAndSeed);

}  // namespace furrow::rdma
