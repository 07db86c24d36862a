#include "rdma/sim/sim_fabric.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rdma/sim/sim_kinds.h"

namespace furrow::rdma {

// --- queues ---

SimQueue::~SimQueue() {
  accepted_.clear();
  for (auto& end : network_.ends_) {
    if (end->queue == this) end->queue = nullptr;
  }
}

size_t SimQueue::Poll(std::span<Completion> completions) {
  size_t count = 0;
  while (count < completions.size() && !completions_.empty()) {
    const Completion& next = completions[count++] = completions_.front();
    completions_.pop_front();
    if (next.kind == Completion::Kind::kRequest)
      static_cast<SimConnection*>(next.connection)->end().OnPolled();
  }
  return count;
}

std::unique_ptr<Connection> SimQueue::TakeAccepted(Connection* connection) {
  for (auto it = accepted_.begin(); it != accepted_.end(); ++it) {
    if (it->get() != connection) continue;
    std::unique_ptr<Connection> taken = std::move(*it);
    accepted_.erase(it);
    return taken;
  }
  return nullptr;
}

void SimQueue::Push(const Completion& completion, bool wake) {
  if (parker_.process().dead()) return;
  completions_.push_back(completion);
  if (wake) {
    parker_.Wake();
  } else {
    parker_.ArrivedQuietly();
  }
}

void SimQueue::Notify(Connection& connection, uint8_t channel, bool wake) {
  for (const Completion& c : completions_) {
    if (c.kind == Completion::Kind::kNotified && c.connection == &connection && c.channel == channel) {
      if (wake) parker_.Wake();
      return;  // merged
    }
  }
  Push({.kind = Completion::Kind::kNotified, .channel = channel, .connection = &connection}, wake);
}

void SimQueue::AddAccepted(std::unique_ptr<Connection> connection) {
  Connection* raw = connection.get();
  accepted_.push_back(std::move(connection));
  Push({.kind = Completion::Kind::kConnected, .connection = raw}, true);
}

void SimQueue::Forget(const Connection* connection) {
  std::erase_if(completions_, [&](const Completion& c) { return c.connection == connection; });
}

// --- memory ---

// One attempt to connect; shared by the events that may end it.
struct SimFabric::Connecting {
  SimFabric& from;
  std::shared_ptr<bool> from_alive;
  CompletionQueue& queue;
  EventLoop& loop;
  Endpoint endpoint;
  std::string private_data;
  ConnectionLimits limits;
  ConnectDone done;
  std::unique_ptr<SimConnection> connection;  // once accepted
  bool over = false;
};

struct SimFabric::Region final : public MemoryRegion {
  Region(SimFabric& f, std::shared_ptr<SimRegistration> r) : fabric(f), registration(std::move(r)) {}
  ~Region() override {
    registration->alive = false;
    fabric.remote_.erase(registration->key.value());
    auto it = fabric.local_.find(registration->bytes.data());
    std::erase(it->second, registration);
    if (it->second.empty()) fabric.local_.erase(it);
  }
  std::span<std::byte> bytes() const override { return registration->bytes; }
  RemoteAddress remote_address() const override { return {registration->base, registration->key}; }

