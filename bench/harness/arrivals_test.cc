#include "bench/harness/arrivals.h"

#include <cmath>

#include "gtest/gtest.h"

namespace furrow::bench {
namespace {

TEST(ArrivalsTest, FormAPoissonProcessOfTheRate) {
  constexpr uint64_t kSeed = 99;
  constexpr int kCount = 100'000;
  Arrivals arrivals(2000, 5 * kSecond, kSeed);
  Nanos last = 5 * kSecond;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const Nanos at = arrivals.Next();
    ASSERT_GE(at, last);
    const double gap = static_cast<double>(at - last);
    sum += gap;
    squares += gap * gap;
    last = at;
  }
  const double mean = sum / kCount;
  const double deviation = std::sqrt(squares / kCount - mean * mean);
  EXPECT_NEAR(mean, 500'000, 8'000) << "seed " << kSeed;
  EXPECT_NEAR(deviation, 500'000, 15'000) << "gaps are exponential, seed " << kSeed;
}

}  // namespace
}  // namespace furrow::bench
