// Audit: TPC-C's consistency conditions (clause 3.3.2) over rows that are fed to it in any order, from
// wherever they come: from the regions' memory or through an index. One owner. Memory: about 40 bytes per
// order and per customer.
//
//    1  W_YTD = sum(D_YTD)
//    2  D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID), the latter if the district has new orders
//    3  max(NO_O_ID) - min(NO_O_ID) + 1 = number of new orders, per district
//    4  sum(O_OL_CNT) = number of order lines, per district
//    5  O_CARRIER_ID is null exactly if there is a new order
//    6  O_OL_CNT = number of the order's lines
//    7  OL_DELIVERY_D is null exactly if the order's O_CARRIER_ID is
//    8  W_YTD = sum(H_AMOUNT)
//    9  D_YTD = sum(H_AMOUNT)
//   10  C_BALANCE = sum(OL_AMOUNT, delivered) - sum(H_AMOUNT)
//   11  orders - new orders = 2,100 per district (70 % of a smaller scale's orders): right after the load
//   only 12  C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT, delivered)
#ifndef FURROW_BENCH_TPCC_AUDIT_H_
#define FURROW_BENCH_TPCC_AUDIT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/result.h"
#include "bench/tpcc/schema.h"

namespace furrow::bench::tpcc {

inline constexpr int kConditions = 12;

class Audit {
 public:
  explicit Audit(const Scale& scale);

  // A row of a table. One that cannot be (sizes, numbers out of range, twice the same) is counted as
  // malformed.
  void Add(TableKind kind, std::string_view key, std::string_view value);

  // "condition_1" .. "condition_12" with `suffix`, 11 only if `after_load`, and "rows": that none is
  // malformed, and that the tables of fixed size have all of theirs. A failed one says where it fails first,
  // and at how many places.
  std::vector<CheckResult> Finish(std::string_view suffix, bool after_load);

  // Of all rows of a table: their number, and a sum that does not depend on the order.
  struct Digest {
    uint64_t rows = 0;
    uint64_t sum = 0;
    void Add(std::string_view key, std::string_view value);
    friend bool operator==(const Digest&, const Digest&) = default;
  };
  const Digest& digest(TableKind kind) const { return digests_[static_cast<size_t>(kind)]; }

 private:
  struct Order {
    uint32_t c = 0;
    uint8_t carrier = 0;
    uint8_t ol_cnt = 0;
    bool exists = false;
    bool is_new = false;
    uint8_t lines = 0;
    uint8_t delivered_lines = 0;
    int64_t delivered_amount = 0;
  };
  struct Customer {
    bool exists = false;
    int64_t balance = 0;
    int64_t ytd_payment = 0;
    int64_t paid = 0;       // by HISTORY
    int64_t delivered = 0;  // by the lines of delivered orders
  };
  struct District {
    bool exists = false;
    int64_t ytd = 0;
    uint32_t next_o_id = 0;
    int64_t paid = 0;
    uint64_t lines = 0;
    std::vector<Order> orders;        // by O_ID
    std::vector<Customer> customers;  // by C_ID
  };
  struct Warehouse {
    bool exists = false;
    int64_t ytd = 0;
    int64_t paid = 0;
    std::vector<District> districts;
  };
  // One condition's result while it is computed.
  struct Finding {
    uint64_t failures = 0;
    std::string first;
  };

  Warehouse* FindWarehouse(uint32_t w);
  District* FindDistrict(uint32_t w, uint8_t d);
  Order* FindOrder(uint32_t w, uint8_t d, uint32_t o);
  Customer* FindCustomer(uint32_t w, uint8_t d, uint32_t c);
  bool AddRow(TableKind kind, std::string_view key, std::string_view value);
  bool AddHistory(const HistoryKey& key, const HistoryRow& row);
  bool AddOrder(const OrderKey& key, const OrderRow& row);
  bool AddOrderLine(const OrderLineKey& key, const OrderLineRow& row);
  void CheckWarehouse(uint32_t w, Warehouse& warehouse);
  void CheckDistrict(const std::string& place, District& district);
  void CheckOrder(const std::string& place, uint32_t o, const Order& order, District& district);
  void CheckCustomer(const std::string& place, uint32_t c, const Customer& customer);
  void Expect(int condition, bool holds, const std::string& place, int64_t left, int64_t right);

  const Scale scale_;
  std::vector<Warehouse> warehouses_;  // by W_ID
  std::array<Finding, kConditions + 1> findings_;
  std::array<Digest, kTables> digests_;
  uint64_t malformed_ = 0;
  std::string first_malformed_;
};

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_AUDIT_H_
