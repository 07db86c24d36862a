// ManualClock: a Clock that moves only when told. For tests and simulations. Owner thread only.
#ifndef FURROW_BASE_MANUAL_CLOCK_H_
#define FURROW_BASE_MANUAL_CLOCK_H_

#include "base/check.h"
#include "base/clock.h"

namespace furrow {

class ManualClock final : public Clock {
 public:
  explicit ManualClock(Nanos now = 0) : now_(now) {}
  Nanos Now() const override { return now_; }
  void Advance(Nanos ns) { AdvanceTo(now_ + ns); }
  void AdvanceTo(Nanos now) {
    FURROW_CHECK(now >= now_);
    now_ = now;
  }

 private:
  Nanos now_;
};

}  // namespace furrow

#endif  // FURROW_BASE_MANUAL_CLOCK_H_
