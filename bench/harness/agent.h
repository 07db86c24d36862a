// The process of a benchmark that does the work, told by its parent what to do, a line at a time:
//
//   parent says            process does, then answers
//   create                 makes the tables: "create"
//   open                   opens them: "open"
//   load                   fills this process's share: "progress DONE TOTAL" often, then "load"
//   start                  starts the terminals: "start"; "live MEASUREMENT" every second from now on
//   measure                forgets the warm-up: "measure"
//   stop                   stops them: "huge" if regions lie in huge pages, "stop MEASUREMENT"
//   drain                  truncates what was written: "drain"
//   check load | run       checks the cluster, after the load or after a run: "check NAME pass|fail
//   DETAIL-IN-HEX" for
//                          each check, then "check"
//   corrupt                damages a row in this process's memory (tests of the checks): "corrupt"
//   quit                   ends
//
// "failed REASON-IN-HEX" in place of the answer ends the benchmark. "ended REASON-IN-HEX" while terminals run
// says that they end by themselves: a limit was reached. A closed channel is as good as quit. Measurements:
// newlines as ';'.
#ifndef FURROW_BENCH_HARNESS_AGENT_H_
#define FURROW_BENCH_HARNESS_AGENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/task.h"
#include "bench/harness/channel.h"
#include "bench/harness/driver.h"
#include "bench/harness/host.h"
#include "bench/harness/workload.h"

namespace furrow::bench {

struct AgentOptions {
  uint32_t process = 0;
  uint32_t processes = 1;
  size_t terminals = 0;  // per worker; 0: the workload's choice
  double rate = 0;       // of this process; 0: closed loop
  uint64_t seed = 1;
};

class Agent {
 public:
  // Owner: one thread, which is none of the workers'. The workload and the channel outlive the agent; the
  // host is destroyed after Run() and before the agent, and so is everything that still runs on its workers.
  Agent(AgentOptions options, Host& host, Workload& workload, LineChannel& channel);
  // Serves the channel until "quit", or until the cluster ends.
  void Run();

 private:
  using Job = std::function<Task<absl::Status>(size_t index, txn::Worker& worker)>;
  void Handle(std::string_view line);
  // Runs `job` on workers [0, count); Tick() answers when all have ended.
  void RunJob(std::string name, size_t count, Job job);
  void AwaitJob();
  static Task<void> RunPart(Agent* agent, size_t index);
  void FinishJob();
  void StartDrivers();
  void Stop();
  void RequestLive();
  void SendLive();
  absl::Status Corrupt();
  void Tick();
  void Send(std::string_view line);
  Place PlaceOf(size_t worker) const;

  const AgentOptions options_;
  Host& host_;
  Workload& workload_;
  LineChannel& channel_;
  bool quit_ = false;

  // The job that runs, if any.
  std::string job_name_;
  Job job_;
  std::atomic<size_t> job_left_{0};
  Mutex mutex_;
  absl::Status job_status_ ABSL_GUARDED_BY(mutex_);
  CondVar job_part_ended_;
  std::vector<CheckResult> checks_;        // by the job on worker 0
  std::vector<Measurement> measurements_;  // by the job "stop", one per worker
  Progress progress_;
  uint64_t progress_sent_ = 0;

  // Each driver is touched by its worker alone, except while all of them have stopped.
  std::vector<std::unique_ptr<Driver>> drivers_;
  std::atomic<size_t> drivers_running_{0};
  bool running_ = false;
  bool stopping_ = false;
  bool end_told_ = false;
  std::string failure_ ABSL_GUARDED_BY(mutex_);  // why a driver stopped by itself
  Measurement live_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> live_left_{0};
  bool live_requested_ = false;
  Nanos next_live_ = kNever;
  Nanos measured_from_ = 0;
  Nanos measured_ns_ = 0;
  uint64_t cpu_from_ = 0;
  uint64_t cpu_ns_ = 0;
};

// CPU time of the process so far.
uint64_t ProcessCpuNanos();
// A measurement as one line, and back.
std::string ToLine(const Measurement& measurement);
absl::StatusOr<Measurement> FromLine(std::string_view line);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_AGENT_H_
