#include "cluster/control_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace furrow::cluster {
namespace {

constexpr std::string_view kName = "furrow control 2";

uint64_t Checksum(const BeatMessage& message) {
  return Hash64(std::as_bytes(std::span(&message, 1)).first(offsetof(BeatMessage, checksum)));
}

}  // namespace

ControlLink::ControlLink(Options options, EventLoop& loop, rdma::Fabric& fabric, rdma::CompletionQueue& queue,
                         ClusterClock& clock, SafePoint& safe_point)
    : options_([&options] {
        // The manager answers beats, so this is its rate too.
        options.schedule.slow_ns = std::min(options.schedule.slow_ns, options.lease_ns / options.renewals);
        options.schedule.fast_ns = std::min(options.schedule.fast_ns, options.schedule.slow_ns);
        return std::move(options);
      }()),
      loop_(loop),
      fabric_(fabric),
      queue_(queue),
      clock_(clock),
      safe_point_(safe_point),
      poller_(queue, *this),
      schedule_(options_.schedule) {
  FURROW_CHECK(options_.lease_ns >= kTicksInLease && options_.renewals > 1);
}

ControlLink::~ControlLink() { Stop(); }

bool ControlLink::IsControl(const rdma::ConnectRequest& request) {
  return request.private_data.substr(0, kName.size()) == kName;
}

absl::Status ControlLink::Start() {
  const size_t slots = options_.manager ? kMaxPeers : 2;
  FURROW_ASSIGN_OR_RETURN(memory_, MemoryFile::Anonymous(slots * sizeof(BeatMessage)));
  FURROW_ASSIGN_OR_RETURN(registered_, fabric_.Register(memory_, rdma::Access::kWrite));
  loop_.AddPoller(&poller_);
  if (options_.manager) Beat();
  const Nanos first_tick = loop_.Now() + tick_ns();
  tick_due_.store(first_tick);
  tick_timer_ = loop_.CallAt(first_tick, [this] { Tick(); });
  return absl::OkStatus();
}

void ControlLink::Stop() {
  if (stopped_) return;
  stopped_ = true;
  tick_due_.store(0);
  if (registered_ != nullptr) loop_.RemovePoller(&poller_);
  loop_.Cancel(timer_);
  loop_.Cancel(tick_timer_);
  for (const auto& [node, timer] : expected_) loop_.Cancel(timer);
  peers_.clear();
  first_ = nullptr;
}

std::string ControlLink::PrivateData(size_t slot) const {
  const rdma::RemoteAddress at = registered_->remote_address().Plus(slot * sizeof(BeatMessage));
  const uint32_t key = at.key.value();
  std::string data(kName);
  data.append(reinterpret_cast<const char*>(&at.address), sizeof(at.address));
  data.append(reinterpret_cast<const char*>(&key), sizeof(key));
  return data;
}

absl::StatusOr<rdma::AcceptDecision> ControlLink::Accept(NodeId peer) {
  size_t slot;
  {
    MutexLock lock(&mutex_);
    // A peer that comes again gets its slot again: it has one connection at a time.
    slot = slots_.try_emplace(peer, slots_.size() + 1).first->second;
  }
  if (slot >= kMaxPeers) return absl::ResourceExhaustedError("the manager has slots for no more members");
  return rdma::AcceptDecision{&queue_, PrivateData(slot)};
}

absl::Status ControlLink::AddPeer(std::unique_ptr<rdma::Connection> connection, size_t slot) {
  const std::string_view data = connection->peer_private_data();
  uint32_t key;
  auto peer = std::make_unique<Peer>();
  if (data.size() != kName.size() + sizeof(peer->slots.address) + sizeof(key)) {
    return absl::InvalidArgumentError("a control connection with the wrong private data");
  }
  std::memcpy(&peer->slots.address, data.data() + kName.size(), sizeof(peer->slots.address));
  std::memcpy(&key, data.data() + kName.size() + sizeof(peer->slots.address), sizeof(key));
  peer->slots.key = rdma::RemoteKey(key);
  peer->node = connection->peer();
  peer->slot = slot;
  peer->connection = std::move(connection);
  peer->connection->set_context(peer.get());
  peers_.push_back(std::move(peer));
  return absl::OkStatus();
}

void ControlLink::Connect(NodeId manager, const rdma::Endpoint& endpoint, Nanos timeout_ns,
                          std::function<void(absl::Status)> first) {
  rdma::ConnectionLimits limits;
  limits.urgent = true;
  limits.max_requests = 64;
  limits.max_receives = 0;
  first_ = std::move(first);
  fabric_.Connect(queue_, loop_, endpoint, PrivateData(0), limits, timeout_ns,
                  [this](absl::StatusOr<std::unique_ptr<rdma::Connection>> connection) {
                    if (stopped_) return;
                    absl::Status added =
                        connection.ok() ? AddPeer(*std::move(connection), 0) : connection.status();
                    if (added.ok()) return Beat();
                    std::exchange(first_, nullptr)(added);
                  });
}

