#include "client/member.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/prefaulter.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "client/cluster_files.h"
#include "client/member_fabric.h"
#include "client/member_host.h"
#include "cluster/agent.h"
#include "cluster/file_config_store.h"
#include "cluster/secret.h"
#include "index/catalog.h"
#include "rdma/ring/mesh.h"
#include "storage/memory_budget.h"
#include "storage/old_versions.h"

namespace furrow::client {
namespace {

constexpr uint64_t kBudgetReserve = uint64_t{4} << 20;
constexpr Nanos kDrainTimeoutNs = 5 * kSecond;
constexpr Nanos kEndTimeoutNs = 10 * kSecond;
// What a member of a small cluster opens until it is ready, as counted; without them it hangs or fails in the
// middle of joining.
constexpr uint64_t kComputeDescriptors = 20;
constexpr uint64_t kStorageDescriptors = 40;
constexpr uint64_t kWorkerDescriptors = 4;
constexpr size_t kPageBytes = 4096;
constexpr uint32_t kExpectedPeers = 4;  // whose rings the estimate of memory allows for

std::string ShortId(const std::string& cluster_id) { return cluster_id.substr(0, 12); }

std::string NewHex(int words) {
  std::string hex;
  for (int i = 0; i < words; ++i) absl::StrAppend(&hex, absl::StrFormat("%016x", EntropySeed()));
  return hex;
}

// One worker: its queue, loop, thread and transactions.
struct WorkerThread {
  std::unique_ptr<rdma::CompletionQueue> queue;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<txn::Worker> worker;
  Thread thread;
};

}  // namespace

class Member::Impl {
 public:
  explicit Impl(MemberOptions options) : options_(std::move(options)) {}
  ~Impl() {
    Stop().IgnoreError();
    agent_.reset();
    node_.reset();
    old_version_region_.reset();
    fabric_.reset();
    if (!socket_path_.empty()) unlink(socket_path_.c_str());
  }

  absl::Status Start();
  absl::Status Stop();

  const MemberOptions options_;
  std::string cluster_id_;
  NodeId id_;
  Incarnation incarnation_;
  // In the order in which they are made; they die in the reverse one.
  std::string secret_;
  OwnedDirectory memory_directory_;
  Prefaulter prefaulter_;
  FabricChoice fabric_choice_;
  std::string socket_path_;  // fabric shm, once it listens
  rdma::Endpoint endpoint_;
  FileLock directory_lock_;
  bool made_cluster_files_ = false;
  bool made_secret_ = false;
  std::unique_ptr<cluster::FileConfigStore> store_;
  std::unique_ptr<storage::MemoryBudget> budget_;
  std::unique_ptr<cluster::ClusterClock> clock_;
  std::unique_ptr<cluster::SafePoint> safe_point_;
  std::unique_ptr<cluster::RegionDirectory> directory_;
  Mutex accept_mutex_;
  bool accepting_ ABSL_GUARDED_BY(accept_mutex_) = false;
  std::unique_ptr<rdma::Fabric> fabric_;
  MemoryFile old_version_memory_;
  std::unique_ptr<rdma::MemoryRegion> old_version_region_;
  std::unique_ptr<storage::OldVersionArena> old_versions_;
  std::unique_ptr<MemberHostImpl> host_;
  std::unique_ptr<cluster::Agent> agent_;
  std::unique_ptr<txn::Node> node_;
  std::vector<WorkerThread> workers_;
  bool member_ = false;
  bool stopped_ = false;
  uint32_t replicas_ = 0;
  uint64_t region_bytes_ = 0;
  cluster::Introduction introduction_;

