#include "bench/tpcc/transactions.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace furrow::bench::tpcc {
namespace {

using index::KeyRange;
using index::Row;
using index::RowResult;
using index::ScanSpec;

bool IsOriginal(const Text<50>& data) {
  return memmem(data.chars, sizeof(data.chars), "ORIGINAL", 8) != nullptr;
}

// Opens a row of type T for writing.
template <Packed T>
absl::StatusOr<T*> Open(const index::Table& table, txn::Transaction& tx, const Row& row) {
  FURROW_ASSIGN_OR_RETURN(const std::span<std::byte> value, table.OpenForWrite(tx, row));
  return &As<T>(value);
}

// Clause 2.5.2.2 and 2.6.2.2: by number, or the middle one, rounded up, of those with the last name ordered
// by first name.
Task<RowResult> FindCustomer(txn::Transaction& tx, Context context, const CustomerChoice& choice) {
  const index::Table& customers = context.tables[TableKind::kCustomer];
  if (choice.c != 0) {
    const CustomerKey key{choice.w, choice.d, choice.c};
    co_return co_await customers.Get(tx, ViewOf(key));
  }
  const CustomerNameKey name{choice.w, choice.d, choice.last};
  const ScanSpec scan{.index = kCustomerByName, .range = KeyRange::Prefix(ViewOf(name))};
  FURROW_CO_ASSIGN_OR_RETURN(const size_t count,
                             co_await customers.ScanInto(tx, scan, context.scratch.found));
  if (count == 0) co_return absl::NotFoundError("no customer has this last name");
  co_return context.scratch.found[(count + 1) / 2 - 1];
}

// Clause 2.5.2.2: what happened goes in front of C_DATA, what does not fit falls off.
void PrependToData(const PaymentInput& in, uint32_t c, CustomerRow* customer) {
  char entry[96];
  const int length =
      std::snprintf(entry, sizeof(entry), "%u %u %u %u %u %d.%02d|", c, unsigned{in.customer.d},
                    in.customer.w, unsigned{in.d}, in.w, in.amount / 100, in.amount % 100);
  const size_t n = static_cast<size_t>(length);
  std::memmove(customer->data.chars + n, customer->data.chars, sizeof(customer->data.chars) - n);
  std::memcpy(customer->data.chars, entry, n);
}

// Takes the line's quantity out of the stock, and says what its order line needs.
void TakeFromStock(const NewOrderInput& in, const NewOrderInput::Line& line, StockRow* stock) {
  const int quantity = stock->quantity - line.quantity;
  stock->quantity = static_cast<int16_t>(quantity >= 10 ? quantity : quantity + 91);
  stock->ytd += line.quantity;
  ++stock->order_cnt;
  if (line.supply_w != in.w) ++stock->remote_cnt;
}

// Brings the items and stocks of all lines into scratch.items and scratch.rows.
Task<absl::Status> ReadItemsAndStocks(txn::Transaction& tx, Context context, const NewOrderInput& in) {
  Scratch& s = context.scratch;
  const uint32_t copy = context.tables.item_copy[in.w];
  for (uint8_t i = 0; i < in.lines; ++i) {
    s.item_keys[i] = ItemKey{copy, in.line[i].item};
    s.views[i] = ViewOf(s.item_keys[i]);
  }
  FURROW_CO_RETURN_IF_ERROR(co_await context.tables[TableKind::kItem].GetMany(
      tx, std::span(s.views, in.lines), std::span(s.items).first(in.lines)));
  for (uint8_t i = 0; i < in.lines; ++i) {
    if (absl::IsNotFound(s.items[i].status())) co_return RolledBack();
    FURROW_CO_RETURN_IF_ERROR(s.items[i].status());
    s.stock_keys[i] = StockKey{in.line[i].supply_w, in.line[i].item};
    s.views[i] = ViewOf(s.stock_keys[i]);
  }
  co_return co_await context.tables[TableKind::kStock].GetMany(tx, std::span(s.views, in.lines),
                                                               std::span(s.rows).first(in.lines));
}

}  // namespace

