#include "bench/tpcc/audit.h"

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace furrow::bench::tpcc {
namespace {

// Two warehouses of two districts with ten customers each, in which the conditions hold: orders 1 to 7 of
// each district are delivered and 8 to 10 are new.
struct Data {
  template <class Key, class Row>
  using Rows = std::vector<std::pair<Key, Row>>;
  Scale scale{.warehouses = 2, .districts = 2, .customers = 10, .items = 5, .item_copies = 1};
  Rows<WarehouseKey, WarehouseRow> warehouses;
  Rows<DistrictKey, DistrictRow> districts;
  Rows<CustomerKey, CustomerRow> customers;
  Rows<HistoryKey, HistoryRow> history;
  std::vector<NewOrderKey> new_orders;
  Rows<OrderKey, OrderRow> orders;
  Rows<OrderLineKey, OrderLineRow> lines;

  Data() {
    for (uint32_t w = 1; w <= 2; ++w) {
      warehouses.push_back({WarehouseKey{w}, WarehouseRow{}});
      warehouses.back().second.ytd = 2 * 10 * 1000;
      for (uint8_t d = 1; d <= 2; ++d) AddDistrict(w, d);
    }
  }

  void AddDistrict(uint32_t w, uint8_t d) {
    districts.push_back({DistrictKey{w, d}, DistrictRow{}});
    districts.back().second.ytd = 10 * 1000;
    districts.back().second.next_o_id = 11;
    for (uint32_t c = 1; c <= 10; ++c) {
      const bool delivered = c <= 7;
      CustomerRow customer = {};
      customer.balance = (delivered ? 600 : 0) - 1000;
      customer.ytd_payment = 1000;
      customers.push_back({CustomerKey{w, d, c}, customer});
      history.push_back({HistoryKey{w, d, 0u, c},
                         HistoryRow{.c_w = w, .c_d = d, .c = c, .date = 1, .amount = 1000, .data = {}}});
      orders.push_back(
          {OrderKey{w, d, c},
           OrderRow{
               .c = c, .entry_d = 1, .carrier = uint8_t(delivered ? 3 : 0), .ol_cnt = 2, .all_local = 1}});
      if (!delivered) new_orders.push_back(NewOrderKey{w, d, c});
      for (uint8_t number = 1; number <= 2; ++number) {
        lines.push_back(
            {OrderLineKey{w, d, c, number}, OrderLineRow{.i = 1,
                                                         .supply_w = w,
                                                         .delivery_d = delivered ? 5 : kNotDelivered,
                                                         .amount = 300,
                                                         .quantity = 1,
                                                         .dist_info = {}}});
      }
    }
  }

  void Feed(Audit* audit) const {
    auto add = [audit](TableKind kind, const auto& rows) {
      for (const auto& [key, row] : rows) audit->Add(kind, ViewOf(key), ViewOf(row));
    };
    add(TableKind::kOrderLine, lines);
    add(TableKind::kWarehouse, warehouses);
    add(TableKind::kDistrict, districts);
    add(TableKind::kCustomer, customers);
    add(TableKind::kHistory, history);
    add(TableKind::kOrders, orders);
    for (const NewOrderKey& key : new_orders) audit->Add(TableKind::kNewOrder, ViewOf(key), {});
    for (uint32_t i = 1; i <= 5; ++i) {
      audit->Add(TableKind::kItem, ViewOf(ItemKey{0u, i}), ViewOf(ItemRow{}));
      for (uint32_t w = 1; w <= 2; ++w)
        audit->Add(TableKind::kStock, ViewOf(StockKey{w, i}), ViewOf(StockRow{}));
    }
  }

  // Names of the checks that fail.
  std::set<std::string> Failures(bool after_load = true) const {
    Audit audit(scale);
    Feed(&audit);
    std::set<std::string> failed;
    for (const CheckResult& result : audit.Finish("", after_load)) {
      if (!result.pass) failed.insert(result.name);
      EXPECT_EQ(result.pass, result.detail.empty()) << result.name;
    }
    return failed;
  }
};

using Names = std::set<std::string>;

TEST(AuditTest, ConsistentDataPassesAllConditions) {
  const Data data;
  EXPECT_EQ(data.Failures(), Names{});
  Audit audit(data.scale);
  data.Feed(&audit);
  EXPECT_EQ(audit.Finish("_x", true).size(), 13u);
}

TEST(AuditTest, ConditionElevenIsLeftOutAfterARun) {
  Data data;
  data.new_orders.erase(data.new_orders.begin());  // order 8 of the first district: delivered
  data.orders[7].second.carrier = 1;
  for (auto& [key, row] : data.lines) {
    if (key.w == 1u && key.d == 1 && key.o == 8u) row.delivery_d = 9;
  }
  data.customers[7].second.balance += 600;
  EXPECT_EQ(data.Failures(/*after_load=*/true), Names{"condition_11"});
  EXPECT_EQ(data.Failures(/*after_load=*/false), Names{});
}

TEST(AuditTest, EachCorruptionFailsItsConditions) {
  struct Case {
    const char* what;
    std::function<void(Data&)> corrupt;
    Names fails;
  };
  const Case cases[] = {
      {"W_YTD", [](Data& d) { d.warehouses[0].second.ytd += 1; }, {"condition_1", "condition_8"}},
      {"D_YTD", [](Data& d) { d.districts[0].second.ytd += 1; }, {"condition_1", "condition_9"}},
      {"D_NEXT_O_ID", [](Data& d) { d.districts[1].second.next_o_id = 12; }, {"condition_2"}},
      {"a new order is lost",
       [](Data& d) { d.new_orders.erase(d.new_orders.begin() + 1); },
       {"condition_3", "condition_5", "condition_11"}},
      {"O_OL_CNT", [](Data& d) { d.orders[3].second.ol_cnt = 3; }, {"condition_4", "condition_6"}},
      {"an order line is lost", [](Data& d) { d.lines.pop_back(); }, {"condition_4", "condition_6"}},
      {"O_CARRIER_ID", [](Data& d) { d.orders[0].second.carrier = 0; }, {"condition_5", "condition_7"}},
      {"OL_DELIVERY_D",
       [](Data& d) { d.lines[0].second.delivery_d = 0; },
       {"condition_7", "condition_10", "condition_12"}},
      {"H_AMOUNT",
       [](Data& d) { d.history[0].second.amount += 1; },
       {"condition_8", "condition_9", "condition_10"}},
      {"a payment is lost",
       [](Data& d) { d.history.pop_back(); },
       {"condition_8", "condition_9", "condition_10"}},
      {"C_BALANCE", [](Data& d) { d.customers[0].second.balance -= 1; }, {"condition_10", "condition_12"}},
      {"C_YTD_PAYMENT", [](Data& d) { d.customers[0].second.ytd_payment -= 1; }, {"condition_12"}},
      {"a customer is there twice", [](Data& d) { d.customers.push_back(d.customers[0]); }, {"rows"}},
      {"a key out of range",
       [](Data& d) { d.customers.push_back({CustomerKey{1u, 1, 99u}, CustomerRow{}}); },
       {"rows"}},
  };
  for (const Case& c : cases) {
    Data data;
    c.corrupt(data);
    EXPECT_EQ(data.Failures(), c.fails) << c.what;
  }
}

TEST(AuditTest, RowsOfWrongSizeAreMalformed) {
  const Data data;
  Audit audit(data.scale);
  data.Feed(&audit);
  audit.Add(TableKind::kStock, "1234567", "x");
  const std::vector<CheckResult> results = audit.Finish("", false);
  EXPECT_FALSE(results.back().pass);
  EXPECT_NE(results.back().detail.find("1 malformed rows, the first of stock"), std::string::npos);
}

TEST(AuditTest, DigestsIgnoreTheOrderAndNothingElse) {
  Audit::Digest a, b, c;
  a.Add("k1", "v1");
  a.Add("k2", "v2");
  b.Add("k2", "v2");
  b.Add("k1", "v1");
  c.Add("k1", "v2");
  c.Add("k2", "v1");
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == c);
}

}  // namespace
}  // namespace furrow::bench::tpcc