 private:
  absl::Status LockDirectory();
  absl::Status PrepareNewCluster();
  absl::Status FindCluster();
  absl::Status CheckMemory();
  absl::Status MakeDirectories();
  absl::Status MakeFabric();
  absl::Status MakeMemory();
  absl::Status MakeAgent();
  absl::Status MakeWorkers();
  absl::Status Bootstrap();
  absl::Status Join();
  absl::Status LeaveOrEnd();
  void RemoveClusterFiles();
  const std::string& ClusterDirectory() const {
    return options_.cluster_directory.empty() ? options_.directory : options_.cluster_directory;
  }
  rdma::MeshOptions MeshOptions() const;
  absl::StatusOr<MemoryFile> NewMemory(const std::string& name, size_t bytes);
  uint64_t RingBytes() const;
  uint64_t RegionCapacity() const;
};

absl::Status Member::Impl::Start() {
  FURROW_RETURN_IF_ERROR(Validate(options_));
  FURROW_RETURN_IF_ERROR(CheckDescriptors((options_.storage ? kStorageDescriptors : kComputeDescriptors) +
                                          kWorkerDescriptors * options_.workers));
  FURROW_RETURN_IF_ERROR(LockDirectory());
  FURROW_RETURN_IF_ERROR(options_.cluster.empty() ? PrepareNewCluster() : FindCluster());
  FURROW_ASSIGN_OR_RETURN(fabric_choice_,
                          options_.cluster.empty()
                              ? ChooseFabric(options_, ListRdmaDevices())
                              : JoinFabric(options_, introduction_.fabric, introduction_.manager_address));
  FURROW_RETURN_IF_ERROR(CheckMemory());
  FURROW_RETURN_IF_ERROR(MakeDirectories());
  FURROW_RETURN_IF_ERROR(MakeFabric());
  FURROW_RETURN_IF_ERROR(MakeMemory());
  FURROW_RETURN_IF_ERROR(MakeAgent());
  FURROW_RETURN_IF_ERROR(MakeWorkers());
  FURROW_LOG(INFO) << "fabric " << fabric_choice_.name << " at " << endpoint_ << ": " << fabric_choice_.why;
  {
    MutexLock lock(&accept_mutex_);
    accepting_ = true;
  }
  for (WorkerThread& w : workers_) {
    w.thread =
        Thread({.name = absl::StrCat("worker", w.worker->id().value()), .realtime_priority = 0, .cpu = {}},
               [loop = w.loop.get()] { loop->Run(); });
  }
  return options_.cluster.empty() ? Bootstrap() : Join();
}

// One process per directory: a second one would mistake the first one's files for its own.
absl::Status Member::Impl::LockDirectory() {
  if (options_.directory.empty()) return absl::OkStatus();
  FURROW_RETURN_IF_ERROR(CheckWritable(options_.directory, "MemberOptions::directory"));
  FURROW_ASSIGN_OR_RETURN(directory_lock_, FileLock::Take(options_.directory + "/node.lock"));
  return absl::OkStatus();
}

absl::Status Member::Impl::PrepareNewCluster() {
  const std::string& directory = ClusterDirectory();
  FURROW_RETURN_IF_ERROR(CheckWritable(directory, options_.cluster_directory.empty()
                                                      ? "MemberOptions::directory"
                                                      : "MemberOptions::cluster_directory"));
  id_ = NodeId(options_.id);
  incarnation_ = Incarnation(uint64_t{1} << 20);
  cluster_id_ = NewHex(2);
  replicas_ = options_.replicas;
  region_bytes_ = options_.region_bytes;
  FURROW_ASSIGN_OR_RETURN(
      store_, cluster::FileConfigStore::Open(
                  {.directory = directory + "/config", .expect_cluster_id = "", .fail = nullptr}));
  absl::StatusOr<cluster::StoredConfiguration> stored = store_->Read();
  if (stored.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the directory ", directory, " holds cluster ", stored->configuration.cluster_id,
        " already, and a cluster cannot be restarted yet: name another directory, or remove this one if that "
        "cluster's data is not needed"));
  }
  if (!absl::IsNotFound(stored.status())) return stored.status();
  made_cluster_files_ = true;
  if (!options_.secret_file.empty()) {
    FURROW_ASSIGN_OR_RETURN(secret_, cluster::ReadSecret(options_.secret_file));
    return absl::OkStatus();
  }
  const std::string path = directory + "/secret";
  absl::Status written = cluster::WriteSecret(path, NewHex(4));
  // One that was put there before is taken: so that all members can be started at once.
  if (!written.ok() && !absl::IsAlreadyExists(written)) return written;
  made_secret_ = written.ok();
  FURROW_ASSIGN_OR_RETURN(secret_, cluster::ReadSecret(path));
  return absl::OkStatus();
}