Task<absl::Status> NewOrder(txn::Transaction& tx, Context context, const NewOrderInput& in, Output* out) {
  const Tables& t = context.tables;
  Scratch& s = context.scratch;
  const WarehouseKey warehouse_key{in.w};
  const DistrictKey district_key{in.w, in.d};
  const CustomerKey customer_key{in.w, in.d, in.c};
  t[TableKind::kDistrict].PrefetchIndex(tx, ViewOf(district_key));
  t[TableKind::kCustomer].PrefetchIndex(tx, ViewOf(customer_key));

  FURROW_CO_RETURN_IF_ERROR(co_await ReadItemsAndStocks(tx, context, in));
  FURROW_CO_ASSIGN_OR_RETURN(const Row warehouse,
                             co_await t[TableKind::kWarehouse].Get(tx, ViewOf(warehouse_key)));
  FURROW_CO_ASSIGN_OR_RETURN(const Row customer,
                             co_await t[TableKind::kCustomer].Get(tx, ViewOf(customer_key)));
  FURROW_CO_ASSIGN_OR_RETURN(const Row district,
                             co_await t[TableKind::kDistrict].Get(tx, ViewOf(district_key)));
  FURROW_CO_ASSIGN_OR_RETURN(DistrictRow* const d, Open<DistrictRow>(t[TableKind::kDistrict], tx, district));
  const uint32_t o = d->next_o_id++;

  const OrderKey order_key{in.w, in.d, o};
  const OrderRow order{.c = in.c,
                       .entry_d = context.now,
                       .carrier = kNoCarrier,
                       .ol_cnt = in.lines,
                       .all_local = in.all_local};
  FURROW_CO_RETURN_IF_ERROR(
      (co_await t[TableKind::kOrders].Insert(tx, ViewOf(order_key), ViewOf(order))).status());
  const NewOrderKey new_order_key{in.w, in.d, o};
  FURROW_CO_RETURN_IF_ERROR(
      (co_await t[TableKind::kNewOrder].Insert(tx, ViewOf(new_order_key), {})).status());

  int64_t sum = 0;
  out->count = 0;
  for (uint8_t i = 0; i < in.lines; ++i) {
    const NewOrderInput::Line& line = in.line[i];
    FURROW_CO_RETURN_IF_ERROR(s.rows[i].status());
    FURROW_CO_ASSIGN_OR_RETURN(StockRow* const stock, Open<StockRow>(t[TableKind::kStock], tx, *s.rows[i]));
    TakeFromStock(in, line, stock);
    const ItemRow& item = As<ItemRow>(s.items[i]->value);
    const int32_t amount = line.quantity * item.price;
    sum += amount;
    if (IsOriginal(item.data) && IsOriginal(stock->data)) ++out->count;
    const OrderLineKey line_key{in.w, in.d, o, static_cast<uint8_t>(i + 1)};
    const OrderLineRow order_line{.i = line.item,
                                  .supply_w = line.supply_w,
                                  .delivery_d = kNotDelivered,
                                  .amount = amount,
                                  .quantity = line.quantity,
                                  .dist_info = stock->dist[in.d - 1]};
    FURROW_CO_RETURN_IF_ERROR(
        (co_await t[TableKind::kOrderLine].Insert(tx, ViewOf(line_key), ViewOf(order_line))).status());
  }
  const CustomerRow& c = As<CustomerRow>(customer.value);
  const int64_t tax = 10'000 + As<WarehouseRow>(warehouse.value).tax + d->tax;
  out->o_id = o;
  out->c_id = in.c;
  out->total = sum * (10'000 - c.discount) / 10'000 * tax / 10'000;
  co_return absl::OkStatus();
}

Task<absl::Status> Payment(txn::Transaction& tx, Context context, const PaymentInput& in, uint32_t terminal,
                           uint32_t sequence, Output* out) {
  const Tables& t = context.tables;
  const WarehouseKey warehouse_key{in.w};
  const DistrictKey district_key{in.w, in.d};
  t[TableKind::kDistrict].PrefetchIndex(tx, ViewOf(district_key));

  FURROW_CO_ASSIGN_OR_RETURN(const Row customer, co_await FindCustomer(tx, context, in.customer));
  FURROW_CO_ASSIGN_OR_RETURN(const Row warehouse,
                             co_await t[TableKind::kWarehouse].Get(tx, ViewOf(warehouse_key)));
  FURROW_CO_ASSIGN_OR_RETURN(const Row district,
                             co_await t[TableKind::kDistrict].Get(tx, ViewOf(district_key)));
  FURROW_CO_ASSIGN_OR_RETURN(CustomerRow* const c, Open<CustomerRow>(t[TableKind::kCustomer], tx, customer));
  FURROW_CO_ASSIGN_OR_RETURN(WarehouseRow* const w,
                             Open<WarehouseRow>(t[TableKind::kWarehouse], tx, warehouse));
  FURROW_CO_ASSIGN_OR_RETURN(DistrictRow* const d, Open<DistrictRow>(t[TableKind::kDistrict], tx, district));
  w->ytd += in.amount;
  d->ytd += in.amount;
  c->balance -= in.amount;
  c->ytd_payment += in.amount;
  ++c->payment_cnt;
  const uint32_t c_id = As<CustomerKey>(customer.key).c;
  if (c->credit.view() == "BC") PrependToData(in, c_id, c);

  const HistoryKey history_key{in.w, in.d, terminal, sequence};
  HistoryRow history{.c_w = in.customer.w,
                     .c_d = in.customer.d,
                     .c = c_id,
                     .date = context.now,
                     .amount = in.amount,
                     .data = {}};
  std::snprintf(history.data.chars, sizeof(history.data.chars), "%.10s    %.9s", w->name.chars,
                d->name.chars);
  FURROW_CO_RETURN_IF_ERROR(
      (co_await t[TableKind::kHistory].Insert(tx, ViewOf(history_key), ViewOf(history))).status());
  out->c_id = c_id;
  out->total = c->balance;
  co_return absl::OkStatus();
}

Task<absl::Status> OrderStatus(txn::Transaction& tx, Context context, const OrderStatusInput& in,
                               Output* out) {
  const Tables& t = context.tables;
  FURROW_CO_ASSIGN_OR_RETURN(const Row customer, co_await FindCustomer(tx, context, in.customer));
  // The newest order of the customer.
  struct {
    CustomerKey key;
  } const prefix{As<CustomerKey>(customer.key)};
  const ScanSpec newest{.index = kOrdersByCustomer,
                        .range = KeyRange::Prefix(ViewOf(prefix.key)),
                        .direction = index::Direction::kBackward,
                        .limit = 1};
  Row order;
  FURROW_CO_ASSIGN_OR_RETURN(const size_t orders,
                             co_await t[TableKind::kOrders].ScanInto(tx, newest, std::span(&order, 1)));
  if (orders == 0)
    co_return absl::DataLossError("a customer has no order, though the load made one for each");
  const ScanSpec lines{.range = KeyRange::Prefix(order.key)};
  FURROW_CO_ASSIGN_OR_RETURN(const size_t count,
                             co_await t[TableKind::kOrderLine].ScanInto(tx, lines, context.scratch.found));
  if (count != As<OrderRow>(order.value).ol_cnt) {
    co_return absl::DataLossError("an order has another number of lines than it says");
  }
  out->o_id = As<OrderKey>(order.key).o;
  out->c_id = prefix.key.c;
  out->total = As<CustomerRow>(customer.value).balance;
  out->count = static_cast<uint32_t>(count);
  co_return absl::OkStatus();
}

namespace {

// One district's part of a delivery.
Task<absl::Status> DeliverOldest(txn::Transaction& tx, Context context, const DeliveryInput& in, uint8_t d,
                                 Output* out) {
  const Tables& t = context.tables;
  const DistrictKey district{in.w, d};
  Row oldest;
  const ScanSpec first{.range = KeyRange::Prefix(ViewOf(district)), .limit = 1};
  FURROW_CO_ASSIGN_OR_RETURN(const size_t found,
                             co_await t[TableKind::kNewOrder].ScanInto(tx, first, std::span(&oldest, 1)));
  if (found == 0) co_return absl::OkStatus();  // clause 2.7.4.2: skipped
  const OrderKey order_key = As<OrderKey>(oldest.key);
  FURROW_CO_RETURN_IF_ERROR(co_await t[TableKind::kNewOrder].Delete(tx, oldest));

  FURROW_CO_ASSIGN_OR_RETURN(const Row order, co_await t[TableKind::kOrders].Get(tx, ViewOf(order_key)));
  FURROW_CO_ASSIGN_OR_RETURN(OrderRow* const o, Open<OrderRow>(t[TableKind::kOrders], tx, order));
  o->carrier = in.carrier;

  const ScanSpec lines{.range = KeyRange::Prefix(ViewOf(order_key))};
  FURROW_CO_ASSIGN_OR_RETURN(const size_t count,
                             co_await t[TableKind::kOrderLine].ScanInto(tx, lines, context.scratch.found));
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    FURROW_CO_ASSIGN_OR_RETURN(OrderLineRow* const line,
                               Open<OrderLineRow>(t[TableKind::kOrderLine], tx, context.scratch.found[i]));
    line->delivery_d = context.now;
    sum += line->amount;
  }
  const CustomerKey customer_key{in.w, d, o->c};
  FURROW_CO_ASSIGN_OR_RETURN(const Row customer,
                             co_await t[TableKind::kCustomer].Get(tx, ViewOf(customer_key)));
  FURROW_CO_ASSIGN_OR_RETURN(CustomerRow* const c, Open<CustomerRow>(t[TableKind::kCustomer], tx, customer));
  c->balance += sum;
  ++c->delivery_cnt;
  ++out->count;
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> Delivery(txn::Transaction& tx, Context context, const DeliveryInput& in, uint8_t first,
                            uint8_t last, Output* out) {
  out->count = 0;
  for (uint8_t d = first; d <= last; ++d) {
    FURROW_CO_RETURN_IF_ERROR(co_await DeliverOldest(tx, context, in, d, out));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> StockLevel(txn::Transaction& tx, Context context, const StockLevelInput& in, Output* out) {
  const Tables& t = context.tables;
  Scratch& s = context.scratch;
  const DistrictKey district_key{in.w, in.d};
  FURROW_CO_ASSIGN_OR_RETURN(const Row district,
                             co_await t[TableKind::kDistrict].Get(tx, ViewOf(district_key)));
  const uint32_t next = As<DistrictRow>(district.value).next_o_id;
  const uint32_t oldest = next > 20 ? next - 20 : 1;
  const OrderLineKey low{in.w, in.d, oldest, 0};
  const OrderLineKey high{in.w, in.d, next, 0};
  size_t count = 0;
  auto take = [&s, &count](const Row& row) {
    s.ids[count++] = As<OrderLineRow>(row.value).i;
    return count < std::size(s.ids);
  };
  FURROW_CO_RETURN_IF_ERROR(co_await t[TableKind::kOrderLine].Scan(
      tx, ScanSpec{.range = KeyRange::Between(ViewOf(low), ViewOf(high))}, take));
  std::sort(s.ids, s.ids + count);
  count = static_cast<size_t>(std::unique(s.ids, s.ids + count) - s.ids);

  out->count = 0;
  for (size_t done = 0; done < count;) {
    const size_t n = std::min(count - done, Scratch::kRows);
    for (size_t i = 0; i < n; ++i) {
      s.stock_keys[i] = StockKey{in.w, s.ids[done + i]};
      s.views[i] = ViewOf(s.stock_keys[i]);
    }
    FURROW_CO_RETURN_IF_ERROR(
        co_await t[TableKind::kStock].GetMany(tx, std::span(s.views, n), std::span(s.rows).first(n)));
    for (size_t i = 0; i < n; ++i) {
      FURROW_CO_RETURN_IF_ERROR(s.rows[i].status());
      if (As<StockRow>(s.rows[i]->value).quantity < in.threshold) ++out->count;
    }
    done += n;
  }
  co_return absl::OkStatus();
}

}  // namespace furrow::bench::tpcc
