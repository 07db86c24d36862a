#include "rdma/shm/shm_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

extern char** environ;

namespace furrow::rdma {

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int in[2], out[2];
  FURROW_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  FURROW_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  FURROW_CHECK(posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO) == 0);
  FURROW_CHECK(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO) == 0);
  std::vector<std::string> all = {program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  FURROW_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
}

ChildProcess::~ChildProcess() {
  Kill();
  close(input_);
  close(output_);
}

std::string ChildProcess::ReadLine() {
  std::string line;
  char c;
  while (read(output_, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void ChildProcess::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  (void)!write(input_, text.data(), text.size());
}

void ChildProcess::Stop() {
  int status = 0;
  FURROW_CHECK(kill(pid_, SIGSTOP) == 0);
  FURROW_CHECK(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status));
}

void ChildProcess::Continue() { FURROW_CHECK(kill(pid_, SIGCONT) == 0); }

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace furrow::rdma