  SimFabric& fabric;
  const std::shared_ptr<SimRegistration> registration;
};

SimFabric::SimFabric(SimNetwork& network, SimProcess& process, FabricIdentity identity)
    : network_(network),
      process_(process),
      identity_(std::move(identity)),
      random_(network.world().NewRandom()) {}

SimFabric::~SimFabric() {
  *alive_ = false;
  for (const std::weak_ptr<Connecting>& weak : connecting_) {
    if (auto c = weak.lock()) c->connection.reset();
  }
  std::erase_if(network_.listeners_, [&](auto& entry) { return entry.second == this; });
  for (auto& end : network_.ends_) {
    if (end->fabric == this) end->fabric = nullptr;
  }
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> SimFabric::Register(const MemoryFile& file, Access access) {
  if (file.size() == 0) return absl::InvalidArgumentError("cannot register an empty memory file");
  auto registration = std::make_shared<SimRegistration>();
  registration->bytes = file.bytes();
  registration->access = access;
  registration->base = next_base_;
  next_base_ += (file.size() + 8191) / 4096 * 4096;
  do {
    registration->key = RemoteKey(static_cast<uint32_t>(random_.Next()));
  } while (registration->key.value() == 0 || remote_.contains(registration->key.value()));
  remote_[registration->key.value()] = registration;
  local_[registration->bytes.data()].push_back(registration);
  return std::make_unique<Region>(*this, std::move(registration));
}

std::shared_ptr<SimRegistration> SimFabric::FindLocal(std::span<const std::byte> bytes) const {
  // Mappings of different files do not overlap, so only the last one that begins at or before `bytes` can
  // hold it.
  auto it = local_.upper_bound(bytes.data());
  if (it == local_.begin()) return nullptr;
  --it;
  for (const auto& registration : it->second) {
    if (bytes.data() + bytes.size() <= registration->bytes.data() + registration->bytes.size())
      return registration;
  }
  return nullptr;
}

std::shared_ptr<SimRegistration> SimFabric::FindRemote(RemoteKey key) const {
  auto it = remote_.find(key.value());
  return it == remote_.end() ? nullptr : it->second;
}

absl::StatusOr<std::unique_ptr<CompletionQueue>> SimFabric::CreateCompletionQueue() {
  return std::make_unique<SimQueue>(network_, process_.NewParker());
}

// --- connections ---

absl::StatusOr<Endpoint> SimFabric::Listen(const Endpoint& endpoint, Acceptor acceptor) {
  if (acceptor_ != nullptr) return absl::FailedPreconditionError("this fabric listens already");
  if (!network_.listeners_.emplace(endpoint, this).second) {
    return absl::AlreadyExistsError(absl::StrCat("another fabric listens at \"", endpoint, "\""));
  }
  acceptor_ = std::move(acceptor);
  return endpoint;
}

void SimFabric::Connect(CompletionQueue& queue, EventLoop& loop, const Endpoint& endpoint,
                        std::string private_data, ConnectionLimits limits, Nanos timeout_ns,
                        ConnectDone done) {
  auto c = std::shared_ptr<Connecting>(new Connecting{
      *this, alive_, queue, loop, endpoint, std::move(private_data), limits, std::move(done), nullptr});
  std::erase_if(connecting_, [](const auto& weak) { return weak.expired(); });
  connecting_.push_back(c);
  SimWorld& world = network_.world();
  if (c->private_data.size() > kMaxPrivateData) {
    Reply(c, absl::InvalidArgumentError(absl::StrCat("private data of ", c->private_data.size(),
                                                     " bytes; at most ", kMaxPrivateData, " fit")));
    return;
  }
  world.After(
      timeout_ns,
      [c] {
        Finish(c, absl::DeadlineExceededError(
                      absl::StrCat("no answer from \"", c->endpoint, "\" to the attempt to connect")));
      },
      kSimConnect, process_.serial());
  Nanos latency = network_.DrawLatency(process_.node(), NodeId());
  world.After(
      latency,
      [c] {
        if (*c->from_alive) c->from.Attempt(c);
      },
      kSimConnect, process_.serial());
}

void SimFabric::Attempt(const std::shared_ptr<Connecting>& c) {
  if (c->over || process_.dead()) return;
  auto listener = network_.listeners_.find(c->endpoint);
  if (listener == network_.listeners_.end()) {
    Reply(c, absl::UnavailableError(absl::StrCat("nobody listens at \"", c->endpoint, "\"")));
    return;
  }
  SimProcess& target = listener->second->process_;
  if (network_.IsCut(process_.node(), target.node()) || network_.IsCut(target.node(), process_.node()) ||
      target.state() == SimProcess::State::kPaused) {
    network_.world().After(
        100 * kMicrosecond,
        [c] {
          if (*c->from_alive) c->from.Attempt(c);
        },
        kSimConnect, process_.serial());
    return;
  }
  Reply(c, listener->second->Accept(*c));
}

absl::Status SimFabric::Accept(Connecting& c) {
  SimFabric& from = c.from;
  if (from.identity_.cluster_id != identity_.cluster_id) {
    return absl::FailedPreconditionError(absl::StrCat("\"", c.endpoint, "\" belongs to cluster \"",
                                                      identity_.cluster_id, "\", not to \"",
                                                      from.identity_.cluster_id, "\""));
  }
  if (from.identity_.secret != identity_.secret) {
    return absl::PermissionDeniedError(absl::StrCat("\"", c.endpoint, "\" has another cluster secret"));
  }
  absl::StatusOr<AcceptDecision> decision = acceptor_({from.identity_.node, c.private_data});
  if (!decision.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", c.endpoint, "\" refused the connection: ", decision.status().message()));
  }
  FURROW_CHECK(decision->queue != nullptr && decision->private_data.size() <= kMaxPrivateData);
  SimEnd& near = network_.NewEnd(from, c.queue, c.limits);
  SimEnd& far = network_.NewEnd(*this, *decision->queue, c.limits);
  near.peer = &far;
  far.peer = &near;
  near.peer_private_data = std::move(decision->private_data);
  far.peer_private_data = c.private_data;
  far.established = true;
  c.connection = std::make_unique<SimConnection>(near);
  static_cast<SimQueue*>(decision->queue)->AddAccepted(std::make_unique<SimConnection>(far));
  return absl::OkStatus();
}

void SimFabric::Reply(const std::shared_ptr<Connecting>& c, absl::Status status) {
  network_.world().After(
      network_.DrawLatency(NodeId(), process_.node()), [c, status] { Finish(c, status); }, kSimConnect,
      process_.serial());
}

// Ends the attempt, whichever came first: the answer or the deadline.
void SimFabric::Finish(const std::shared_ptr<Connecting>& c, absl::Status status) {
  if (std::exchange(c->over, true)) return;
  if (!*c->from_alive || c->from.process_.dead()) return;
  if (!status.ok()) c->connection.reset();
  c->loop.Post([c, status] {
    ConnectDone done = std::exchange(c->done, nullptr);
    if (!status.ok()) {
      done(status);
      return;
    }
    if (c->connection == nullptr) return;  // the fabric is gone
    SimEnd& end = c->connection->end();
    std::unique_ptr<Connection> connection = std::move(c->connection);
    done(std::move(connection));
    end.Establish();
  });
}

}  // namespace furrow::rdma
