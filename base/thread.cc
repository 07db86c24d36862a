#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow {
namespace {

absl::Status ApplySettings(pthread_t thread, const ThreadOptions& options) {
  absl::Status status;
  if (!options.name.empty()) pthread_setname_np(thread, options.name.substr(0, 15).c_str());
  if (options.realtime_priority > 0) {
    sched_param param = {};
    param.sched_priority = options.realtime_priority;
    if (int error = pthread_setschedparam(thread, SCHED_FIFO | SCHED_RESET_ON_FORK, &param); error != 0) {
      status.Update(absl::ErrnoToStatus(
          error, absl::StrCat("thread ", options.name, " gets no real-time priority ",
                              options.realtime_priority, ": grant CAP_SYS_NICE or raise RLIMIT_RTPRIO")));
    }
  }
  if (options.cpu.has_value()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    int error = EINVAL;
    if (*options.cpu >= 0 && *options.cpu < CPU_SETSIZE) {
      CPU_SET(*options.cpu, &set);
      error = pthread_setaffinity_np(thread, sizeof(set), &set);
    }
    if (error != 0) {
      status.Update(
          absl::ErrnoToStatus(error, absl::StrCat("thread ", options.name, " cannot be bound to CPU ",
                                                  *options.cpu, ": this process may not run there")));
    }
  }
  return status;
}

}  // namespace

Thread::Thread(const ThreadOptions& options, std::function<void()> body) : thread_(std::move(body)) {
  settings_ = ApplySettings(thread_.native_handle(), options);
}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    Join();
    thread_ = std::move(other.thread_);
    settings_ = std::move(other.settings_);
  }
  return *this;
}

void Thread::Join() {
  if (!thread_.joinable()) return;
  FURROW_CHECK(thread_.get_id() != std::this_thread::get_id());
  thread_.join();
}

absl::Status LockMemory() {
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) return absl::OkStatus();
  const char* advice = "this process's memory cannot be locked: grant CAP_IPC_LOCK or raise RLIMIT_MEMLOCK";
  return errno == ENOMEM ? absl::ResourceExhaustedError(advice) : absl::ErrnoToStatus(errno, advice);
}

int AvailableCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void SleepThreadUntil(Nanos deadline) {
  timespec until;
  until.tv_sec = deadline / kSecond;
  until.tv_nsec = deadline % kSecond;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace furrow
