// Fleet: the processes of a benchmark, seen by their parent: this program again, with a channel to each
// (agent.h). Owner: one thread.
#ifndef FURROW_BENCH_HARNESS_FLEET_H_
#define FURROW_BENCH_HARNESS_FLEET_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "bench/harness/channel.h"

namespace furrow::bench {

class Fleet {
 public:
  // A line from process `process`.
  using OnLine = std::function<void(size_t process, std::string_view line)>;

  Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  // Tells all to quit and waits for them; those that do not end within some seconds are killed.
  ~Fleet();

  // Starts one process more: this executable with `arguments` and "--agent-fd N".
  absl::Status Spawn(std::vector<std::string> arguments);
  size_t size() const { return processes_.size(); }

  absl::Status Send(size_t process, std::string_view line);
  absl::Status Broadcast(std::string_view line);
  // Handles what has arrived, waiting for it up to `timeout_ns`; each line goes to `on_line`. Aborted: a
  // process has died or has sent "failed": says which and why.
  absl::Status Poll(Nanos timeout_ns, const OnLine& on_line);

  void Quit();

 private:
  struct Process {
    pid_t pid = -1;
    LineChannel channel{-1};
    bool closed = false;
  };
  std::string Obituary(Process& process);
  std::vector<Process> processes_;
};

// The first word of a line, and what follows it.
std::string_view FirstWord(std::string_view line);
std::string_view AfterFirstWord(std::string_view line);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_FLEET_H_