absl::Status Member::Impl::FindCluster() {
  FURROW_ASSIGN_OR_RETURN(ClusterAddress at, client::FindCluster(options_.cluster, options_.secret_file));
  FURROW_ASSIGN_OR_RETURN(secret_, cluster::ReadSecret(at.secret_file));
  FURROW_ASSIGN_OR_RETURN(introduction_, Hello(options_, secret_, at.address));
  cluster_id_ = introduction_.cluster_id;
  id_ = introduction_.id;
  incarnation_ = introduction_.incarnation;
  replicas_ = introduction_.replicas;
  region_bytes_ = introduction_.region_bytes;
  return absl::OkStatus();
}

// Peers that come before the agent and the workers are there, or after the member has stopped, are refused.
absl::Status Member::Impl::MakeFabric() {
  FURROW_ASSIGN_OR_RETURN(fabric_,
                          client::MakeFabric(fabric_choice_, options_.rdma, {id_, cluster_id_, secret_}));
  FURROW_ASSIGN_OR_RETURN(
      endpoint_,
      fabric_->Listen(endpoint_,
                      [this](const rdma::ConnectRequest& request) -> absl::StatusOr<rdma::AcceptDecision> {
                        MutexLock lock(&accept_mutex_);
                        if (!accepting_) return absl::UnavailableError("this member is starting or stopping");
                        if (cluster::ControlLink::IsControl(request)) return agent_->Accept(request);
                        return host_->Accept(request);
                      }));
  if (fabric_choice_.name == "shm") socket_path_ = endpoint_;
  return absl::OkStatus();
}

// What rings and buffers will take once the expected number of peers has connected.
uint64_t Member::Impl::RingBytes() const {
  const rdma::MeshOptions mesh = MeshOptions();
  const uint64_t inbound = uint64_t{mesh.log_ring_bytes} + mesh.message_ring_bytes;
  const uint64_t per_worker = mesh.staging_bytes + inbound + mesh.reply_ring_bytes;
  const uint64_t per_peer = inbound + mesh.reply_ring_bytes;
  return options_.workers * (per_worker + kExpectedPeers * per_peer);
}

uint64_t Member::Impl::RegionCapacity() const {
  const uint64_t other = RingBytes() + options_.old_version_bytes + kBudgetReserve;
  return !options_.storage || options_.memory_bytes <= other
             ? 0
             : (options_.memory_bytes - other) / region_bytes_;
}

absl::Status Member::Impl::CheckMemory() {
  FURROW_RETURN_IF_ERROR(CheckWritable(options_.memory_root, "MemberOptions::memory_root"));
  const uint64_t fixed = RingBytes() + (options_.storage ? options_.old_version_bytes : 0) + kBudgetReserve;
  if (options_.storage && RegionCapacity() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("MemberOptions::memory_bytes of ", FormatBytes(options_.memory_bytes),
                     " is too little: rings and old versions take ", FormatBytes(fixed), " and one region ",
                     FormatBytes(region_bytes_), ": give at least ", FormatBytes(fixed + region_bytes_)));
  }
  if (!options_.storage && options_.memory_bytes < fixed) {
    return absl::InvalidArgumentError(absl::StrCat("MemberOptions::memory_bytes of ",
                                                   FormatBytes(options_.memory_bytes),
                                                   " is too little: rings take ", FormatBytes(fixed)));
  }
  FURROW_ASSIGN_OR_RETURN(uint64_t free, FreeBytes(options_.memory_root));
  const uint64_t needed = options_.storage ? options_.memory_bytes : fixed;
  if (free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(options_.memory_root, " has ", FormatBytes(free),
                                                   " free, and this member may need ", FormatBytes(needed),
                                                   ": give it less with MemberOptions::memory_bytes, or make "
                                                   "that file system larger (mount -o remount,size=... ",
                                                   options_.memory_root, ")"));
}

