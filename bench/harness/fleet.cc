#include "bench/harness/fleet.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"

extern char** environ;

namespace furrow::bench {
namespace {

constexpr Nanos kQuitTime = 30 * kSecond;

}  // namespace

std::string_view FirstWord(std::string_view line) { return line.substr(0, line.find(' ')); }
std::string_view AfterFirstWord(std::string_view line) {
  const size_t space = line.find(' ');
  return space == line.npos ? std::string_view() : line.substr(space + 1);
}

absl::Status Fleet::Spawn(std::vector<std::string> arguments) {
  FURROW_ASSIGN_OR_RETURN(auto ends, LineChannel::Pair());
  FURROW_RETURN_IF_ERROR(ends.second.KeepOnExec());
  arguments.insert(arguments.begin(), "furrow-bench");
  arguments.push_back("--agent-fd");
  arguments.push_back(absl::StrCat(ends.second.fd()));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(error)));
  }
  processes_.push_back(Process{pid, std::move(ends.first)});
  return absl::OkStatus();
}

Fleet::~Fleet() { Quit(); }

void Fleet::Quit() {
  for (Process& process : processes_) {
    if (!process.closed) (void)process.channel.Send("quit");
  }
  const Nanos give_up = MonotonicClock().Now() + kQuitTime;
  for (Process& process : processes_) {
    while (::waitpid(process.pid, nullptr, WNOHANG) == 0) {
      if (MonotonicClock().Now() > give_up) {
        (void)::kill(process.pid, SIGKILL);
        (void)::waitpid(process.pid, nullptr, 0);
        break;
      }
      LineChannel* const channels[] = {&process.channel};
      // Readable: a late line or the end. What it says does not matter any more.
      WaitForAny(process.closed ? std::span<LineChannel* const>() : channels, 10 * kMillisecond);
      if (!process.closed) process.closed = !process.channel.Fill();
    }
  }
  processes_.clear();
}

absl::Status Fleet::Send(size_t process, std::string_view line) {
  return processes_[process].channel.Send(line);
}

absl::Status Fleet::Broadcast(std::string_view line) {
  for (size_t i = 0; i < processes_.size(); ++i) FURROW_RETURN_IF_ERROR(Send(i, line));
  return absl::OkStatus();
}

std::string Fleet::Obituary(Process& process) {
  int how = 0;
  const pid_t waited = ::waitpid(process.pid, &how, 0);
  if (waited == process.pid && WIFSIGNALED(how)) {
    return absl::StrCat("was ended by signal ", WTERMSIG(how), " (", ::strsignal(WTERMSIG(how)), ")");
  }
  return "ended by itself; its messages are above";
}

absl::Status Fleet::Poll(Nanos timeout_ns, const OnLine& on_line) {
  std::vector<LineChannel*> channels;
  for (Process& process : processes_) channels.push_back(&process.channel);
  WaitForAny(channels, timeout_ns);
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (!process.closed) process.closed = !process.channel.Fill();
    while (const std::optional<std::string> line = process.channel.TakeLine()) {
      if (FirstWord(*line) == "failed") {
        return absl::AbortedError(
            absl::StrCat("process ", i + 1, ": ", absl::HexStringToBytes(Sv(AfterFirstWord(*line)))));
      }
      on_line(i, *line);
    }
  }
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].closed)
      return absl::AbortedError(absl::StrCat("process ", i + 1, " ", Obituary(processes_[i])));
  }
  return absl::OkStatus();
}

}  // namespace furrow::bench
