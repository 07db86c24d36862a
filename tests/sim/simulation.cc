#include "tests/sim/simulation.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/checker/checker.h"
#include "tests/checker/edn.h"
#include "tests/checker/recorder.h"

namespace furrow::sim {

namespace {

// No run needs a tenth of this; one that does hangs.
constexpr Nanos kTimeLimit = 20 * kSecond;

struct Run {
  Run(const SimulationOptions& o, SimClusterOptions c)
      : options(o), cluster(o.seed, std::move(c)), shared(cluster) {}

  absl::Status Do();
  absl::Status Populate(uint32_t keys);
  void PlanFailures(Random& random);
  void RecordPopulated(checker::ProcessLog& log);
  absl::Status Judge();

  const SimulationOptions& options;
  SimCluster cluster;
  Shared shared;
  std::unique_ptr<checker::Recorder> recorder;
  uint32_t keys = 0;
  uint32_t failures_to_come = 0;
};

// A counter that nobody increments is a counter nevertheless, and so is an account that few get to.
void Run::RecordPopulated(checker::ProcessLog& log) {
  const Clock& clock = cluster.world().true_clock();
  const bool bank = options.workload == Workload::kBank;
  if (!bank && options.workload != Workload::kLongFork) return;
  log.Invoke(clock.Now(), bank ? checker::Function::kReadAll : checker::Function::kTxn);
  for (uint32_t key = 0; key < keys; ++key) {
    if (bank) log.ReadAccount(key, kOpeningBalance);
    if (!bank) log.Increment(key, 0);
  }
  log.Complete(checker::Outcome::kOk, clock.Now());
}

// The victims differ, and fewer than there are copies of a region.
void Run::PlanFailures(Random& random) {
  const uint32_t wanted = std::min(options.kills + options.evictions, cluster.options().replicas - 1);
  std::vector<uint32_t> nodes(cluster.nodes());
  std::iota(nodes.begin(), nodes.end(), 0);
  for (uint32_t i = 0; i < wanted; ++i) {
    std::swap(nodes[i], nodes[i + static_cast<uint32_t>(random.Below(nodes.size() - i))]);
    const Nanos when = random.Between(10 * kMicrosecond, 6 * kMillisecond);
    ++failures_to_come;
    cluster.world().After(when, [this, node = nodes[i], kill = i < options.kills] {
      --failures_to_come;
      if (kill) return cluster.Kill(node);
      cluster.Evict(node);
    });
  }
}

absl::Status Run::Populate(uint32_t count) {
  bool done = false;
  absl::Status result;
  auto populate = [](Run& run, uint32_t n, absl::Status* status, bool* over) -> Task<void> {
    *status = co_await sim::Populate(run.options.workload, n, run.shared, run.cluster.worker(0, 0),
                                     run.cluster.world().NewRandom());
    *over = true;
  };
  cluster.worker(0, 0).loop().Spawn(populate(*this, count, &result, &done));
  absl::Status status = cluster.world().RunUntil([&] { return done; }, cluster.world().now() + kTimeLimit);
  return status.ok() ? result : status;
}

absl::Status Run::Judge() {
  checker::CheckOptions check;
  if (options.workload == Workload::kBank) check.bank_total = int64_t{keys} * kOpeningBalance;
  absl::StatusOr<checker::Verdict> verdict = checker::Check(recorder->Merge(), check);
  if (!verdict.ok()) return verdict.status();
  if (verdict->valid()) return absl::OkStatus();
  return absl::InternalError(verdict->ToString());
}

absl::Status Run::Do() {
  rdma::SimWorld& world = cluster.world();
  Random random = world.NewRandom();
  keys = options.keys != 0 ? options.keys : static_cast<uint32_t>(random.Between(3, 8));
  uint32_t clients = options.clients_per_worker != 0 ? options.clients_per_worker
                                                     : static_cast<uint32_t>(random.Between(1, 4));
  uint32_t transactions =
      options.transactions != 0 ? options.transactions : static_cast<uint32_t>(random.Between(10, 30));
  absl::Status status = cluster.Start();
  if (status.ok()) status = Populate(keys);
  if (!status.ok()) return status;

  uint32_t workers = cluster.options().workers;
  // One more for what Populate() has done.
  const uint32_t recorded = cluster.nodes() * workers * clients;
  recorder = std::make_unique<checker::Recorder>(recorded + 1);
  RecordPopulated(recorder->Process(recorded));
  uint32_t process = 0;
  std::vector<uint32_t> running(cluster.nodes(), workers * clients);
  auto client = [](Run& run, txn::Worker& worker, checker::ProcessLog& log, Random r, uint32_t n,
                   uint32_t* left) -> Task<void> {
    co_await RunClient(run.options.workload, run.shared, worker, log, r, n);
    --*left;
  };
  for (uint32_t node = 0; node < cluster.nodes(); ++node) {
    for (uint32_t w = 0; w < workers; ++w) {
      for (uint32_t c = 0; c < clients; ++c) {
        txn::Worker& worker = cluster.worker(node, w);
        worker.loop().Spawn(client(*this, worker, recorder->Process(process++), world.NewRandom(),
                                   transactions, &running[node]));
      }
    }
  }
  // Clients of a process that died come to no end.
  auto over = [&] {
    if (!shared.violation.ok()) return true;
    for (uint32_t node = 0; node < cluster.nodes(); ++node) {
      if (running[node] > 0 && !cluster.process(node).dead()) return false;
    }
    return failures_to_come == 0 && cluster.Recovered();
  };
  if (options.disturb) cluster.StartDisturbance(over);
  PlanFailures(random);
  status = world.RunUntil(over, world.now() + kTimeLimit);
  if (!shared.violation.ok()) return shared.violation;
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat(status.message(), cluster.DescribeRecovery()));
  status = Judge();
  if (!status.ok()) return status;
  return cluster.DrainAndCompare();
}

}  // namespace

SimulationResult RunSimulation(const SimulationOptions& options, bool edn) {
  SimClusterOptions drawn = SimClusterOptions::Draw(options.seed);
  if (options.kills + options.evictions > 0) {
    drawn.recovery = true;
    drawn.nodes = 3 + static_cast<uint32_t>(options.seed % 3);
    drawn.compute_nodes = options.seed % 4 == 0 && drawn.nodes > 3 ? 1 : 0;
  }
  if (options.adjust) options.adjust(drawn);
  Run run(options, drawn);
  SimulationResult result;
  result.status = run.Do();
  if (!result.status.ok()) {
    result.status = absl::Status(
        result.status.code(), absl::StrCat(result.status.message(), "\n  configuration: ", drawn.ToString(),
                                           "\n  again: ", ReplayCommand(options)));
  }
  result.digest = run.cluster.world().digest();
  result.steps = run.cluster.world().steps();
  result.virtual_time = run.cluster.world().now();
  result.committed = run.shared.committed;
  result.aborted = run.shared.aborted;
  result.unknown = run.shared.unknown;
  if (edn && run.recorder != nullptr) result.edn = checker::WriteEdn(run.recorder->Merge());
  return result;
}

std::string ReplayCommand(const SimulationOptions& options) {
  return absl::StrCat("build/mutation/bin/sim_test --seed ", options.seed, " --workload ",
                      std::string(Name(options.workload)),
                      options.kills > 0 ? absl::StrCat(" --kills ", options.kills) : "",
                      options.evictions > 0 ? absl::StrCat(" --evictions ", options.evictions) : "");
}

}  // namespace furrow::sim
