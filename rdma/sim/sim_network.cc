#include "rdma/sim/sim_network.h"

#include <algorithm>

#include "rdma/sim/sim_endpoint.h"
#include "rdma/sim/sim_fabric.h"
#include "rdma/sim/sim_kinds.h"

namespace furrow::rdma {

SimNetworkOptions SimNetworkOptions::SharedMemory() {
  SimNetworkOptions o;
  o.base_latency = 50;
  o.jitter = 400;
  o.piece_bytes = 8;
  o.spread = 500;
  o.initiator_copies = true;
  return o;
}

SimNetworkOptions SimNetworkOptions::AtOnce() {
  SimNetworkOptions o = SharedMemory();
  o.at_once = true;
  return o;
}

SimNetworkOptions SimNetworkOptions::Card() {
  SimNetworkOptions o;
  o.base_latency = 850;
  o.jitter = 300;
  o.bytes_per_second = 12'000'000'000;
  o.messages_per_second = 35'000'000;
  o.piece_bytes = 64;
  o.spread = 300;
  return o;
}

SimNetwork::SimNetwork(SimWorld& world, SimNetworkOptions options)
    : world_(world), options_(options), random_(world.NewRandom()) {
  world_.AddObserver(this);
}

SimNetwork::~SimNetwork() { world_.RemoveObserver(this); }

std::unique_ptr<Fabric> SimNetwork::MakeFabric(SimProcess& process, FabricIdentity identity) {
  return std::make_unique<SimFabric>(*this, process, std::move(identity));
}

SimEnd& SimNetwork::NewEnd(SimFabric& fabric, CompletionQueue& queue, ConnectionLimits limits) {
  ends_.push_back(std::make_unique<SimEnd>(*this, fabric, static_cast<SimQueue&>(queue), limits));
  return *ends_.back();
}

// --- links ---

void SimNetwork::Cut(NodeId from, NodeId to) { cuts_.insert({from, to}); }

void SimNetwork::Heal(NodeId from, NodeId to) {
  if (cuts_.erase({from, to}) == 0) return;
  for (auto& end : ends_) {
    if (end->process.node() == from && end->peer != nullptr && end->peer->process.node() == to)
      end->OnHealed();
  }
}

void SimNetwork::Partition(const std::vector<std::vector<NodeId>>& groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = 0; j < groups.size(); ++j) {
      if (i == j) continue;
      for (NodeId from : groups[i]) {
        for (NodeId to : groups[j]) Cut(from, to);
      }
    }
  }
}

void SimNetwork::HealAll() {
  while (!cuts_.empty()) {
    auto [from, to] = *cuts_.begin();
    Heal(from, to);
  }
  slow_.clear();
}

void SimNetwork::Slow(NodeId from, NodeId to, Nanos extra) {
  if (extra == 0) {
    slow_.erase({from, to});
  } else {
    slow_[{from, to}] = extra;
  }
}

Nanos SimNetwork::DrawLatency(NodeId from, NodeId to) {
  Nanos latency = options_.base_latency + random_.Between(0, options_.jitter);
  if (options_.tail_one_in != 0 && random_.OneIn(options_.tail_one_in)) {
    latency += random_.Between(0, options_.tail_ns);
  }
  auto slow = slow_.find({from, to});
  return slow == slow_.end() ? latency : latency + slow->second;
}

SimNetwork::CardState& SimNetwork::card(const SimProcess& process) {
  if (process.serial() >= cards_.size()) cards_.resize(process.serial() + 1);
  return cards_[process.serial()];
}

