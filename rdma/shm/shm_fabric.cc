#include "rdma/shm/shm_fabric.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "rdma/shm/shm_daemon.h"

namespace furrow::rdma {
namespace {

class ShmRegion final : public MemoryRegion {
 public:
  ShmRegion(std::shared_ptr<ShmRegistry> registry, RegistrationWord word, std::span<std::byte> bytes)
      : registry_(std::move(registry)), word_(word), bytes_(bytes) {}
  ~ShmRegion() override { registry_->Remove(word_); }
  std::span<std::byte> bytes() const override { return bytes_; }
  RemoteAddress remote_address() const override {
    return {reinterpret_cast<uint64_t>(bytes_.data()), word_.key()};
  }

 private:
  const std::shared_ptr<ShmRegistry> registry_;
  const RegistrationWord word_;
  const std::span<std::byte> bytes_;
};

class ShmCompletionQueue final : public CompletionQueue {
 public:
  ShmCompletionQueue(ShmDaemon& daemon, std::shared_ptr<ShmQueue> queue)
      : daemon_(daemon), queue_(std::move(queue)) {
    daemon_.AddQueue(this, queue_);
  }
  ~ShmCompletionQueue() override {
    daemon_.RemoveQueue(this);
    queue_->Close();
  }
  size_t Poll(std::span<Completion> completions) override { return queue_->Poll(completions); }
  std::unique_ptr<Connection> TakeAccepted(Connection* connection) override {
    return queue_->TakeAccepted(connection);
  }
  Parker& parker() override { return queue_->parker(); }
  const std::shared_ptr<ShmQueue>& implementation() const { return queue_; }

 private:
  ShmDaemon& daemon_;
  const std::shared_ptr<ShmQueue> queue_;
};

class ShmFabric final : public Fabric {
 public:
  ShmFabric(std::shared_ptr<ShmRegistry> registry, std::unique_ptr<ShmDaemon> daemon, const Clock& clock)
      : registry_(std::move(registry)), daemon_(std::move(daemon)), clock_(clock) {}

  std::string_view name() const override { return "shm"; }
  size_t read_piece_bytes() const override { return 8; }

  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(const MemoryFile& file, Access access) override {
    FURROW_ASSIGN_OR_RETURN(const RegistrationWord word, registry_->Add(file, access));
    return std::make_unique<ShmRegion>(registry_, word, file.bytes());
  }

  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue() override {
    FURROW_ASSIGN_OR_RETURN(std::shared_ptr<ShmQueue> queue, ShmQueue::Make(registry_));
    return std::make_unique<ShmCompletionQueue>(*daemon_, std::move(queue));
  }

  absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor) override {
    return daemon_->Listen(endpoint, std::move(acceptor));
  }

  void Connect(CompletionQueue& queue, EventLoop& loop, const Endpoint& endpoint, std::string private_data,
               ConnectionLimits limits, Nanos timeout_ns, ConnectDone done) override {
    absl::StatusOr<std::unique_ptr<ShmConnection>> connection =
        private_data.size() > kMaxPrivateData
            ? absl::InvalidArgumentError(absl::StrCat("private data of ", private_data.size(),
                                                      " bytes; at most ", kMaxPrivateData, " are possible"))
            : ShmConnection::Make(static_cast<ShmCompletionQueue&>(queue).implementation(), limits);
    if (!connection.ok()) {
      loop.Post([done = std::move(done), status = connection.status()] { done(status); });
      return;
    }
    auto opening = std::make_unique<ShmOpening>();
    opening->connection = *std::move(connection);
    opening->loop = &loop;
    opening->endpoint = endpoint;
    opening->private_data = std::move(private_data);
    opening->deadline = clock_.Now() + timeout_ns;
    opening->done = std::move(done);
    daemon_->Open(std::move(opening));
  }

  void Kill() { daemon_->Kill(); }

 private:
  const std::shared_ptr<ShmRegistry> registry_;
  const std::unique_ptr<ShmDaemon> daemon_;
  const Clock& clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeShmFabric(ShmFabricOptions options) {
  if (options.identity.cluster_id.size() > kMaxShmText) {
    return absl::InvalidArgumentError(absl::StrCat("a cluster id has at most ", kMaxShmText, " bytes"));
  }
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<ShmRegistry> made, ShmRegistry::Make());
  std::shared_ptr<ShmRegistry> registry = std::move(made);
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<ShmDaemon> daemon,
                          ShmDaemon::Start(std::move(options.identity), *options.clock, registry));
  return std::make_unique<ShmFabric>(std::move(registry), std::move(daemon), *options.clock);
}

Endpoint ShmEndpoint(std::string_view directory, NodeId node) {
  return absl::StrCat(std::string(directory), "/fabric-", node.value(), ".sock");
}

void KillShmFabric(Fabric& fabric) {
  FURROW_CHECK(fabric.name() == "shm");
  static_cast<ShmFabric&>(fabric).Kill();
}

}  // namespace furrow::rdma
