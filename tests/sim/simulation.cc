#include "tests/sim/simulation.h"

#include <utility>

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
  absl::Status Judge();

  const SimulationOptions& options;
  SimCluster cluster;
  Shared shared;
  std::unique_ptr<checker::Recorder> recorder;
  uint32_t keys = 0;
};

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
  recorder = std::make_unique<checker::Recorder>(cluster.nodes() * workers * clients);
  uint32_t process = 0;
  uint32_t finished = 0;
  auto client = [](Run& run, txn::Worker& worker, checker::ProcessLog& log, Random r, uint32_t n,
                   uint32_t* over) -> Task<void> {
    co_await RunClient(run.options.workload, run.shared, worker, log, r, n);
    ++*over;
  };
  for (uint32_t node = 0; node < cluster.nodes(); ++node) {
    for (uint32_t w = 0; w < workers; ++w) {
      for (uint32_t c = 0; c < clients; ++c) {
        txn::Worker& worker = cluster.worker(node, w);
        worker.loop().Spawn(
            client(*this, worker, recorder->Process(process++), world.NewRandom(), transactions, &finished));
      }
    }
  }
  auto over = [&] { return finished == process || !shared.violation.ok(); };
  if (options.disturb) cluster.StartDisturbance(over);
  status = world.RunUntil(over, world.now() + kTimeLimit);
  if (!shared.violation.ok()) return shared.violation;
  if (!status.ok()) return status;
  status = Judge();
  if (!status.ok()) return status;
  return cluster.DrainAndCompare();
}

}  // namespace

SimulationResult RunSimulation(const SimulationOptions& options, bool edn) {
  SimClusterOptions drawn = SimClusterOptions::Draw(options.seed);
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
                      std::string(Name(options.workload)));
}

}  // namespace furrow::sim
