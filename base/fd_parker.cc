#include "base/fd_parker.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace furrow {

FdParker::~FdParker() {
  if (wakes_ >= 0) close(wakes_);
}

absl::Status FdParker::Open(int watched) {
  watched_ = watched;
  wakes_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakes_ < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptor is left to sleep on (errno ", errno, "): raise ulimit -n"));
  }
  return absl::OkStatus();
}

void FdParker::TakeWakes() {
  uint64_t ignored;
  (void)!read(wakes_, &ignored, sizeof(ignored));
}

void FdParker::PrepareToPark() {
  state_.exchange(kParking, std::memory_order_seq_cst);
  Arm();
}

void FdParker::CancelPark() {
  if (state_.exchange(kAwake, std::memory_order_seq_cst) == kAwake) TakeWakes();
}

void FdParker::Park(Nanos deadline) {
  pollfd fds[2] = {{.fd = watched_, .events = POLLIN, .revents = 0},
                   {.fd = wakes_, .events = POLLIN, .revents = 0}};
  timespec left = {};
  if (deadline != kNever) {
    const Nanos now = MonotonicClock().Now();
    const Nanos ns = deadline > now ? deadline - now : 0;
    left.tv_sec = ns / kSecond;
    left.tv_nsec = ns % kSecond;
  }
  (void)ppoll(fds, 2, deadline == kNever ? nullptr : &left, nullptr);
  CancelPark();
}

void FdParker::Wake() {
  if (state_.exchange(kAwake, std::memory_order_seq_cst) != kParking) return;
  const uint64_t one = 1;
  (void)!write(wakes_, &one, sizeof(one));
}

}  // namespace furrow
