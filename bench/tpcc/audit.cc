#include "bench/tpcc/audit.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/checksum.h"
#include "base/strings.h"

namespace furrow::bench::tpcc {
namespace {

// O_IDs above this are taken for damage, not for memory to allocate.
constexpr uint32_t kMaxOrderId = 50'000'000;

struct Sizes {
  size_t key;
  size_t value;
};
constexpr Sizes kSizes[kTables] = {{sizeof(WarehouseKey), sizeof(WarehouseRow)},
                                   {sizeof(DistrictKey), sizeof(DistrictRow)},
                                   {sizeof(CustomerKey), sizeof(CustomerRow)},
                                   {sizeof(HistoryKey), sizeof(HistoryRow)},
                                   {sizeof(NewOrderKey), 0},
                                   {sizeof(OrderKey), sizeof(OrderRow)},
                                   {sizeof(OrderLineKey), sizeof(OrderLineRow)},
                                   {sizeof(ItemKey), sizeof(ItemRow)},
                                   {sizeof(StockKey), sizeof(StockRow)}};

}  // namespace

Audit::Audit(const Scale& scale) : scale_(scale), warehouses_(scale.warehouses + 1) {
  for (Warehouse& w : warehouses_) {
    w.districts.resize(scale.districts + 1);
    for (District& d : w.districts) d.customers.resize(scale.customers + 1);
  }
}

void Audit::Digest::Add(std::string_view key, std::string_view value) {
  ++rows;
  sum += Hash64(value, Hash64(key));
}

Audit::Warehouse* Audit::FindWarehouse(uint32_t w) {
  return w >= 1 && w <= scale_.warehouses ? &warehouses_[w] : nullptr;
}
Audit::District* Audit::FindDistrict(uint32_t w, uint8_t d) {
  Warehouse* warehouse = FindWarehouse(w);
  return warehouse != nullptr && d >= 1 && d <= scale_.districts ? &warehouse->districts[d] : nullptr;
}
Audit::Order* Audit::FindOrder(uint32_t w, uint8_t d, uint32_t o) {
  District* district = FindDistrict(w, d);
  if (district == nullptr || o == 0 || o > kMaxOrderId) return nullptr;
  if (district->orders.size() <= o)
    district->orders.resize(std::max<size_t>(o + 1, district->orders.size() * 3 / 2));
  return &district->orders[o];
}
Audit::Customer* Audit::FindCustomer(uint32_t w, uint8_t d, uint32_t c) {
  District* district = FindDistrict(w, d);
  return district != nullptr && c >= 1 && c <= scale_.customers ? &district->customers[c] : nullptr;
}

void Audit::Add(TableKind kind, std::string_view key, std::string_view value) {
  const size_t table = static_cast<size_t>(kind);
  digests_[table].Add(key, value);
  if (key.size() == kSizes[table].key && value.size() == kSizes[table].value && AddRow(kind, key, value))
    return;
  if (malformed_++ == 0) {
    first_malformed_ = absl::StrCat(Sv(kTableNames[table]), " key ", absl::BytesToHexString(Sv(key)));
  }
}

bool Audit::AddRow(TableKind kind, std::string_view key, std::string_view value) {
  switch (kind) {
    case TableKind::kWarehouse: {
      Warehouse* w = FindWarehouse(As<WarehouseKey>(key).w);
      if (w == nullptr || w->exists) return false;
      w->exists = true;
      w->ytd = As<WarehouseRow>(value).ytd;
      return true;
    }
    case TableKind::kDistrict: {
      const DistrictKey& k = As<DistrictKey>(key);
      District* d = FindDistrict(k.w, k.d);
      if (d == nullptr || d->exists) return false;
      d->exists = true;
      d->ytd = As<DistrictRow>(value).ytd;
      d->next_o_id = As<DistrictRow>(value).next_o_id;
      return true;
    }
    case TableKind::kCustomer: {
      const CustomerKey& k = As<CustomerKey>(key);
      Customer* c = FindCustomer(k.w, k.d, k.c);
      if (c == nullptr || c->exists) return false;
      c->exists = true;
      c->balance = As<CustomerRow>(value).balance;
      c->ytd_payment = As<CustomerRow>(value).ytd_payment;
      return true;
    }
    case TableKind::kHistory:
      return AddHistory(As<HistoryKey>(key), As<HistoryRow>(value));
    case TableKind::kNewOrder: {
      const NewOrderKey& k = As<NewOrderKey>(key);
      Order* order = FindOrder(k.w, k.d, k.o);
      if (order == nullptr || order->is_new) return false;
      order->is_new = true;
      return true;
    }
    case TableKind::kOrders:
      return AddOrder(As<OrderKey>(key), As<OrderRow>(value));
    case TableKind::kOrderLine:
      return AddOrderLine(As<OrderLineKey>(key), As<OrderLineRow>(value));
    case TableKind::kItem: {
      const ItemKey& k = As<ItemKey>(key);
      return k.copy < scale_.item_copies && k.i >= 1 && k.i <= scale_.items;
    }
    case TableKind::kStock: {
      const StockKey& k = As<StockKey>(key);
      return k.w >= 1 && k.w <= scale_.warehouses && k.i >= 1 && k.i <= scale_.items;
    }
    case TableKind::kCount:
      break;
  }
  return false;
}

bool Audit::AddHistory(const HistoryKey& key, const HistoryRow& row) {
  District* district = FindDistrict(key.w, key.d);
  Customer* customer = FindCustomer(row.c_w, row.c_d, row.c);
  if (district == nullptr || customer == nullptr) return false;
  warehouses_[key.w].paid += row.amount;
  district->paid += row.amount;
  customer->paid += row.amount;
  return true;
}

bool Audit::AddOrder(const OrderKey& key, const OrderRow& row) {
  Order* order = FindOrder(key.w, key.d, key.o);
  if (order == nullptr || order->exists || FindCustomer(key.w, key.d, row.c) == nullptr) return false;
  order->exists = true;
  order->c = row.c;
  order->carrier = row.carrier;
  order->ol_cnt = row.ol_cnt;
  return true;
}

bool Audit::AddOrderLine(const OrderLineKey& key, const OrderLineRow& row) {
  Order* order = FindOrder(key.w, key.d, key.o);
  if (order == nullptr || key.number < 1 || key.number > kMaxOrderLines || order->lines == kMaxOrderLines)
    return false;
  ++order->lines;
  ++FindDistrict(key.w, key.d)->lines;
  if (row.delivery_d != kNotDelivered) {
    ++order->delivered_lines;
    order->delivered_amount += row.amount;
  }
  return true;
}

void Audit::Expect(int condition, bool holds, const std::string& place, int64_t left, int64_t right) {
  if (holds) return;
  Finding& finding = findings_[condition];
  if (finding.failures++ == 0) finding.first = absl::StrCat(place, ": ", left, " against ", right);
}

void Audit::CheckOrder(const std::string& place, uint32_t o, const Order& order, District& district) {
  const std::string at = absl::StrCat(place, " order ", o);
  const bool carrier_null = order.carrier == kNoCarrier;
  Expect(5, order.exists ? carrier_null == order.is_new : !order.is_new, at, order.carrier, order.is_new);
  Expect(6, order.exists ? order.ol_cnt == order.lines : order.lines == 0, at, order.ol_cnt, order.lines);
  Expect(7, !order.exists || order.delivered_lines == (carrier_null ? 0 : order.lines), at,
         order.delivered_lines, order.lines);
  if (order.exists) district.customers[order.c].delivered += order.delivered_amount;
}

void Audit::CheckCustomer(const std::string& place, uint32_t c, const Customer& customer) {
  const std::string at = absl::StrCat(place, " customer ", c);
  Expect(10, customer.balance == customer.delivered - customer.paid, at, customer.balance,
         customer.delivered - customer.paid);
  Expect(12, customer.balance + customer.ytd_payment == customer.delivered, at,
         customer.balance + customer.ytd_payment, customer.delivered);
}

void Audit::CheckDistrict(const std::string& place, District& district) {
  int64_t max_o = 0, orders = 0, new_orders = 0, min_new = 0, max_new = 0, ol_cnt = 0;
  for (uint32_t o = 1; o < district.orders.size(); ++o) {
    const Order& order = district.orders[o];
    if (!order.exists && !order.is_new && order.lines == 0) continue;
    CheckOrder(place, o, order, district);
    if (order.exists) {
      ++orders;
      max_o = o;
      ol_cnt += order.ol_cnt;
    }
    if (order.is_new) {
      if (new_orders++ == 0) min_new = o;
      max_new = o;
    }
  }
  const int64_t newest = int64_t{district.next_o_id} - 1;
  Expect(2, newest == max_o, place, newest, max_o);
  Expect(2, new_orders == 0 || newest == max_new, place, newest, max_new);
  Expect(3, new_orders == 0 || max_new - min_new + 1 == new_orders, place, max_new - min_new + 1, new_orders);
  Expect(4, ol_cnt == static_cast<int64_t>(district.lines), place, ol_cnt,
         static_cast<int64_t>(district.lines));
  Expect(9, district.ytd == district.paid, place, district.ytd, district.paid);
  const int64_t delivered = int64_t{FirstNewOrder(scale_)} - 1;
  Expect(11, orders - new_orders == delivered, place, orders - new_orders, delivered);
  for (uint32_t c = 1; c <= scale_.customers; ++c) CheckCustomer(place, c, district.customers[c]);
}

void Audit::CheckWarehouse(uint32_t w, Warehouse& warehouse) {
  const std::string place = absl::StrCat("warehouse ", w);
  int64_t sum = 0;
  for (uint32_t d = 1; d <= scale_.districts; ++d) {
    District& district = warehouse.districts[d];
    sum += district.ytd;
    CheckDistrict(absl::StrCat(place, " district ", d), district);
  }
  Expect(1, warehouse.ytd == sum, place, warehouse.ytd, sum);
  Expect(8, warehouse.ytd == warehouse.paid, place, warehouse.ytd, warehouse.paid);
}

std::vector<CheckResult> Audit::Finish(std::string_view suffix, bool after_load) {
  for (uint32_t w = 1; w <= scale_.warehouses; ++w) CheckWarehouse(w, warehouses_[w]);
  std::vector<CheckResult> results;
  for (int i = 1; i <= kConditions; ++i) {
    if (i == 11 && !after_load) continue;
    const Finding& finding = findings_[i];
    CheckResult result{absl::StrCat("condition_", i, Sv(suffix)), finding.failures == 0, {}};
    if (!result.pass) result.detail = absl::StrCat(finding.first, " (", finding.failures, " failures)");
    results.push_back(std::move(result));
  }
  const uint64_t districts = uint64_t{scale_.warehouses} * scale_.districts;
  const std::pair<TableKind, uint64_t> fixed[] = {
      {TableKind::kWarehouse, scale_.warehouses},
      {TableKind::kDistrict, districts},
      {TableKind::kCustomer, districts * scale_.customers},
      {TableKind::kItem, uint64_t{scale_.item_copies} * scale_.items},
      {TableKind::kStock, uint64_t{scale_.warehouses} * scale_.items}};
  CheckResult rows{absl::StrCat("rows", Sv(suffix)), malformed_ == 0, {}};
  if (malformed_ != 0)
    rows.detail = absl::StrCat(malformed_, " malformed rows, the first of ", first_malformed_);
  for (const auto& [kind, expected] : fixed) {
    if (digest(kind).rows == expected) continue;
    rows.pass = false;
    absl::StrAppend(&rows.detail, rows.detail.empty() ? "" : "; ", Sv(kTableNames[static_cast<size_t>(kind)]),
                    " has ", digest(kind).rows, " rows, not ", expected);
  }
  results.push_back(std::move(rows));
  return results;
}

}  // namespace furrow::bench::tpcc
