#include "storage/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace furrow::storage {
namespace {

using ::testing::HasSubstr;

TEST(MemoryBudgetTest, ChargesUpToTheLimitLessTheReserve) {
  MemoryBudget budget(1000, 100);
  EXPECT_TRUE(budget.Charge("regions", 600).ok());
  EXPECT_TRUE(budget.Charge("rings", 300).ok());
  EXPECT_EQ(budget.Charge("rings", 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.Charge("rings", 100, /*may_use_reserve=*/true).ok());
  EXPECT_EQ(budget.Charge("rings", 1, true).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.used(), 1000u);
  budget.Release("regions", 600);
  EXPECT_TRUE(budget.Charge("regions", 500).ok());
  EXPECT_EQ(budget.UseByKind()["regions"], 500u);
  EXPECT_EQ(budget.UseByKind()["rings"], 400u);
}

TEST(MemoryBudgetTest, HugeChargesDoNotWrap) {
  MemoryBudget budget(1000, 100);
  ASSERT_TRUE(budget.Charge("regions", 900).ok());
  EXPECT_EQ(budget.Charge("regions", UINT64_MAX, true).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.Charge("regions", UINT64_MAX - 899).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.used(), 900u);
}

TEST(MemoryBudgetTest, RefusalNamesLimitUseAndSetting) {
  MemoryBudget budget(1000, 100, "--node-memory");
  ASSERT_TRUE(budget.Charge("regions", 700).ok());
  std::string message(budget.Charge("old versions", 300).message());
  EXPECT_THAT(message, HasSubstr("300 bytes for old versions"));
  EXPECT_THAT(message, HasSubstr("--node-memory = 1000"));
  EXPECT_THAT(message, HasSubstr("regions 700"));
}

TEST(MemoryBudgetDeathTest, ReleasingMoreThanWasChargedIsFatal) {
  MemoryBudget budget(1000, 0);
  ASSERT_TRUE(budget.Charge("regions", 10).ok());
  EXPECT_DEATH(budget.Release("regions", 11), "check failed");
  EXPECT_DEATH(budget.Release("rings", 1), "check failed");
}

}  // namespace
}  // namespace furrow::storage
