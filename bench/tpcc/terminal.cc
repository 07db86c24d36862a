#include "bench/tpcc/terminal.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace furrow::bench::tpcc {
namespace {

// Districts that one database transaction of a delivery covers.
constexpr uint8_t kDistrictsPerTransaction = 10;

TxReport Report(TxType type, const txn::CommitResult& result) {
  TxReport report;
  report.type = static_cast<size_t>(type);
  if (!result.committed()) {
    report.rolled_back = type == TxType::kNewOrder && absl::IsCancelled(result.status);
    if (!report.rolled_back) report.status = result.status;
  }
  return report;
}

txn::RunOptions ReadOnly() {
  txn::RunOptions options;
  options.transaction.read_only = true;
  return options;
}

}  // namespace

bool DeliveryQueue::TryPush(const Entry& entry) {
  if (count_ == kMax || closed_) return false;
  ring_[(head_ + count_++) % kMax] = entry;
  Wake();
  return true;
}

void DeliveryQueue::Close() {
  closed_ = true;
  Wake();
}

void DeliveryQueue::Wake() {
  if (waiter_) loop_.Schedule(std::exchange(waiter_, {}));
}

std::optional<DeliveryQueue::Entry> DeliveryQueue::Take() {
  if (count_ == 0) return std::nullopt;
  const Entry entry = ring_[head_];
  head_ = (head_ + 1) % kMax;
  --count_;
  return entry;
}

Context Runner::MakeContext() const { return Context{tables_, *scratch_, WallClockNow()}; }

// The bodies capture one reference, so that std::function holds them without an allocation.

Task<TxReport> Runner::RunNewOrder(txn::Worker& worker, NewOrderInput input) {
  const Context context = MakeContext();
  struct {
    const Context* context;
    const NewOrderInput* input;
    Output* output;
  } const bound{&context, &input, &output_};
  co_return Report(TxType::kNewOrder, co_await worker.Run([&bound](txn::Transaction& tx) {
    return NewOrder(tx, *bound.context, *bound.input, bound.output);
  }));
}

Task<TxReport> Runner::RunPayment(txn::Worker& worker, PaymentInput input, uint32_t terminal,
                                  uint32_t sequence) {
  const Context context = MakeContext();
  struct {
    const Context* context;
    const PaymentInput* input;
    uint32_t terminal;
    uint32_t sequence;
    Output* output;
  } const bound{&context, &input, terminal, sequence, &output_};
  co_return Report(TxType::kPayment, co_await worker.Run([&bound](txn::Transaction& tx) {
    return Payment(tx, *bound.context, *bound.input, bound.terminal, bound.sequence, bound.output);
  }));
}

Task<TxReport> Runner::RunOrderStatus(txn::Worker& worker, OrderStatusInput input) {
  const Context context = MakeContext();
  struct {
    const Context* context;
    const OrderStatusInput* input;
    Output* output;
  } const bound{&context, &input, &output_};
  co_return Report(TxType::kOrderStatus, co_await worker.Run(
                                             [&bound](txn::Transaction& tx) {
                                               return OrderStatus(tx, *bound.context, *bound.input,
                                                                  bound.output);
                                             },
                                             ReadOnly()));
}

Task<TxReport> Runner::RunDelivery(txn::Worker& worker, DeliveryInput input) {
  const Context context = MakeContext();
  const uint8_t districts = static_cast<uint8_t>(tables_.scale.districts);
  struct {
    const Context* context;
    const DeliveryInput* input;
    Output* output;
    uint8_t first;
    uint8_t last;
  } bound{&context, &input, &output_, 1, 0};
  TxReport report;
  while (bound.last < districts) {
    bound.first = static_cast<uint8_t>(bound.last + 1);
    bound.last = static_cast<uint8_t>(std::min<int>(bound.last + kDistrictsPerTransaction, districts));
    report = Report(TxType::kDelivery, co_await worker.Run([&bound](txn::Transaction& tx) {
      return Delivery(tx, *bound.context, *bound.input, bound.first, bound.last, bound.output);
    }));
    if (!report.status.ok()) break;
  }
  co_return report;
}

Task<TxReport> Runner::RunStockLevel(txn::Worker& worker, StockLevelInput input) {
  const Context context = MakeContext();
  struct {
    const Context* context;
    const StockLevelInput* input;
    Output* output;
  } const bound{&context, &input, &output_};
  co_return Report(TxType::kStockLevel, co_await worker.Run(
                                            [&bound](txn::Transaction& tx) {
                                              return StockLevel(tx, *bound.context, *bound.input,
                                                                bound.output);
                                            },
                                            ReadOnly()));
}

Task<TxReport> TpccTerminal::Next(txn::Worker& worker, Nanos wanted) {
  TxReport report;
  TxType type = inputs_.NextType();
  // A delivery is done for the terminal once it is queued.
  while (type == TxType::kDelivery && deliveries_.TryPush({inputs_.Delivery(), wanted}))
    type = inputs_.NextType();
  switch (type) {
    case TxType::kNewOrder:
      report = co_await runner_.RunNewOrder(worker, inputs_.NewOrder());
      break;
    case TxType::kPayment:
      report = co_await runner_.RunPayment(worker, inputs_.Payment(), number_, payments_++);
      break;
    case TxType::kOrderStatus:
      report = co_await runner_.RunOrderStatus(worker, inputs_.OrderStatus());
      break;
    case TxType::kDelivery:
      report = co_await runner_.RunDelivery(worker, inputs_.Delivery());
      break;
    case TxType::kStockLevel:
      report = co_await runner_.RunStockLevel(worker, inputs_.StockLevel());
      break;
    case TxType::kCount:
      FURROW_CHECK(false);
  }
  report.wanted = wanted;
  co_return report;
}

Task<TxReport> DeliveryTerminal::Next(txn::Worker& worker, Nanos) {
  const std::optional<DeliveryQueue::Entry> entry = co_await queue_.Pop();
  TxReport report;
  if (!entry.has_value()) {
    report.status = absl::CancelledError("");
    co_return report;
  }
  report = co_await runner_.RunDelivery(worker, entry->input);
  report.wanted = entry->wanted;
  co_return report;
}

}  // namespace furrow::bench::tpcc