void ControlLink::OnConnected(rdma::Connection& connection) {
  std::unique_ptr<rdma::Connection> accepted = queue_.TakeAccepted(&connection);
  const NodeId node = accepted->peer();
  if (auto it = expected_.find(node); it != expected_.end()) {
    loop_.Cancel(it->second);
    expected_.erase(it);
  }
  size_t slot;
  {
    MutexLock lock(&mutex_);
    slot = slots_[node];
  }
  if (absl::Status added = AddPeer(std::move(accepted), slot); !added.ok()) {
    FURROW_LOG(ERROR) << "control connection of node " << node.value() << ": " << added;
  }
}

void ControlLink::OnDisconnected(rdma::Connection& connection) {
  auto* peer = static_cast<Peer*>(connection.context());
  if (peer == nullptr) return;
  const NodeId node = peer->node;
  Discard(peer);
  if (first_) std::exchange(first_, nullptr)(absl::UnavailableError("the configuration manager went away"));
  if (node != NodeId()) options_.lost(node, Loss::kBroken);
}

void ControlLink::Discard(Peer* peer) {
  auto it = std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return p.get() == peer; });
  FURROW_CHECK(it != peers_.end());
  // The connection reports the rest of its completions before it goes.
  std::shared_ptr<Peer> dying = std::move(*it);
  dying->connection->set_context(nullptr);
  peers_.erase(it);
  loop_.CallAt(loop_.Now(), [dying] {});
}

bool ControlLink::alone() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& p) { return p->node == NodeId(); });
}

Nanos ControlLink::overslept() const {
  const Nanos due = tick_due_.load();
  const Nanos late = due == 0 ? 0 : loop_.Now() - due;
  return std::max({late > tick_ns() ? late : 0, overslept_.load(), overslept_before_.load()});
}

void ControlLink::Tick() {
  const Nanos now = loop_.Now();
  const Nanos period = tick_ns();
  const Nanos late = now - tick_due_.load();
  overslept_before_.store(overslept_.exchange(late > period ? late : 0));
  tick_due_.store(now + period);
  tick_timer_ = loop_.CallAt(now + period, [this] { Tick(); });
  std::vector<NodeId> silent;
  for (size_t i = 0; i < peers_.size();) {
    Peer* peer = peers_[i].get();
    if (peer->node == NodeId() || ++peer->silent_ticks < kSilentTicks) {
      ++i;
      continue;
    }
    silent.push_back(peer->node);
    Discard(peer);
  }
  for (NodeId node : silent) {
    if (first_) std::exchange(first_, nullptr)(absl::UnavailableError("the configuration manager is silent"));
    options_.lost(node, Loss::kSilent);
    if (stopped_) return;
  }
}

void ControlLink::Forget(NodeId node) {
  if (auto it = expected_.find(node); it != expected_.end()) {
    loop_.Cancel(it->second);
    expected_.erase(it);
  }
  for (const auto& peer : peers_) {
    if (peer->node == node) {
      peer->node = NodeId();
      peer->active = false;
    }
  }
}

void ControlLink::Expect(NodeId node, Nanos deadline) {
  for (const auto& peer : peers_) {
    if (peer->node == node) return;
  }
  if (expected_.contains(node)) return;
  expected_[node] = loop_.CallAt(deadline, [this, node] {
    expected_.erase(node);
    options_.lost(node, Loss::kNeverCame);
  });
}

bool ControlLink::Load(size_t slot, BeatMessage* message) const {
  uint64_t words[sizeof(BeatMessage) / 8];
  auto* from = reinterpret_cast<uint64_t*>(memory_.data() + slot * sizeof(BeatMessage));
  for (uint64_t& word : words) word = std::atomic_ref<uint64_t>(*from++).load(std::memory_order_acquire);
  std::memcpy(message, words, sizeof(words));
  return message->checksum == Checksum(*message);
}

void ControlLink::OnNotified(rdma::Connection& connection, uint8_t channel) {
  auto* peer = static_cast<Peer*>(connection.context());
  if (peer == nullptr || channel > kPokes) return;
  BeatMessage message;
  // One that is not whole is being replaced, and that is notified too.
  if (!Load(peer->slot + (options_.manager ? 0 : channel), &message)) return;
  peer->silent_ticks = 0;
  if (options_.manager) {
    if (message.type == BeatMessage::kBeat) OnBeat(*peer, message);
  } else if (message.type == BeatMessage::kAnswer) {
    OnAnswer(message);
  } else if (message.type == BeatMessage::kPoke) {
    schedule_.Next(true);
    Beat();
  }
}

