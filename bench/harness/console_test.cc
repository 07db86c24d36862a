#include "bench/harness/console.h"

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::bench {
namespace {

using ::testing::HasSubstr;

class ManualClock final : public Clock {
 public:
  Nanos Now() const override { return now; }
  Nanos now = 0;
};

// What a console writes.
class ConsoleTest : public ::testing::Test {
 protected:
  ~ConsoleTest() override { std::fclose(file_); }
  std::string Text() {
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }
  ManualClock clock_;
  std::FILE* file_ = std::tmpfile();
};

TEST_F(ConsoleTest, RewritesItsLineOnATerminal) {
  {
    Console console(file_, true, clock_);
    console.Show("one", kSecond);
    console.Show("two", kSecond);
    console.Print("stays");
    console.Show("three", kSecond);
    console.Settle(/*erase=*/true);
  }
  EXPECT_EQ(Text(), "\r\033[Kone\r\033[Ktwo\nstays\n\r\033[Kthree\r\033[K");
}

TEST_F(ConsoleTest, WritesFewLinesElsewhere) {
  {
    Console console(file_, false, clock_);
    for (int i = 0; i < 25; ++i) {
      clock_.now += kSecond / 10;
      console.Show("line", kSecond);
    }
  }
  EXPECT_EQ(Text(), "line\nline\nline\n");
}

TEST(ProgressBarTest, FillsUp) {
  EXPECT_EQ(ProgressBar("loading", 0, 0, 0),
            "loading  [------------------------------]    0 %  0 of 0 rows  0 s");
  EXPECT_THAT(ProgressBar("loading", 1500, 3000, 12 * kSecond),
              HasSubstr("[###############---------------]   50 %  1,500 of"));
  EXPECT_THAT(ProgressBar("loading", 4000, 3000, 0), HasSubstr("100 %"));
}

TEST(LiveLineTest, ShowsRatesAbortsAndP99) {
  Measurement live;
  live.types.push_back({"new_order", 4000, 0, {}});
  live.types.push_back({"payment", 3800, 0, {}});
  live.types.push_back({"all", 0, 0, {}});
  live.types.back().latency.RecordMany(2 * kMillisecond, 100);
  live.aborted["all"] = 78;
  const std::string line = LiveLine(12 * kSecond, 0.5, live, "new_order", "new orders");
  EXPECT_THAT(line, HasSubstr("12 s"));
  EXPECT_THAT(line, HasSubstr("8,000 new orders/s"));
  EXPECT_THAT(line, HasSubstr("15,600 transactions/s"));
  EXPECT_THAT(line, HasSubstr("aborts 1.00 %"));
  EXPECT_THAT(line, HasSubstr("p99 2ms"));
}

}  // namespace
}  // namespace furrow::bench
