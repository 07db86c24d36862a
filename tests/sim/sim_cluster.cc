#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "rdma/ring/mesh_wire.h"
#include "storage/region.h"
#include "tests/sim/sim_member.h"
#include "txn/coordinator.h"
#include "txn/participant.h"

namespace furrow::sim {

using cluster::RegionMapping;

namespace {

constexpr uint64_t kClusterHash = 0x5157;

absl::StatusOr<MemoryFile> MakeMemory(const std::string&, size_t bytes) {
  return MemoryFile::Anonymous(bytes);
}

}  // namespace

SimClusterOptions SimClusterOptions::Draw(uint64_t seed) {
  Random random(seed ^ 0x636f6e666967);
  SimClusterOptions o;
  o.workers = static_cast<uint16_t>(random.Between(1, 2));
  o.exact_clocks = random.OneIn(4);
  if (o.exact_clocks) {
    o.world.clocks.max_offset = 0;
    o.world.clocks.max_drift_ppb = 0;
  } else {
    // Two clocks may drift apart by twice this: within the bound of 1000 ppm that the cluster clock relies
    // on.
    o.world.clocks.max_drift_ppb = random.Between(0, 480'000);
    o.sample_delay = random.Between(0, 60) * kMicrosecond;
  }
  if (random.OneIn(3)) o.network = rdma::SimNetworkOptions::SharedMemory();
  if (random.OneIn(3)) o.network = rdma::SimNetworkOptions::Card();
  // READs and WRITEs that end inside the call have a path of their own.
  if (seed % 5 == 1) o.network = rdma::SimNetworkOptions::AtOnce();
  o.network.spread = random.OneIn(2) ? 20 * kMicrosecond : 2 * kMicrosecond;
  o.network.jitter = random.OneIn(2) ? 500 : 20 * kMicrosecond;
  o.network.stall_one_in = random.OneIn(2) ? 0 : 50;
  o.network.stall_ns = random.OneIn(4) ? 3 * kMillisecond : 200 * kMicrosecond;
  // Disturbances are shorter than this: no connection fails by them.
  o.network.peer_timeout_min = 40 * kMillisecond;
  o.network.peer_timeout_max = 80 * kMillisecond;
  o.world.max_steps = 5'000'000;
  return o;
}

std::string SimClusterOptions::ToString() const {
  return absl::StrCat("nodes=", nodes, " compute=", compute_nodes, " workers=", workers,
                      " clocks=", exact_clocks ? "exact" : "sampled", " drift=", world.clocks.max_drift_ppb,
                      "ppb sample_delay=", sample_delay, "ns piece=", network.piece_bytes,
                      network.at_once ? " at once" : "", " spread=", network.spread,
                      "ns jitter=", network.jitter, "ns stall=1/", network.stall_one_in, " up to ",
                      network.stall_ns, "ns");
}

SimCluster::SimCluster(uint64_t seed, SimClusterOptions options)
    : options_(options),
      world_(seed, options.world),
      network_(world_, options.network),
      random_(world_.NewRandom()) {
  for (uint32_t i = 0; i < options.nodes; ++i) members_.push_back(std::make_unique<Member>(*this, i));
}

SimCluster::~SimCluster() = default;

txn::Worker& SimCluster::worker(uint32_t node, uint32_t worker) { return *members_[node]->workers[worker]; }
txn::Node& SimCluster::node(uint32_t node) { return *members_[node]->node; }
rdma::SimProcess& SimCluster::process(uint32_t node) { return members_[node]->process; }

absl::Status SimCluster::Start() {
  const std::shared_ptr<const cluster::ClusterView> view = MakeView();
  for (auto& m : members_) {
    txn::NodeOptions o;
    o.id = IdOf(m->index);
    o.incarnation = Incarnation(1);
    o.cluster_hash = kClusterHash;
    o.workers = options_.workers;
    o.region_bytes = options_.region_bytes;
    o.validate_by_message_above = options_.validate_by_message_above;
    o.mesh.log_ring_bytes = options_.log_ring_bytes;
    o.mesh.message_ring_bytes = 32 << 10;
    o.mesh.reply_ring_bytes = 32 << 10;
    o.mesh.max_log_record = options_.log_ring_bytes / 8;
    o.mesh.max_message = 4 << 10;
    o.mesh.staging_bytes = 256 << 10;
    o.mesh.make_memory = MakeMemory;
    m->node = std::make_unique<txn::Node>(o, m->process.clock(), *m->fabric, MakeMemory, m->clock, m->lease,
                                          m->safe_point, m->directory, &m->old_versions, m->budget);
    m->node->control = &m->control;
    if (options_.recovery) m->recovery = std::make_unique<txn::NodeRecovery>(*m->node);
    m->node->SetView(view);
    rounds_.Add(IdOf(m->index));
    for (uint16_t w = 0; w < options_.workers; ++w) {
      FURROW_ASSIGN_OR_RETURN(auto queue, m->fabric->CreateCompletionQueue());
      m->queues.push_back(std::move(queue));
      m->loops.push_back(std::make_unique<EventLoop>(m->process.clock(), m->queues.back()->parker()));
      m->process.Attach(*m->loops.back(), m->queues.back()->parker());
      m->workers.push_back(std::make_unique<txn::Worker>(*m->node, WorkerId(w), *m->loops.back(),
                                                         *m->queues.back(), random_.Next()));
      if (m->recovery != nullptr) m->recovery->AddWorker(*m->workers.back());
      FURROW_RETURN_IF_ERROR(m->workers.back()->Start());
    }
    Member* raw = m.get();
    FURROW_RETURN_IF_ERROR(
        m->fabric
            ->Listen(absl::StrCat(m->index + 1),
                     [raw](const rdma::ConnectRequest& request) -> absl::StatusOr<rdma::AcceptDecision> {
                       FURROW_ASSIGN_OR_RETURN(rdma::MeshRequest wire,
                                               rdma::UnpackRequest(request.private_data));
                       return raw->workers[wire.from.worker % raw->workers.size()]->PrepareAccept(request);
                     })
            .status());
  }
  Timestamp start(static_cast<uint64_t>(world_.now()));
  for (auto& m : members_) {
    if (m->index == 0) {
      m->clock.StartMaster(start);
    } else if (options_.exact_clocks) {
      m->clock.StartShared(members_[0]->clock.origin());
    } else {
      m->clock.StartSampled();
    }
    Exchange(*m);
  }
  size_t connected = 0;
  size_t wanted = 0;
  absl::Status status;
  auto connect = [](txn::Worker& worker, NodeId node, absl::Status* result, size_t* done) -> Task<void> {
    absl::Status s = co_await worker.ConnectTo(node, absl::StrCat(node.value()));
    if (!s.ok()) *result = s;
    ++*done;
  };
  for (auto& from : members_) {
    for (auto& to : members_) {
      if (from == to) continue;
      for (auto& worker : from->workers) {
        ++wanted;
        worker->loop().Spawn(connect(*worker, IdOf(to->index), &status, &connected));
      }
    }
  }
  FURROW_RETURN_IF_ERROR(world_.RunUntil(
      [&] {
        cluster::ClockInterval now;
        return connected == wanted &&
               std::all_of(members_.begin(), members_.end(), [&](auto& m) { return m->clock.Now(&now); });
      },
      world_.now() + 2 * kSecond));
  return status;
}

// One exchange with the manager, over drawn delays: a clock sample, a report of the oldest active
// transaction, and back what the manager makes of all reports. Then the next one.
void SimCluster::Exchange(Member& m) {
  Nanos next = random_.Between(options_.sample_every / 2, options_.sample_every * 3 / 2);
  world_.After(next, [this, &m] { Exchange(m); });
  if (m.process.state() != rdma::SimProcess::State::kRunning) return;
  Nanos sent = m.clock.LocalNow();
  cluster::ClockInterval now;
  Timestamp oldest;
  if (m.clock.Now(&now)) oldest = m.safe_point.OldestActive(now.lower);
  Timestamp known = m.safe_point.oldest_allowed();
  Nanos there = Delay();
  Nanos back = Delay();
  world_.After(there, [this, &m, sent, oldest, known, back] {
    Timestamp master = members_[0]->clock.MasterNow();
    rounds_.Report(IdOf(m.index), oldest, known);
    world_.After(back,
                 [this, &m, sent, master, global = rounds_.global_oldest(), safe = rounds_.safe_point()] {
                   if (m.process.state() != rdma::SimProcess::State::kRunning) return;  // the answer is lost
                   m.safe_point.Advance(global, safe);
                   if (m.index == 0 || options_.exact_clocks) return;
                   absl::Status status = m.clock.AddSample(sent, master, m.clock.LocalNow());
                   FURROW_CHECK(status.ok());
                 });
  });
}

absl::StatusOr<RegionId> SimCluster::AddRegion(uint32_t primary, RegionId near) {
  RegionMapping mapping;
  mapping.id = RegionId(static_cast<uint32_t>(regions_.size()) + 1);
  mapping.bytes = options_.region_bytes;
  mapping.locality = near == RegionId() ? mapping.id : near;
  mapping.config = mapping.last_primary_change = mapping.last_replica_change = config_;
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < nodes() && places.size() < options_.replicas; ++i) {
    const uint32_t at = (primary + i) % nodes();
    if (IsMember(at) && IsStorage(at)) places.push_back(at);
  }
  for (const RegionMapping& other : regions_) {  // the group's place
    if (near == RegionId() || other.id != near) continue;
    mapping.locality = other.locality;
    places.clear();
    for (const cluster::Replica& replica : other.replicas) places.push_back(replica.node.value() - 1);
  }
  primary = places[0];
  for (uint32_t at : places) {
    FURROW_ASSIGN_OR_RETURN(rdma::RemoteAddress memory,
                            members_[at]->node->CreateReplica(mapping.id, mapping.locality, mapping.bytes,
                                                              config_, at == primary));
    mapping.replicas.push_back({IdOf(at), memory});
  }
  cluster::ClockInterval now;
  if (members_[primary]->clock.Now(&now)) mapping.floor = now.upper;
  regions_.push_back(mapping);
  for (auto& m : members_) m->directory.Put(mapping);
  return mapping.id;
}

void SimCluster::Abandon() {
  for (auto& m : members_) {
    for (auto& loop : m->loops) {
      m->process.Detach(*loop);
      loop->DestroyTasks();
    }
  }
}

// --- disturbance ---

void SimCluster::StartDisturbance(std::function<bool()> stop) { Disturb(std::move(stop)); }

void SimCluster::Disturb(std::function<bool()> stop) {
  if (stop()) return;
  NodeId a = IdOf(static_cast<uint32_t>(random_.Below(nodes())));
  NodeId b = IdOf(static_cast<uint32_t>(random_.Below(nodes())));
  Nanos length = random_.Between(10 * kMicrosecond, 3 * kMillisecond);
  // Where requests end inside the call, links are neither cut nor slow: processes still stop.
  switch (options_.network.at_once ? 2 : random_.Below(4)) {
    case 0:
      network_.Cut(a, b);
      world_.After(length, [this, a, b] { network_.Heal(a, b); });
      break;
    case 1:
      network_.Slow(a, b, random_.Between(1, 300 * kMicrosecond));
      world_.After(length, [this, a, b] { network_.Slow(a, b, 0); });
      break;
    case 2: {
      rdma::SimProcess& process = members_[a.value() - 1]->process;
      if (process.dead()) break;
      world_.Pause(process);
      world_.After(length, [this, &process] {
        if (!process.dead()) world_.Resume(process);
      });
      break;
    }
    default:
      break;
  }
  world_.After(random_.Between(length, 2 * kMillisecond + length), [this, stop] { Disturb(stop); });
}

// --- comparison ---

absl::Status SimCluster::DrainAndCompare() {
  network_.HealAll();
  for (auto& m : members_) {
    if (!m->process.dead()) world_.Resume(m->process);
  }
  size_t drained = 0;
  size_t wanted = 0;
  absl::Status status;
  auto drain = [](txn::Worker& worker, absl::Status* result, size_t* done) -> Task<void> {
    absl::Status s = co_await worker.Drain();
    if (!s.ok()) *result = s;
    ++*done;
  };
  for (auto& m : members_) {
    if (!IsMember(m->index)) continue;
    for (auto& worker : m->workers) {
      ++wanted;
      worker->loop().Spawn(drain(*worker, &status, &drained));
    }
  }
  FURROW_RETURN_IF_ERROR(
      WithWhatIsHeld(world_.RunUntil([&] { return drained == wanted; }, world_.now() + 10 * kSecond)));
  FURROW_RETURN_IF_ERROR(status);
  FURROW_RETURN_IF_ERROR(world_.RunFor(20 * kMillisecond));
  for (auto& m : members_) {
    if (IsMember(m->index) && m->node->locks.size() != 0) {
      return absl::InternalError(absl::StrCat("node ", m->index + 1, " still has ", m->node->locks.size(),
                                              " locks after the drain (", world_.Where(), ")"));
    }
  }
  for (const RegionMapping& mapping : regions_) FURROW_RETURN_IF_ERROR(CompareRegion(mapping));
  return absl::OkStatus();
}

// A drain that comes to no end: which rings are not empty.
absl::Status SimCluster::WithWhatIsHeld(absl::Status status) const {
  if (status.ok()) return status;
  std::string held;
  for (const auto& m : members_) {
    if (!IsMember(m->index)) continue;
    for (const auto& worker : m->workers) {
      absl::StrAppend(&held, "\n  node ", m->index + 1, " worker ", worker->id().value(), ": holds ",
                      worker->participant().held_records(), " records, ",
                      worker->coordinator().HasUntold() ? "has" : "no", " untold");
      const rdma::RingWriter& self = *worker->mesh().self_link().log;
      absl::StrAppend(&held, ", ", self.capacity() - self.max_record() - self.free_bytes(),
                      " bytes to itself",
                      m->process.state() == rdma::SimProcess::State::kRunning ? "" : ", does not run");
      for (const auto& state : worker->coordinator().links()) {
        const rdma::RingWriter& log = *state->link->log;
        if (state->link->gone || log.empty()) continue;
        absl::StrAppend(&held, ", ", log.capacity() - log.max_record() - log.free_bytes(), " bytes to node ",
                        state->link->node.value());
      }
    }
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), held));
}

