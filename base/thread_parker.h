// ThreadParker: a Parker for loops without a fabric. One loop parks on it; any thread wakes it.
#ifndef FURROW_BASE_THREAD_PARKER_H_
#define FURROW_BASE_THREAD_PARKER_H_

#include <cstdint>

#include "base/event_loop.h"

namespace furrow {

class ThreadParker final : public Parker {
 public:
  void PrepareToPark() override;
  void CancelPark() override;
  void Park(Nanos deadline) override;
  void Wake() override;

 private:
  // kParking from PrepareToPark() until somebody wakes the owner or the owner gives up.
  //   Every change is an exchange (acquire and release), so of a Wake() and a PrepareToPark() the later one
  //   sees the earlier: either Wake() finds kParking and ends the park, or the owner, polling after
  //   PrepareToPark(), finds what was written before Wake().
  static constexpr uint32_t kAwake = 0;
  static constexpr uint32_t kParking = 1;
  uint32_t state_ = kAwake;  // by std::atomic_ref and futex only
};

}  // namespace furrow

#endif  // FURROW_BASE_THREAD_PARKER_H_