Nanos SimNetwork::ArrivalTime(SimProcess& from, SimProcess& to, size_t bytes) {
  Nanos per_message = options_.messages_per_second == 0 ? 0 : kSecond / options_.messages_per_second;
  Nanos on_wire =
      std::max(per_message, static_cast<Nanos>(bytes * 1'000'000'000.0 / options_.bytes_per_second));
  CardState& sender = card(from);
  Nanos leaves = std::max(world_.now(), sender.send_free);
  sender.send_free = leaves + on_wire;
  Nanos arrives = leaves + on_wire + DrawLatency(from.node(), to.node());
  if (per_message != 0) {
    CardState& receiver = card(to);
    arrives = std::max(arrives, receiver.receive_free);
    receiver.receive_free = arrives + per_message;
  }
  return arrives;
}

// --- transfers ---

std::vector<std::shared_ptr<SimTransfer>>& SimNetwork::active(const SimProcess& process) {
  if (process.serial() >= active_.size()) active_.resize(process.serial() + 1);
  return active_[process.serial()];
}

size_t SimNetwork::transfers() const {
  size_t count = 0;
  for (const auto& list : active_) count += list.size();
  return count;
}

void SimNetwork::Begin(std::shared_ptr<SimTransfer> transfer) {
  uint64_t most = std::max<uint64_t>(1, std::min<uint64_t>(options_.max_instants, transfer->left()));
  transfer->instants_left = 1 + static_cast<uint32_t>(random_.Below(most));
  transfer->gap = random_.Between(0, options_.spread) / transfer->instants_left;
  active(transfer->responder.process).push_back(transfer);
  ScheduleChunk(transfer);
}

void SimNetwork::ScheduleChunk(const std::shared_ptr<SimTransfer>& transfer) {
  Nanos gap = random_.Between(0, 2 * transfer->gap);
  if (options_.stall_one_in != 0 && random_.OneIn(options_.stall_one_in))
    gap += random_.Between(0, options_.stall_ns);
  world_.After(
      gap, [this, transfer] { RunChunk(transfer); }, kSimPieces, transfer->responder.process.serial());
}

void SimNetwork::RunChunk(const std::shared_ptr<SimTransfer>& transfer) {
  if (transfer->over) return;
  if (options_.initiator_copies && transfer->initiator.process.state() == SimProcess::State::kPaused) {
    transfer->suspended = true;
    return;
  }
  CompletionStatus status = transfer->Check();
  if (status == CompletionStatus::kOk) {
    transfer->Move((transfer->left() + transfer->instants_left - 1) / transfer->instants_left);
    if (transfer->left() > 0) {
      --transfer->instants_left;
      ScheduleChunk(transfer);
      return;
    }
  }
  Remove(transfer);
  transfer->responder.OnTransferOver(*transfer, status);
}

void SimNetwork::Remove(const std::shared_ptr<SimTransfer>& transfer) {
  transfer->over = true;
  std::erase(active(transfer->responder.process), transfer);
}

void SimNetwork::OnStorePointOf(SimProcess* running) {
  if (running == nullptr) return;
  auto& list = active(*running);
  if (list.empty() || random_.OneIn(3)) return;
  SimTransfer& transfer = *list[random_.Below(list.size())];
  if (options_.initiator_copies && transfer.initiator.process.state() == SimProcess::State::kPaused) return;
  if (transfer.Check() == CompletionStatus::kOk) transfer.Move(1 + random_.Below(2));
}

// --- fates of processes ---

void SimNetwork::OnKilled(SimProcess& process) {
  std::vector<std::shared_ptr<SimTransfer>> cut_short;
  for (auto& list : active_) {
    for (auto& transfer : list) {
      if (&transfer->initiator.process == &process || &transfer->responder.process == &process) {
        cut_short.push_back(transfer);
      }
    }
  }
  for (auto& transfer : cut_short) {
    // Whatever had left the dying side before may still land.
    if (transfer->Check() == CompletionStatus::kOk) transfer->Move(random_.Below(transfer->left() + 1));
    Remove(transfer);
  }
  std::erase_if(listeners_, [&](auto& entry) { return &entry.second->process() == &process; });
  for (auto& end : ends_) {
    if (&end->process == &process) end->OnProcessKilled();
  }
}

void SimNetwork::OnResumed(SimProcess& process) {
  for (auto& list : active_) {
    for (auto& transfer : list) {
      if (!transfer->suspended || &transfer->initiator.process != &process) continue;
      transfer->suspended = false;
      ScheduleChunk(transfer);
    }
  }
}

}  // namespace furrow::rdma
