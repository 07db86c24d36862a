#include "bench/harness/channel.h"

#include <string>

#include "bench/harness/fleet.h"
#include "gtest/gtest.h"

namespace furrow::bench {
namespace {

TEST(LineChannelTest, CarriesWholeLinesInOrder) {
  auto ends = LineChannel::Pair();
  ASSERT_TRUE(ends.ok()) << ends.status();
  auto& [a, b] = *ends;
  ASSERT_TRUE(a.Send("first line").ok());
  ASSERT_TRUE(a.Send("").ok());
  ASSERT_TRUE(a.Send(std::string(60'000, 'x')).ok());
  EXPECT_EQ(b.TakeLine(), std::nullopt);
  ASSERT_TRUE(b.Fill());
  EXPECT_EQ(b.TakeLine(), "first line");
  EXPECT_EQ(b.TakeLine(), "");
  EXPECT_EQ(b.TakeLine()->size(), 60'000u);
  EXPECT_EQ(b.TakeLine(), std::nullopt);
  EXPECT_TRUE(b.Fill()) << "nothing there is not the end";
}

TEST(LineChannelTest, ReportsTheEndOfTheOtherSide) {
  auto ends = LineChannel::Pair();
  ASSERT_TRUE(ends.ok()) << ends.status();
  LineChannel b = std::move(ends->second);
  {
    const LineChannel gone = std::move(ends->first);
  }
  EXPECT_FALSE(b.Fill());
  EXPECT_EQ(b.Send("anybody?").code(), absl::StatusCode::kUnavailable);
}

TEST(LineTest, WordsAreTakenApart) {
  EXPECT_EQ(FirstWord("check a pass"), "check");
  EXPECT_EQ(AfterFirstWord("check a pass"), "a pass");
  EXPECT_EQ(FirstWord("check"), "check");
  EXPECT_EQ(AfterFirstWord("check"), "");
}

// /proc/self/exe is this test, which knows no flag --agent-fd and ends: a process of the fleet that dies.
TEST(FleetTest, AProcessThatEndsIsReportedAndNothingIsLeft) {
  Fleet fleet;
  ASSERT_TRUE(fleet.Spawn({"--gtest_list_tests"}).ok());
  absl::Status status;
  while (status.ok()) status = fleet.Poll(kSecond, [](size_t, std::string_view) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(status.ToString().find("process 1 ended by itself"), std::string::npos) << status;
  fleet.Quit();
  EXPECT_EQ(fleet.size(), 0u);
}

}  // namespace
}  // namespace furrow::bench
