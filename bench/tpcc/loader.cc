#include "bench/tpcc/loader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace furrow::bench::tpcc {
namespace {

constexpr uint32_t kOrdersPerTransaction = 40;
constexpr uint32_t kCustomersPerTransaction = 200;
constexpr uint32_t kStocksPerTransaction = 500;
constexpr uint32_t kItemsPerTransaction = 1000;

// What the load of one warehouse or item copy carries along.
struct Loading {
  const Tables& tables;
  txn::Worker& worker;
  uint32_t w;
  uint64_t seed;
  NurandConstants constants;
  Progress* progress;
  std::vector<uint32_t> customers = {};  // of the district's orders, by number

  // The generator of one transaction.
  TpccRandom RandomOf(std::string_view what, uint32_t d, uint32_t first) const {
    const uint64_t place[] = {w, d, first};
    return TpccRandom(Hash64(what, Hash64(std::as_bytes(std::span(place)), seed)), constants);
  }
};

struct Range {
  uint32_t d;
  uint32_t first;
  uint32_t last;
};

using Body = Task<absl::Status> (*)(txn::Transaction&, const Loading&, Range, uint64_t* rows);

// Runs `body` over [1, count] in steps, one transaction each.
Task<absl::Status> InSteps(const Loading& loading, uint32_t d, uint32_t count, uint32_t step, Body body) {
  for (uint32_t first = 1; first <= count; first += step) {
    uint64_t rows = 0;
    struct {
      Body body;
      const Loading* loading;
      Range range;
      uint64_t* rows;
    } const bound{body, &loading, {d, first, std::min(first + step - 1, count)}, &rows};
    const txn::CommitResult result = co_await loading.worker.Run([&bound](txn::Transaction& tx) {
      *bound.rows = 0;
      return bound.body(tx, *bound.loading, bound.range, bound.rows);
    });
    if (!result.committed()) co_return result.status;
    loading.progress->done.fetch_add(rows, std::memory_order_relaxed);
    co_await loading.worker.loop().Yield();
    if (loading.progress->stop.load(std::memory_order_relaxed))
      co_return absl::CancelledError("the load was given up");
  }
  co_return absl::OkStatus();
}

template <Packed Key, Packed Value>
Task<absl::Status> Put(const Loading& loading, txn::Transaction& tx, TableKind kind, const Key& key,
                       const Value& value, uint64_t* rows) {
  ++*rows;
  co_return (co_await loading.tables[kind].Insert(tx, ViewOf(key), ViewOf(value))).status();
}

// NAME, STREET_1, STREET_2, CITY, STATE and ZIP of warehouses and districts, of which customers have all but
// the name.
template <class R>
void FillAddress(TpccRandom& random, R* row) {
  random.AString(row->street_1.span(), 10);
  random.AString(row->street_2.span(), 10);
  random.AString(row->city.span(), 10);
  random.AString(row->state.span(), 2);
  random.Zip(row->zip.span());
}

Task<absl::Status> PutWarehouse(txn::Transaction& tx, const Loading& loading, Range, uint64_t* rows) {
  TpccRandom random = loading.RandomOf("warehouse", 0, 0);
  WarehouseRow row = {};
  // 300,000.00 at full scale: the sum of the districts, as condition 1 demands.
  row.ytd = int64_t{10'00} * loading.tables.scale.customers * loading.tables.scale.districts;
  row.tax = static_cast<uint16_t>(random.Uniform(0, 2000));
  random.AString(row.name.span(), 6);
  FillAddress(random, &row);
  co_return co_await Put(loading, tx, TableKind::kWarehouse, WarehouseKey{loading.w}, row, rows);
}

Task<absl::Status> PutDistricts(txn::Transaction& tx, const Loading& loading, Range range, uint64_t* rows) {
  TpccRandom random = loading.RandomOf("district", 0, 0);
  for (uint32_t d = range.first; d <= range.last; ++d) {
    DistrictRow row = {};
    // 30,000.00 where there are 3,000 customers: 10.00 of each, which condition 9 demands of any number of
    // them.
    row.ytd = int64_t{10'00} * loading.tables.scale.customers;
    row.next_o_id = loading.tables.scale.customers + 1;
    row.tax = static_cast<uint16_t>(random.Uniform(0, 2000));
    random.AString(row.name.span(), 6);
    FillAddress(random, &row);
    const DistrictKey key{loading.w, static_cast<uint8_t>(d)};
    FURROW_CO_RETURN_IF_ERROR(co_await Put(loading, tx, TableKind::kDistrict, key, row, rows));
  }
  co_return absl::OkStatus();
}

CustomerRow MakeCustomer(TpccRandom& random, uint32_t c, Nanos now) {
  CustomerRow row = {};
  row.balance = -10'00;
  row.ytd_payment = 10'00;
  row.payment_cnt = 1;
  row.discount = static_cast<uint16_t>(random.Uniform(0, 5000));
  row.credit.Set(random.Percent(10) ? "BC" : "GC");
  LastName(c <= 1000 ? c - 1 : random.LastNameForLoad(), row.last.span());
  random.AString(row.first.span(), 8);
  row.middle.Set("OE");
  FillAddress(random, &row);
  random.NString(row.phone.span());
  row.since = now;
  row.credit_lim = 50'000'00;
  random.AString(row.data.span(), 300);
  return row;
}

Task<absl::Status> PutCustomers(txn::Transaction& tx, const Loading& loading, Range range, uint64_t* rows) {
  TpccRandom random = loading.RandomOf("customer", range.d, range.first);
  const Nanos now = WallClockNow();
  const uint8_t d = static_cast<uint8_t>(range.d);
  for (uint32_t c = range.first; c <= range.last; ++c) {
    const CustomerRow row = MakeCustomer(random, c, now);
    FURROW_CO_RETURN_IF_ERROR(
        co_await Put(loading, tx, TableKind::kCustomer, CustomerKey{loading.w, d, c}, row, rows));
    HistoryRow history = {.c_w = loading.w, .c_d = d, .c = c, .date = now, .amount = 10'00, .data = {}};
    random.AString(history.data.span(), 12);
    // Terminal 0 is the load.
    const HistoryKey key{loading.w, d, 0u, c};
    FURROW_CO_RETURN_IF_ERROR(co_await Put(loading, tx, TableKind::kHistory, key, history, rows));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> PutOrders(txn::Transaction& tx, const Loading& loading, Range range, uint64_t* rows) {
  TpccRandom random = loading.RandomOf("order", range.d, range.first);
  const Scale& scale = loading.tables.scale;
  const Nanos now = WallClockNow();
  const uint8_t d = static_cast<uint8_t>(range.d);
  for (uint32_t o = range.first; o <= range.last; ++o) {
    const bool delivered = o < FirstNewOrder(scale);
    OrderRow order = {.c = loading.customers[o - 1],
                      .entry_d = now,
                      .carrier = kNoCarrier,
                      .ol_cnt = static_cast<uint8_t>(random.Uniform(kMinOrderLines, kMaxOrderLines)),
                      .all_local = 1};
    if (delivered) order.carrier = static_cast<uint8_t>(random.Uniform(1, 10));
    FURROW_CO_RETURN_IF_ERROR(
        co_await Put(loading, tx, TableKind::kOrders, OrderKey{loading.w, d, o}, order, rows));
    if (!delivered) {
      const NewOrderKey key{loading.w, d, o};
      FURROW_CO_RETURN_IF_ERROR(
          (co_await loading.tables[TableKind::kNewOrder].Insert(tx, ViewOf(key), {})).status());
      ++*rows;
    }
    for (uint8_t number = 1; number <= order.ol_cnt; ++number) {
      OrderLineRow line = {.i = random.Uniform(1, scale.items),
                           .supply_w = loading.w,
                           .delivery_d = delivered ? now : kNotDelivered,
                           .amount = delivered ? 0 : static_cast<int32_t>(random.Uniform(1, 999'999)),
                           .quantity = 5,
                           .dist_info = {}};
      random.AString(line.dist_info.span(), sizeof(line.dist_info));
      const OrderLineKey key{loading.w, d, o, number};
      FURROW_CO_RETURN_IF_ERROR(co_await Put(loading, tx, TableKind::kOrderLine, key, line, rows));
    }
  }
  co_return absl::OkStatus();
}

Task<absl::Status> PutStocks(txn::Transaction& tx, const Loading& loading, Range range, uint64_t* rows) {
  TpccRandom random = loading.RandomOf("stock", 0, range.first);
  for (uint32_t i = range.first; i <= range.last; ++i) {
    StockRow row = {};
    row.quantity = static_cast<int16_t>(random.Uniform(10, 100));
    for (auto& dist : row.dist) random.AString(dist.span(), sizeof(dist));
    random.Data(row.data.span());
    FURROW_CO_RETURN_IF_ERROR(
        co_await Put(loading, tx, TableKind::kStock, StockKey{loading.w, i}, row, rows));
  }
  co_return absl::OkStatus();
}

// Every copy has the same rows: the generator does not depend on the copy.
Task<absl::Status> PutItems(txn::Transaction& tx, const Loading& loading, Range range, uint64_t* rows) {
  Loading same = loading;
  same.w = 0;
  TpccRandom random = same.RandomOf("item", 0, range.first);
  for (uint32_t i = range.first; i <= range.last; ++i) {
    ItemRow row = {};
    row.im_id = random.Uniform(1, 10'000);
    row.price = static_cast<int32_t>(random.Uniform(100, 10'000));
    random.AString(row.name.span(), 14);
    random.Data(row.data.span());
    FURROW_CO_RETURN_IF_ERROR(co_await Put(loading, tx, TableKind::kItem, ItemKey{loading.w, i}, row, rows));
  }
  co_return absl::OkStatus();
}

}  // namespace

uint64_t RowsPerWarehouse(const Scale& scale) {
  const uint64_t orders = uint64_t{scale.districts} * scale.customers;
  const uint64_t undelivered = uint64_t{scale.districts} * (scale.customers + 1 - FirstNewOrder(scale));
  return 1 + scale.districts + 2 * orders + orders * 11 + undelivered + scale.items;
}

Task<absl::Status> LoadWarehouse(const Tables& tables, txn::Worker& worker, uint32_t w, uint64_t seed,
                                 NurandConstants constants, Progress* progress) {
  Loading loading{tables, worker, w, seed, constants, progress};
  const Scale& scale = tables.scale;
  FURROW_CO_RETURN_IF_ERROR(co_await InSteps(loading, 0, 1, 1, PutWarehouse));
  FURROW_CO_RETURN_IF_ERROR(co_await InSteps(loading, 0, scale.districts, scale.districts, PutDistricts));
  FURROW_CO_RETURN_IF_ERROR(co_await InSteps(loading, 0, scale.items, kStocksPerTransaction, PutStocks));
  for (uint32_t d = 1; d <= scale.districts; ++d) {
    FURROW_CO_RETURN_IF_ERROR(
        co_await InSteps(loading, d, scale.customers, kCustomersPerTransaction, PutCustomers));
    Random random(Hash64("orders of customers", seed ^ uint64_t{w} << 8 ^ d));
    loading.customers = Permutation(scale.customers, random);
    FURROW_CO_RETURN_IF_ERROR(
        co_await InSteps(loading, d, scale.customers, kOrdersPerTransaction, PutOrders));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> LoadItems(const Tables& tables, txn::Worker& worker, uint32_t copy, uint64_t seed,
                             NurandConstants constants, Progress* progress) {
  const Loading loading{tables, worker, copy, seed, constants, progress};
  co_return co_await InSteps(loading, 0, tables.scale.items, kItemsPerTransaction, PutItems);
}

}  // namespace furrow::bench::tpcc
