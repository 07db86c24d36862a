#include "base/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"

extern char** environ;

namespace furrow {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
};

pid_t WaitFor(pid_t pid, int* status, int options) {
  pid_t result;
  do {
    result = waitpid(pid, status, options);
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::string& program,
                                                                  const std::vector<std::string>& arguments) {
  Pipe in, out;
  if (!in.Open()) return absl::ErrnoToStatus(errno, "cannot open a pipe to a child process");
  if (!out.Open()) {
    const absl::Status status = absl::ErrnoToStatus(errno, "cannot open a pipe to a child process");
    close(in.read_end);
    close(in.write_end);
    return status;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in.read_end);
  close(out.write_end);
  if (error != 0) {
    close(in.write_end);
    close(out.read_end);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", program));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, in.write_end, out.read_end));
}

std::string ChildProcess::Self() {
  std::string path(4096, '\0');
  const ssize_t bytes = readlink("/proc/self/exe", path.data(), path.size());
  FURROW_CHECK(bytes > 0);
  path.resize(static_cast<size_t>(bytes));
  return path;
}

ChildProcess::~ChildProcess() {
  Kill();
  close(input_);
  close(output_);
}

std::string ChildProcess::ReadLine() {
  std::string line;
  for (;;) {
    char c;
    const ssize_t bytes = read(output_, &c, 1);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0 || c == '\n') return line;
    line += c;
  }
}

void ChildProcess::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  (void)!write(input_, text.data(), text.size());  // one that has ended will be seen by ReadLine()
}

void ChildProcess::Stop() {
  int status = 0;
  FURROW_CHECK(kill(pid_, SIGSTOP) == 0);
  FURROW_CHECK(WaitFor(pid_, &status, WUNTRACED) == pid_);
  FURROW_CHECK(WIFSTOPPED(status));
}

void ChildProcess::Continue() { FURROW_CHECK(kill(pid_, SIGCONT) == 0); }

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  WaitFor(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace furrow