absl::Status Member::Impl::MakeDirectories() {
  FURROW_ASSIGN_OR_RETURN(endpoint_,
                          EndpointFor(fabric_choice_, options_.socket_directory,
                                      absl::StrCat(ShortId(cluster_id_), "-n", id_.value(), ".sock")));
  const std::string memory =
      absl::StrCat(options_.memory_root, "/furrow-", ShortId(cluster_id_), "-n", id_.value());
  absl::StatusOr<OwnedDirectory> made = OwnedDirectory::Make(memory);
  if (absl::IsAlreadyExists(made.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("node ", id_.value(), " of this cluster runs already, or left its memory in ", memory,
                     " when it was killed: choose another MemberOptions::id, or remove that directory"));
  }
  FURROW_RETURN_IF_ERROR(made.status());
  memory_directory_ = *std::move(made);
  return options_.directory.empty() ? absl::OkStatus() : directory_lock_.Note("memory=" + memory);
}

absl::StatusOr<MemoryFile> Member::Impl::NewMemory(const std::string& name, size_t bytes) {
  FURROW_ASSIGN_OR_RETURN(MemoryFile file,
                          MemoryFile::Open(absl::StrCat(memory_directory_.path(), "/", name), bytes,
                                           {.huge_pages = options_.huge_pages, .must_be_new = true}));
  prefaulter_.Add(file);
  return file;
}

rdma::MeshOptions Member::Impl::MeshOptions() const {
  rdma::MeshOptions mesh;
  mesh.log_ring_bytes = options_.log_ring_bytes;
  mesh.message_ring_bytes = options_.message_ring_bytes;
  mesh.reply_ring_bytes = options_.message_ring_bytes;
  mesh.max_log_record = std::min(mesh.max_log_record, options_.log_ring_bytes / 4);
  mesh.max_message = std::min(mesh.max_message, options_.message_ring_bytes / 4);
  mesh.staging_bytes = std::max(options_.log_ring_bytes, mesh.max_log_record * 4);
  return mesh;
}

absl::Status Member::Impl::MakeMemory() {
  budget_ = std::make_unique<storage::MemoryBudget>(options_.memory_bytes, kBudgetReserve);
  clock_ = std::make_unique<cluster::ClusterClock>(
      MonotonicClock(), cluster::ClusterClock::Options{.offset_ns = options_.clock_offset_ns,
                                                       .uncertainty_ns = options_.clock_uncertainty_ns});
  safe_point_ = std::make_unique<cluster::SafePoint>(options_.workers);
  directory_ = std::make_unique<cluster::RegionDirectory>();
  if (!options_.storage) return absl::OkStatus();
  FURROW_RETURN_IF_ERROR(budget_->Charge("old versions", options_.old_version_bytes));
  FURROW_ASSIGN_OR_RETURN(old_version_memory_, NewMemory("old-versions", options_.old_version_bytes));
  FURROW_ASSIGN_OR_RETURN(old_version_region_, fabric_->Register(old_version_memory_, rdma::Access::kRead));
  old_versions_ = std::make_unique<storage::OldVersionArena>(old_version_memory_);
  return absl::OkStatus();
}

