#include "rdma/verbs/verbs_fabric.h"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_daemon.h"

namespace furrow::rdma {
namespace {

class VerbsRegion final : public MemoryRegion {
 public:
  VerbsRegion(std::shared_ptr<VerbsParts> parts, ibv_mr* registration, std::span<std::byte> bytes)
      : parts_(std::move(parts)), registration_(registration), bytes_(bytes) {}
  ~VerbsRegion() override { parts_->memory->Remove(registration_); }
  std::span<std::byte> bytes() const override { return bytes_; }
  RemoteAddress remote_address() const override { return VerbsMemory::AddressOf(registration_); }

 private:
  const std::shared_ptr<VerbsParts> parts_;  // the device, too
  ibv_mr* const registration_;
  const std::span<std::byte> bytes_;
};

class VerbsCompletionQueue final : public CompletionQueue {
 public:
  VerbsCompletionQueue(VerbsDaemon& daemon, std::shared_ptr<VerbsQueue> queue)
      : daemon_(daemon), queue_(std::move(queue)) {
    daemon_.AddQueue(this, queue_);
  }
  ~VerbsCompletionQueue() override {
    daemon_.RemoveQueue(this);
    queue_->Close();
  }
  size_t Poll(std::span<Completion> completions) override { return queue_->Poll(completions); }
  std::unique_ptr<Connection> TakeAccepted(Connection* connection) override {
    return queue_->TakeAccepted(connection);
  }
  Parker& parker() override { return queue_->parker(); }
  const std::shared_ptr<VerbsQueue>& implementation() const { return queue_; }

 private:
  VerbsDaemon& daemon_;
  const std::shared_ptr<VerbsQueue> queue_;
};

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(std::shared_ptr<VerbsParts> parts, std::unique_ptr<VerbsDaemon> daemon)
      : parts_(std::move(parts)), daemon_(std::move(daemon)) {}

  std::string_view name() const override { return "verbs"; }
  size_t read_piece_bytes() const override { return parts_->device->software() ? 8 : 64; }

  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(const MemoryFile& file, Access access) override {
    FURROW_ASSIGN_OR_RETURN(ibv_mr * registration, parts_->memory->Add(file.bytes(), access));
    return std::make_unique<VerbsRegion>(parts_, registration, file.bytes());
  }

  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue() override {
    FURROW_ASSIGN_OR_RETURN(std::shared_ptr<VerbsQueue> queue, VerbsQueue::Make(parts_));
    return std::make_unique<VerbsCompletionQueue>(*daemon_, std::move(queue));
  }

  absl::StatusOr<Endpoint> Listen(const Endpoint& endpoint, Acceptor acceptor) override {
    return daemon_->Listen(endpoint, std::move(acceptor));
  }

  void Connect(CompletionQueue& queue, EventLoop& loop, const Endpoint& endpoint, std::string private_data,
               ConnectionLimits limits, Nanos timeout_ns, ConnectDone done) override {
    // Looks up a name here, where only this queue waits for it, and not on the daemon's thread.
    sockaddr_storage address = {};
    if (absl::Status parsed = ParseEndpoint(endpoint, /*with_port=*/true, &address); !parsed.ok()) {
      loop.Post([done = std::move(done), status = std::move(parsed)] { done(status); });
      return;
    }
    absl::StatusOr<std::unique_ptr<VerbsConnection>> connection =
        private_data.size() > kMaxPrivateData
            ? absl::InvalidArgumentError(absl::StrCat("private data of ", private_data.size(),
                                                      " bytes; at most ", kMaxPrivateData, " are possible"))
            : VerbsConnection::Make(static_cast<VerbsCompletionQueue&>(queue).implementation(), limits);
    if (!connection.ok()) {
      loop.Post([done = std::move(done), status = connection.status()] { done(status); });
      return;
    }
    auto opening = std::make_unique<VerbsOpening>();
    opening->connection = *std::move(connection);
    opening->loop = &loop;
    opening->endpoint = endpoint;
    opening->address = address;
    opening->private_data = std::move(private_data);
    opening->deadline = parts_->options.clock->Now() + timeout_ns;
    opening->done = std::move(done);
    daemon_->Open(std::move(opening));
  }

  void Kill() { daemon_->Kill(); }
  VerbsUse use() const {
    const VerbsCounters& counters = parts_->counters;
    return {.queue_pairs = counters.queue_pairs.load(),
            .sessions = counters.sessions.load(),
            .manager_ids = counters.manager_ids.load(),
            .registrations = parts_->memory->count(),
            .failures = counters.failures.load(),
            .flushed = counters.flushed.load()};
  }

 private:
  const std::shared_ptr<VerbsParts> parts_;
  const std::unique_ptr<VerbsDaemon> daemon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(VerbsOptions options) {
  FURROW_RETURN_IF_ERROR(CheckVerbsOptions(options));
  auto parts = std::make_shared<VerbsParts>();
  parts->options = std::move(options);
  FURROW_ASSIGN_OR_RETURN(parts->device, VerbsDevice::Open(parts->options));
  if (parts->options.gid_index >= 0) {
    FURROW_RETURN_IF_ERROR(parts->device->GidAt(parts->options.gid_index).status());
  }
  parts->memory = std::make_shared<VerbsMemory>(*parts->device);
  FURROW_ASSIGN_OR_RETURN(std::unique_ptr<VerbsDaemon> daemon, VerbsDaemon::Start(parts));
  const VerbsDevice& device = *parts->device;
  FURROW_LOG(INFO) << "verbs fabric on " << device.name() << " port " << static_cast<int>(device.port())
                   << " at " << parts->options.address << ", MTU " << device.limits().mtu
                   << (device.software() ? ", a software device: the CPU copies" : "");
  return std::make_unique<VerbsFabric>(std::move(parts), std::move(daemon));
}

VerbsUse UseOf(const Fabric& fabric) {
  FURROW_CHECK(fabric.name() == "verbs");
  return static_cast<const VerbsFabric&>(fabric).use();
}

void KillVerbsFabric(Fabric& fabric) {
  FURROW_CHECK(fabric.name() == "verbs");
  static_cast<VerbsFabric&>(fabric).Kill();
}

}  // namespace furrow::rdma
