// A second process for tests: this test binary again, in the role of a target node.
#ifndef FURROW_RDMA_SHM_SHM_PROCESS_H_
#define FURROW_RDMA_SHM_SHM_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace furrow::rdma {

// Starts `program` with `arguments`, its standard input and output as pipes. Killed and reaped at the end.
class ChildProcess {
 public:
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  pid_t pid() const { return pid_; }
  // One line of its output; empty if it has ended.
  std::string ReadLine();
  void WriteLine(const std::string& line);
  // Sends SIGSTOP and returns when every thread has stopped.
  void Stop();
  void Continue();
  // SIGKILL, and returns when it is gone.
  void Kill();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_PROCESS_H_