void ControlLink::Send(Peer& peer, BeatMessage message, uint8_t channel) {
  message.checksum = Checksum(message);
  rdma::WorkRequest request;
  request.opcode = rdma::Opcode::kWrite;
  request.signaled = false;
  request.notify = rdma::WorkRequest::Notify::kWake;
  request.channel = channel;
  request.inlined = true;
  request.local = std::as_writable_bytes(std::span(&message, 1));
  request.remote = peer.slots.Plus(options_.manager ? channel * sizeof(BeatMessage) : 0);
  absl::Status posted = peer.connection->Post(request);
  // A full queue drops a message; the next one says the same, and newer.
  if (!posted.ok())
    FURROW_LOG_EVERY(WARNING, kSecond) << "beat to node " << peer.node.value() << ": " << posted;
}

bool ControlLink::ActiveHere() const {
  return safe_point_.OldestActive(Timestamp(Timestamp::kMaxValue)) != Timestamp(Timestamp::kMaxValue);
}

bool ControlLink::AnybodyActive() const {
  return active_ || std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return p->active; });
}

void ControlLink::BeatAgainIn(Nanos delay) {
  loop_.Cancel(timer_);
  timer_ = loop_.CallAt(loop_.Now() + delay, [this] { Beat(); });
}

void ControlLink::Beat() {
  if (stopped_) return;
  ClockInterval now;
  // Before the first sample there is no time, and no transaction either.
  const bool has_clock = clock_.Now(&now);
  const Timestamp oldest = has_clock ? safe_point_.OldestActive(now.lower) : Timestamp();
  active_ = ActiveHere();
  if (options_.manager) {
    Safe safe = options_.report(options_.self, oldest, safe_point_.oldest_allowed());
    safe_point_.Advance(safe.global_oldest, safe.safe_point);
    const bool was = std::exchange(active_anywhere_, AnybodyActive());
    if (active_anywhere_ && !was) PokeTheIdle();
    return BeatAgainIn(schedule_.Next(active_anywhere_));
  }
  if (peers_.empty()) return;
  oldest_ = oldest;
  sent_ = clock_.LocalNow();
  SendBeat();
  BeatAgainIn(schedule_.Next(active_ || active_anywhere_));
}

void ControlLink::SendBeat() {
  BeatMessage beat = {};
  beat.type = BeatMessage::kBeat;
  beat.active = active_;
  beat.local = sent_;
  beat.oldest = oldest_.value();
  beat.safe = safe_point_.oldest_allowed().value();
  beat.counter = counter_;
  Send(*peers_[0], beat, kMessages);
}

void ControlLink::OnBeat(Peer& peer, const BeatMessage& message) {
  if (peer.node == NodeId()) return;
  peer.active = message.active != 0;
  peer.poked = false;
  const Nanos now = clock_.LocalNow();
  const Nanos term = options_.lease(peer.node, now, message.counter);
  Safe safe = options_.report(peer.node, Timestamp(message.oldest & Timestamp::kMaxValue),
                              Timestamp(message.safe & Timestamp::kMaxValue));
  safe_point_.Advance(safe.global_oldest, safe.safe_point);
  const bool was = std::exchange(active_anywhere_, AnybodyActive());
  ClockInterval interval;
  const bool has_clock = clock_.Now(&interval);
  // Not the last message of a handshake.
  if (message.local != std::exchange(peer.local, message.local)) {
    BeatMessage answer = {};
    answer.type = BeatMessage::kAnswer;
    answer.active = active_anywhere_;
    answer.local = message.local;
    answer.cluster = has_clock ? clock_.MasterNow().value() : 0;
    answer.oldest = safe.global_oldest.value();
    answer.safe = safe.safe_point.value();
    answer.counter = now;
    answer.term = term;
    Send(peer, answer, kMessages);
  }
  if (active_anywhere_ && !was) {
    PokeTheIdle();
    Beat();
  }
}

void ControlLink::PokeTheIdle() {
  BeatMessage poke = {};
  poke.type = BeatMessage::kPoke;
  for (const auto& peer : peers_) {
    if (peer->node == NodeId() || peer->active || peer->poked) continue;
    peer->poked = true;
    Send(*peer, poke, kPokes);
  }
}

void ControlLink::OnAnswer(const BeatMessage& message) {
  const Nanos now = clock_.LocalNow();
  if (message.local > now) return;
  options_.answered(message.local, std::clamp<Nanos>(message.term, 0, options_.lease_ns));
  if (clock_.sampled() && message.cluster != 0) {
    absl::Status sampled =
        clock_.AddSample(message.local, Timestamp(message.cluster & Timestamp::kMaxValue), now);
    if (!sampled.ok()) return options_.bad_clock(sampled);
  }
  safe_point_.Advance(Timestamp(message.oldest & Timestamp::kMaxValue),
                      Timestamp(message.safe & Timestamp::kMaxValue));
  // The last beat with the newest counter: whichever of the two the manager reads, it has all of it.
  counter_ = message.counter;
  SendBeat();
  const bool was = std::exchange(active_anywhere_, message.active != 0);
  if (first_) std::exchange(first_, nullptr)(absl::OkStatus());
  if (active_anywhere_ && !was && !schedule_.fast()) BeatAgainIn(schedule_.Next(true));
}

}  // namespace furrow::cluster
