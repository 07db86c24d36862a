// The five transactions of TPC-C as bodies for Worker::Run(): each reads its input, does what clause 2.4
// to 2.8 of the specification demand, and leaves what a terminal would show in its output. All memory is in
// the arguments or on the coroutine's frame; what is passed in must outlive the task.
#ifndef FURROW_BENCH_TPCC_TRANSACTIONS_H_
#define FURROW_BENCH_TPCC_TRANSACTIONS_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/task.h"
#include "bench/tpcc/inputs.h"
#include "bench/tpcc/schema.h"
#include "bench/tpcc/tables.h"
#include "txn/transaction.h"

namespace furrow::bench::tpcc {

// What a terminal shows; the parts that the types have in common are enough to make the work real.
struct Output {
  uint32_t o_id = 0;
  uint32_t c_id = 0;
  int64_t total = 0;  // new order: amount with tax and discount; payment, order status: the balance
  uint32_t count =
      0;  // new order: lines that are "brand"; delivery: orders delivered; stock level: low stocks
};

// Room for lookups of many keys, one per terminal.
struct Scratch {
  static constexpr size_t kRows = 100;
  StockKey stock_keys[kRows];
  ItemKey item_keys[kMaxOrderLines];
  std::string_view views[kRows];
  std::array<index::RowResult, kRows> rows = MakeRows(std::make_index_sequence<kRows>());
  std::array<index::RowResult, kMaxOrderLines> items = MakeRows(std::make_index_sequence<kMaxOrderLines>());
  index::Row found[kRows];
  uint32_t ids[20 * kMaxOrderLines];

 private:
  template <size_t... I>
  static std::array<index::RowResult, sizeof...(I)> MakeRows(std::index_sequence<I...>) {
    return {((void)I, index::RowResult(index::Row{}))...};
  }
};

struct Context {
  const Tables& tables;
  Scratch& scratch;
  Nanos now;  // the date that the rows get
};

// What the body returns for the 1 % of new orders whose last item does not exist: not a failure.
inline absl::Status RolledBack() { return absl::CancelledError("item number is not valid"); }

Task<absl::Status> NewOrder(txn::Transaction& tx, Context context, const NewOrderInput& in, Output* out);
// `terminal` and `sequence` name the HISTORY row.
Task<absl::Status> Payment(txn::Transaction& tx, Context context, const PaymentInput& in, uint32_t terminal,
                           uint32_t sequence, Output* out);
Task<absl::Status> OrderStatus(txn::Transaction& tx, Context context, const OrderStatusInput& in,
                               Output* out);
// Delivers the oldest undelivered order of the districts in [first, last]: one business transaction delivers
// all ten, in one or more database transactions (clause 2.7.4).
Task<absl::Status> Delivery(txn::Transaction& tx, Context context, const DeliveryInput& in, uint8_t first,
                            uint8_t last, Output* out);
Task<absl::Status> StockLevel(txn::Transaction& tx, Context context, const StockLevelInput& in, Output* out);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_TRANSACTIONS_H_
