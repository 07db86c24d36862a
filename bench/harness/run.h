// A whole benchmark, as its parent process sees it: start the processes, load, warm up, measure, check,
// report.
#ifndef FURROW_BENCH_HARNESS_RUN_H_
#define FURROW_BENCH_HARNESS_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/harness/console.h"
#include "bench/harness/flags.h"
#include "bench/harness/fleet.h"
#include "bench/harness/result.h"
#include "client/member_options.h"

namespace furrow::bench {

// The flags that all workloads have.
struct CommonFlags {
  std::string cluster;
  std::string secret_file;
  bool symmetric = false;
  uint64_t seconds = 30;
  uint64_t warmup = 3;
  uint64_t workers = 1;
  uint64_t nodes = 3;
  uint64_t replicas = 3;
  uint64_t terminals = 0;
  uint64_t rate = 0;
  uint64_t seed = 0;  // 0: from entropy
  std::string durability = "replicated";
  std::string fabric = "auto";
  std::string addresses = "127.0.0.1";
  std::string json;
  std::string dir;
  uint64_t memory_mb = 0;  // per storage process; 0: from the host's
  uint64_t region_mb = 64;
  bool huge_pages = false;
  bool check = false;
  bool no_load = false;
  bool reload = false;
  bool quiet = false;
  bool corrupt = false;
  // Of a process of the benchmark.
  uint64_t agent_fd = 0;  // 0: this is the parent
  uint64_t agent_index = 0;

  void AddTo(FlagSet* flags);
  // InvalidArgument: flags that do not go together. Unavailable: --json cannot be written, which is better
  // known before the run than after it.
  absl::Status Validate() const;
  // What the flags are called that set options of a member, for messages of the library.
  client::OptionNames option_names() const;
  uint64_t processes() const { return symmetric ? nodes : 1; }
};

// Runs it all. `report` comes with the names and settings, and is filled even when a check fails or the run
// has ended early. Aborted, Cancelled and so on: there is no result.
absl::Status RunBenchmark(const CommonFlags& flags, std::vector<std::string> agent_arguments,
                          Console& console, const Clock& clock, Report* report);

// Prints the result and writes the JSON. OK only if all checks hold.
absl::Status Deliver(const CommonFlags& flags, const Report& report, Console& console);

// Interrupt and termination signals end a run in good order instead of the process; the second one ends it at
// once.
void CatchInterrupts();
bool Interrupted();

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_RUN_H_
