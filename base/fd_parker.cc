#include "base/fd_parker.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

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
  blind_ = !Arm() || watched_ < 0;
}

void FdParker::CancelPark() {
  if (state_.exchange(kAwake, std::memory_order_seq_cst) == kAwake) TakeWakes();
}

void FdParker::Park(Nanos deadline) {
  pollfd fds[2] = {{.fd = watched_, .events = POLLIN, .revents = 0},
                   {.fd = wakes_, .events = POLLIN, .revents = 0}};
  timespec left = {};
  if (blind_) deadline = std::min(deadline, MonotonicClock().Now() + kBlindSleep);
  if (deadline != kNever) {
    const Nanos now = MonotonicClock().Now();
    const Nanos ns = deadline > now ? deadline - now : 0;
    left.tv_sec = ns / kSecond;
    left.tv_nsec = ns % kSecond;
  }
  const int ready = ppoll(fds, 2, deadline == kNever ? nullptr : &left, nullptr);
  CancelPark();
  if (ready <= 0) return;
  // Also one that was written late, for a Park() that is over: it would end each one from now on.
  if ((fds[1].revents & POLLIN) != 0) TakeWakes();
  if ((fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0 && (fds[0].revents & POLLIN) == 0) {
    watched_ = -1;
  }
}

void FdParker::Wake() {
  if (ClaimWake()) RingOwner();
}

void FdParker::RingOwner() {
  const uint64_t one = 1;
  (void)!write(wakes_, &one, sizeof(one));
}

}  // namespace furrow