absl::Status Member::Impl::MakeAgent() {
  host_ = std::make_unique<MemberHostImpl>(options_.on_end, &index::Catalog::Bootstrap);
  cluster::Agent::Options agent;
  agent.self.id = id_;
  agent.self.incarnation = incarnation_;
  agent.self.role = options_.storage ? cluster::Role::kStorage : cluster::Role::kCompute;
  agent.self.failure_domain =
      options_.failure_domain.empty() ? absl::StrCat("node ", id_.value()) : options_.failure_domain;
  agent.self.fabric_endpoint = endpoint_;
  agent.self.workers = options_.workers;
  if (old_version_region_ != nullptr) {
    agent.self.old_versions = old_version_region_->remote_address();
    agent.self.old_version_bytes = old_version_memory_.size();
  }
  agent.region_capacity = RegionCapacity();
  agent.cluster_id = cluster_id_;
  agent.secret = secret_;
  agent.lease_ns = options_.lease_ns;
  agent.lease_renewals = static_cast<int>(options_.lease_renewals);
  agent.fabric = fabric_choice_.name;
  // A clock that is off is not the manager's.
  if (options_.clock_offset_ns == 0) agent.clock_domain = ClockDomain();
  agent_ = std::make_unique<cluster::Agent>(std::move(agent), *host_, MonotonicClock(), *fabric_, *clock_,
                                            *safe_point_, *directory_);
  return agent_->Listen(options_.listen);
}

absl::Status Member::Impl::MakeWorkers() {
  txn::NodeOptions o;
  o.id = id_;
  o.incarnation = incarnation_;
  o.cluster_hash = Hash64(cluster_id_);
  o.workers = options_.workers;
  o.region_bytes = region_bytes_;
  o.mesh = MeshOptions();
  o.mesh.make_memory = [this](const std::string& name, size_t bytes) -> absl::StatusOr<MemoryFile> {
    bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;  // what the file takes
    FURROW_RETURN_IF_ERROR(budget_->Charge("rings", bytes));
    absl::StatusOr<MemoryFile> memory = NewMemory(name, bytes);
    if (!memory.ok()) budget_->Release("rings", bytes);
    return memory;
  };
  o.mesh.free_memory = [this](MemoryFile memory) {
    budget_->Release("rings", memory.size());
    unlink(memory.path().c_str());
  };
  node_ = std::make_unique<txn::Node>(
      std::move(o), MonotonicClock(), *fabric_,
      [this](const std::string& name, size_t bytes) { return NewMemory(name, bytes); }, *clock_,
      agent_->lease(), *safe_point_, *directory_, old_versions_.get(), *budget_);
  node_->control = &agent_->control_plane();
  node_->data_link_lost = [this](NodeId peer) { agent_->OnDataLinkLost(peer); };
  std::vector<txn::Worker*> workers;
  for (uint16_t i = 0; i < options_.workers; ++i) {
    WorkerThread& w = workers_.emplace_back();
    FURROW_ASSIGN_OR_RETURN(w.queue, fabric_->CreateCompletionQueue());
    w.loop = std::make_unique<EventLoop>(MonotonicClock(), w.queue->parker(), options_.idle);
    w.worker = std::make_unique<txn::Worker>(*node_, WorkerId(i), *w.loop, *w.queue, EntropySeed());
    FURROW_RETURN_IF_ERROR(w.worker->Start());
    workers.push_back(w.worker.get());
  }
  host_->Open(node_.get(), std::move(workers));
  return absl::OkStatus();
}

absl::Status Member::Impl::Bootstrap() {
  agent_->SetConfigurationWatcher([this](const cluster::Configuration& configuration) {
    ClusterFile file{configuration.cluster_id, {agent_->control_address()}};
    for (const cluster::Member& m : configuration.members) {
      if (m.role == cluster::Role::kStorage && m.id != id_) file.addresses.push_back(m.control_address);
    }
    absl::Status written = WriteClusterFile(ClusterDirectory(), file);
    if (!written.ok()) FURROW_LOG(WARNING) << "tools will not find the cluster by its directory: " << written;
  });
  // Nothing was found in memory or on disk, so the wall clock is above it all; it also keeps later clusters
  // above this one.
  FURROW_RETURN_IF_ERROR(agent_->Bootstrap(std::move(store_), replicas_, region_bytes_,
                                           Timestamp(static_cast<uint64_t>(WallClockNow()))));
  member_ = true;
  return agent_->Ready();
}

