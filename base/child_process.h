// ChildProcess: another process of ours, for tests and tools that measure between processes.
#ifndef FURROW_BASE_CHILD_PROCESS_H_
#define FURROW_BASE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace furrow {

// Killed and reaped when it is destroyed. One thread.
class ChildProcess {
 public:
  // Starts `program` with its standard input and output as pipes to us; it inherits the standard error.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::string& program,
                                                             const std::vector<std::string>& arguments);
  // This very executable.
  static std::string Self();
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // One line of its output, without the end; empty if it has ended.
  std::string ReadLine();
  void WriteLine(const std::string& line);
  // SIGSTOP; returns when the process has stopped.
  void Stop();
  void Continue();
  // SIGKILL; returns when the process is gone.
  void Kill();

 private:
  ChildProcess(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}
  pid_t pid_;  // -1: gone
  const int input_;
  const int output_;
};

}  // namespace furrow

#endif  // FURROW_BASE_CHILD_PROCESS_H_