absl::Status SimCluster::CompareRegion(const RegionMapping& mapping) {
  std::vector<storage::Region*> copies;
  for (const cluster::Replica& replica : mapping.replicas) {
    copies.push_back(members_[replica.node.value() - 1]->node->regions.Find(mapping.id));
  }
  for (uint32_t block = 1; block < copies[0]->blocks(); ++block) {
    storage::BlockHeader header = copies[0]->ReadBlock(block);
    for (size_t c = 1; c < copies.size(); ++c) {
      storage::BlockHeader other = copies[c]->ReadBlock(block);
      if (other.slot_bytes != header.slot_bytes || other.version != header.version) {
        return absl::InternalError(
            absl::StrCat("block ", block, " of region ", mapping.id.value(), " is cut differently at node ",
                         mapping.replicas[c].node.value(), ": ", other.slot_bytes, " bytes in cut ",
                         other.version, ", at the primary ", header.slot_bytes, " in cut ", header.version));
      }
    }
    if (header.slot_bytes == 0) continue;
    std::vector<std::byte> first(storage::PayloadCapacity(header.slot_bytes));
    std::vector<std::byte> second(first.size());
    for (uint32_t slot = 0; slot < header.slots; ++slot) {
      uint32_t offset = block * storage::kBlockBytes + slot * header.slot_bytes;
      storage::ObjectHeader h0, h1;
      if (storage::CopyObject(copies[0]->SlotAt(offset), first, &h0) != storage::CopyResult::kObject) {
        return absl::InternalError(absl::StrCat("object ", ToString(Address(mapping.id, offset)),
                                                " is locked or torn after the drain"));
      }
      for (size_t c = 1; c < copies.size(); ++c) {
        bool whole =
            storage::CopyObject(copies[c]->SlotAt(offset), second, &h1) == storage::CopyResult::kObject;
        if (whole && h0.word == h1.word && (!h0.word.allocated() || first == second)) continue;
        return absl::InternalError(absl::StrCat(
            "object ", ToString(Address(mapping.id, offset)), " differs: node ",
            mapping.primary().node.value(), " has word ", absl::Hex(h0.word.bits()), ", node ",
            mapping.replicas[c].node.value(), " has ", absl::Hex(h1.word.bits()), " (", world_.Where(), ")"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace furrow::sim