absl::Status Member::Impl::Join() {
  FURROW_RETURN_IF_ERROR(agent_->Join(introduction_));
  member_ = true;
  FURROW_RETURN_IF_ERROR(host_->ConnectAll(*agent_->view()));
  return agent_->Ready();
}

absl::Status Member::Impl::Stop() {
  if (std::exchange(stopped_, true)) return absl::OkStatus();
  absl::Status result;
  if (member_ && host_->ended().ok()) result = LeaveOrEnd();
  {
    MutexLock lock(&accept_mutex_);
    accepting_ = false;
  }
  if (agent_ != nullptr) agent_->Stop();
  if (host_ != nullptr) host_->Close();
  for (WorkerThread& w : workers_) {
    if (w.loop == nullptr) continue;
    w.loop->Stop();
    w.thread.Join();
  }
  for (WorkerThread& w : workers_) {
    if (w.loop != nullptr) w.loop->DestroyTasks();
  }
  for (WorkerThread& w : workers_) {
    w.worker.reset();
    w.loop.reset();
    w.queue.reset();
  }
  RemoveClusterFiles();
  return result;
}

absl::Status Member::Impl::LeaveOrEnd() {
  absl::Status drained = host_->Drain(MonotonicClock().Now() + kDrainTimeoutNs);
  if (!drained.ok()) FURROW_LOG(WARNING) << "leaving although " << drained.message();
  absl::Status left = agent_->Leave();
  // A compute member holds nothing that the cluster needs: whatever the refusal, it ends nobody else.
  if (!options_.storage || !absl::IsFailedPrecondition(left)) return left;
  // It holds regions, or is the manager: the cluster cannot go on without it.
  FURROW_RETURN_IF_ERROR(agent_->EndCluster(absl::StrCat("node ", id_.value(),
                                                         " was stopped, and the cluster cannot go on "
                                                         "without it")));
  host_->WaitForEnd(MonotonicClock().Now() + kEndTimeoutNs);
  return absl::OkStatus();
}

void Member::Impl::RemoveClusterFiles() {
  if (!std::exchange(made_cluster_files_, false)) return;
  auto* store = store_ != nullptr
                    ? store_.get()
                    : static_cast<cluster::FileConfigStore*>(agent_ ? agent_->store() : nullptr);
  if (store != nullptr) {
    absl::Status destroyed = store->Destroy();
    if (!destroyed.ok()) FURROW_LOG(WARNING) << destroyed;
  }
  std::error_code ignored;
  std::filesystem::remove(ClusterDirectory() + "/cluster", ignored);
  if (made_secret_) std::filesystem::remove(ClusterDirectory() + "/secret", ignored);
}

absl::StatusOr<std::unique_ptr<Member>> Member::Start(MemberOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  FURROW_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Member>(new Member(std::move(impl)));
}

Member::Member(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Member::~Member() = default;

NodeId Member::id() const { return impl_->id_; }
const std::string& Member::cluster_id() const { return impl_->cluster_id_; }
const std::string& Member::control_address() const { return impl_->agent_->control_address(); }
const std::string& Member::fabric() const { return impl_->fabric_choice_.name; }
std::shared_ptr<const cluster::ClusterView> Member::view() const { return impl_->agent_->view(); }
uint16_t Member::workers() const { return impl_->options_.workers; }
EventLoop& Member::loop(size_t worker) { return *impl_->workers_[worker].loop; }
txn::Worker& Member::worker(size_t worker) { return *impl_->workers_[worker].worker; }
txn::Node& Member::node() { return *impl_->node_; }
absl::Status Member::ended() const { return impl_->host_->ended(); }
bool Member::WaitForEnd(Nanos deadline) const { return impl_->host_->WaitForEnd(deadline); }
absl::Status Member::Stop() { return impl_->Stop(); }

}  // namespace furrow::client
