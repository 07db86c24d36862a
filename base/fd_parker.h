// FdParker: a Parker for loops whose events come through a descriptor: a verbs completion channel, a socket.
// It sleeps in poll() on that descriptor and on one of its own, which Wake() writes.
#ifndef FURROW_BASE_FD_PARKER_H_
#define FURROW_BASE_FD_PARKER_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "base/event_loop.h"

namespace furrow {

class FdParker : public Parker {
 public:
  FdParker() = default;
  ~FdParker() override;
  FdParker(const FdParker&) = delete;
  FdParker& operator=(const FdParker&) = delete;
  // Before first use. `watched` stays the caller's and outlives the parker. ResourceExhausted: no descriptor
  // is left.
  absl::Status Open(int watched);

  // Owner thread. Park() may return early, without reason; whoever calls it looks around anyway.
  void PrepareToPark() override;
  void CancelPark() override;
  void Park(Nanos deadline) override;
  // Any thread.
  void Wake() override;

 protected:
  // Makes the watched descriptor readable by whatever happens from now on, and takes back what made it
  // readable before. Called by PrepareToPark(), before the owner looks around for the last time. False: that
  // is not possible (any more); Park() then sleeps kBlindSleep at most.
  virtual bool Arm() { return true; }
  static constexpr Nanos kBlindSleep = kMillisecond;

  // The two steps of Wake(), for tests: between them a thread may stand for long. True: RingOwner() is due.
  bool ClaimWake() { return state_.exchange(kAwake, std::memory_order_seq_cst) == kParking; }
  void RingOwner();

 private:
  void TakeWakes();

  // As in ThreadParker: every change is an exchange, so of a Wake() and a PrepareToPark() the later one sees
  // the earlier. A Wake() that finds kParking writes the descriptor, which poll() cannot miss. The writing
  // may come late, when the owner has long been awake: a later Park() then ends early, and takes it.
  static constexpr uint32_t kAwake = 0;
  static constexpr uint32_t kParking = 1;
  std::atomic<uint32_t> state_{kAwake};
  int watched_ = -1;    // negative once it is broken (POLLERR, POLLHUP) and would end every poll()
  bool blind_ = false;  // the watched descriptor tells nothing; owner thread
  int wakes_ = -1;      // an eventfd
};

}  // namespace furrow

#endif  // FURROW_BASE_FD_PARKER_H_
