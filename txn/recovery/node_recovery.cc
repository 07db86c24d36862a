#include "txn/recovery/node_recovery.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "txn/coordinator.h"
#include "txn/node.h"
#include "txn/recovery/worker_recovery.h"
#include "txn/worker.h"

namespace furrow::txn {
namespace {

// Between two looks at a clock that does not run.
constexpr Nanos kClockPauseNs = 100 * kMicrosecond;

}  // namespace

NodeRecovery::NodeRecovery(Node& node) : node_(node) { node.recovery = this; }
NodeRecovery::~NodeRecovery() { node_.recovery = nullptr; }

void NodeRecovery::AddWorker(Worker& worker) {
  FURROW_CHECK(worker.id().value() == workers_.size());
  workers_.push_back(&worker);
}

// The mappings before the view: a transaction takes the view first, and none may go to the replicas of an
// older mapping under the newer configuration.
void NodeRecovery::OnNewConfiguration(cluster::Reconfiguration change, std::function<void()> adopted) {
  const ConfigId config = change.view->id();
  {
    MutexLock lock(&mutex_);
    if (config <= config_) return;
    config_ = config;
    adopted_ = recovered_ = 0;
    on_adopted_ = std::move(adopted);
    on_recovered_ = nullptr;
    locks_recovered_.clear();
    for (cluster::RegionMapping& mapping : change.regions) node_.directory.Put(std::move(mapping));
  }
  node_.SetView(std::move(change.view), /*committed=*/false);
  for (Worker* worker : workers_) {
    worker->loop().Post([this, worker, config] {
      worker->recovery().Adopt(config);
      Adopted(config);
    });
  }
}

void NodeRecovery::Adopted(ConfigId config) {
  std::function<void()> done;
  {
    MutexLock lock(&mutex_);
    if (config != config_ || ++adopted_ < workers()) return;
    done = std::move(on_adopted_);
  }
  if (done) done();
}

void NodeRecovery::OnConfigurationCommitted(ConfigId config, std::function<void()> recovered) {
  {
    MutexLock lock(&mutex_);
    if (config != config_) return;
    on_recovered_ = std::move(recovered);
  }
  node_.SetCommitted(config);
  for (Worker* worker : workers_) {
    worker->loop().Post([worker, config] { worker->recovery().Begin(config); });
  }
}

void NodeRecovery::LocksRecovered(RegionId region, ConfigId config) {
  {
    MutexLock lock(&mutex_);
    if (config != config_ || ++locks_recovered_[region] < workers()) return;
  }
  Activate(region, config);
}

// On the thread of the worker that was last, or of the first worker.
void NodeRecovery::Activate(RegionId region, ConfigId config) {
  cluster::ClockInterval now;
  Worker& worker = *workers_[0];
  if (!node_.timestamps.Now(&now)) {
    worker.loop().Post([this, &worker, region, config] {
      worker.loop().CallAt(worker.loop().Now() + kClockPauseNs,
                           [this, region, config] { Activate(region, config); });
    });
    return;
  }
  const cluster::RegionMapping* active;
  {
    // A newer configuration recovers the locks anew: this one activates nothing any more.
    MutexLock lock(&mutex_);
    if (config != config_) return;
    active = node_.directory.Activate(region, node_.directory.Find(region)->config, now.upper);
    FURROW_CHECK(active != nullptr);
    taken_over_.insert(region);
  }
  if (storage::Region* copy = node_.regions.Find(region); copy != nullptr) copy->set_serving(true);
  worker.loop().Post([&worker, active] { worker.recovery().SayRegionActive(*active); });
}

void NodeRecovery::RepeatActive() {
  std::set<RegionId> regions;
  {
    MutexLock lock(&mutex_);
    regions = taken_over_;
  }
  for (RegionId region : regions) {
    const cluster::RegionMapping* mapping = node_.directory.Find(region);
    if (mapping->active && mapping->primary().node == node_.options.id)
      workers_[0]->recovery().SayRegionActive(*mapping);
  }
}

void NodeRecovery::WorkerRecovered(ConfigId config) {
  std::function<void()> done;
  {
    MutexLock lock(&mutex_);
    if (config != config_ || ++recovered_ < workers()) return;
    done = std::move(on_recovered_);
  }
  // No transaction of theirs is pending here any more.
  node_.RevokeLeasesOfStrangers();
  RecoverAllocators(config, std::move(done));
}

void NodeRecovery::RecoverAllocators(ConfigId config, std::function<void()> then) {
  std::vector<RegionId> regions;
  for (const cluster::RegionMapping* mapping : node_.directory.All()) {
    if (mapping->primary().node == node_.options.id && node_.allocator.Find(mapping->id) == nullptr)
      regions.push_back(mapping->id);
  }
  if (then) then();
  auto recover = [](Worker& worker, ConfigId of, std::vector<RegionId> all) -> Task<void> {
    for (RegionId region : all) {
      const absl::Status status = co_await worker.recovery().RecoverAllocator(of, region);
      if (status.ok()) continue;
      FURROW_LOG(WARNING) << "region " << region.value()
                          << " takes no allocations before the next change of configuration: "
                          << status.ToString();
    }
  };
  Worker& worker = *workers_[0];
  worker.loop().Post(
      [&worker, recover, config, regions] { worker.loop().Spawn(recover(worker, config, regions)); });
}

void NodeRecovery::Forward(NodeId from, RecoveryMessage message) {
  if (message.to_worker.value() >= workers()) return;
  Worker* worker = workers_[message.to_worker.value()];
  worker->loop().Post(
      [worker, from, m = std::move(message)]() mutable { worker->recovery().OnMessage(from, std::move(m)); });
}

}  // namespace furrow::txn
