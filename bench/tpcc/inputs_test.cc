#include "bench/tpcc/inputs.h"

#include <array>
#include <map>
#include <set>

#include "gtest/gtest.h"

namespace furrow::bench::tpcc {
namespace {

constexpr uint64_t kSeed = 4711;
constexpr int kDraws = 100'000;
constexpr Scale kScale{.warehouses = 5};

InputGenerator Generator(uint32_t w = 3) {
  return InputGenerator(kScale, w, 7, kSeed, NurandConstants::FromSeed(kSeed));
}

TEST(InputsTest, MixIsExactOverEachDeck) {
  InputGenerator g = Generator();
  std::set<std::vector<TxType>> orders;
  for (int deck = 0; deck < 20; ++deck) {
    std::map<TxType, int> counts;
    std::vector<TxType> cards;
    for (int i = 0; i < 100; ++i) {
      cards.push_back(g.NextType());
      ++counts[cards.back()];
    }
    EXPECT_EQ(counts[TxType::kNewOrder], 45);
    EXPECT_EQ(counts[TxType::kPayment], 43);
    EXPECT_EQ(counts[TxType::kOrderStatus], 4);
    EXPECT_EQ(counts[TxType::kDelivery], 4);
    EXPECT_EQ(counts[TxType::kStockLevel], 4);
    orders.insert(cards);
  }
  EXPECT_EQ(orders.size(), 20u) << "decks are shuffled anew, seed " << kSeed;
}

TEST(InputsTest, NewOrdersHaveRemoteLinesAndRollBacksOfOnePercent) {
  InputGenerator g = Generator();
  int rolled_back = 0, lines = 0, remote = 0, not_local = 0;
  std::set<uint32_t> suppliers, districts;
  for (int i = 0; i < kDraws; ++i) {
    const NewOrderInput in = g.NewOrder();
    ASSERT_EQ(in.w, 3u);
    ASSERT_TRUE(in.lines >= 5 && in.lines <= 15);
    ASSERT_TRUE(in.c >= 1 && in.c <= kCustomers);
    districts.insert(in.d);
    bool local = true;
    for (int l = 0; l < in.lines; ++l) {
      const bool unused = in.rolls_back && l == in.lines - 1;
      ASSERT_EQ(in.line[l].item == kItems + 1, unused);
      ASSERT_TRUE(in.line[l].item >= 1 && in.line[l].quantity >= 1 && in.line[l].quantity <= 10);
      if (in.line[l].supply_w != 3) {
        suppliers.insert(in.line[l].supply_w);
        local = false;
        ++remote;
      }
    }
    ASSERT_EQ(in.all_local, local);
    rolled_back += in.rolls_back;
    lines += in.lines;
    not_local += !local;
  }
  EXPECT_NEAR(rolled_back, kDraws / 100, 120) << "seed " << kSeed;
  EXPECT_NEAR(static_cast<double>(lines) / kDraws, 10, 0.05);
  EXPECT_NEAR(static_cast<double>(remote) / lines, 0.01, 0.0005);
  EXPECT_NEAR(static_cast<double>(not_local) / kDraws, 0.095, 0.005);
  EXPECT_EQ(suppliers, (std::set<uint32_t>{1, 2, 4, 5}));
  EXPECT_EQ(districts.size(), 10u);
}

TEST(InputsTest, PaymentsAreRemoteAndByNameAsDemanded) {
  InputGenerator g = Generator();
  int remote = 0, by_name = 0;
  for (int i = 0; i < kDraws; ++i) {
    const PaymentInput in = g.Payment();
    ASSERT_EQ(in.w, 3u);
    ASSERT_TRUE(in.amount >= 100 && in.amount <= 500'000);
    ASSERT_TRUE(in.customer.w >= 1 && in.customer.w <= 5);
    remote += in.customer.w != 3;
    if (in.customer.w == 3) {
      ASSERT_EQ(in.customer.d, in.d);
    }
    by_name += in.customer.c == 0;
    ASSERT_EQ(in.customer.c == 0, !in.customer.last.view().empty());
  }
  EXPECT_NEAR(remote, kDraws * 15 / 100, 500) << "seed " << kSeed;
  EXPECT_NEAR(by_name, kDraws * 60 / 100, 700);
}

TEST(InputsTest, OrderStatusIsAtHomeAndByNameInSixtyPercent) {
  InputGenerator g = Generator();
  int by_name = 0;
  for (int i = 0; i < kDraws; ++i) {
    const OrderStatusInput in = g.OrderStatus();
    ASSERT_EQ(in.customer.w, 3u);
    by_name += in.customer.c == 0;
  }
  EXPECT_NEAR(by_name, kDraws * 60 / 100, 700) << "seed " << kSeed;
}

TEST(InputsTest, DeliveriesAndStockLevelsStayInTheirRanges) {
  InputGenerator g = Generator();
  std::set<int> carriers, thresholds;
  for (int i = 0; i < 1000; ++i) {
    carriers.insert(g.Delivery().carrier);
    const StockLevelInput in = g.StockLevel();
    ASSERT_EQ(in.d, 7);
    thresholds.insert(in.threshold);
  }
  EXPECT_EQ(carriers.size(), 10u);
  EXPECT_EQ(*carriers.begin(), 1);
  EXPECT_EQ(thresholds.size(), 11u);
  EXPECT_EQ(*thresholds.begin(), 10);
}

TEST(InputsTest, OneWarehouseAloneHasNothingRemote) {
  InputGenerator g(Scale{.warehouses = 1}, 1, 1, kSeed, {});
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(g.NewOrder().all_local);
    ASSERT_EQ(g.Payment().customer.w, 1u);
  }
}

TEST(InputsTest, TheSameSeedAsksTheSame) {
  InputGenerator a = Generator();
  InputGenerator b = Generator();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(a.NextType(), b.NextType());
    ASSERT_EQ(a.NewOrder().c, b.NewOrder().c);
  }
}

}  // namespace
}  // namespace furrow::bench::tpcc
