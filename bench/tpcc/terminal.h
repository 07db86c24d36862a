// TPC-C's terminals: each stands in one warehouse and draws its transactions from a deck; deliveries go into
// their warehouse's queue, from which another coroutine executes them (clause 2.7.2).
#ifndef FURROW_BENCH_TPCC_TERMINAL_H_
#define FURROW_BENCH_TPCC_TERMINAL_H_

#include <array>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/event_loop.h"
#include "bench/harness/workload.h"
#include "bench/tpcc/inputs.h"
#include "bench/tpcc/tables.h"
#include "bench/tpcc/transactions.h"

namespace furrow::bench::tpcc {

// Deliveries of one warehouse that wait for execution; owner thread only. When it is full, the terminal that
// wanted another one executes it itself: deliveries can fall behind by kMax and no further.
class DeliveryQueue {
 public:
  static constexpr size_t kMax = 16;
  struct Entry {
    DeliveryInput input;
    Nanos wanted = 0;
  };
  explicit DeliveryQueue(EventLoop& loop) : loop_(loop) {}

  bool TryPush(const Entry& entry);
  // No more will come.
  void Close();

  struct Awaiter {
    DeliveryQueue& queue;
    bool await_ready() const { return queue.count_ > 0 || queue.closed_; }
    void await_suspend(std::coroutine_handle<> h) const { queue.waiter_ = h; }
    std::optional<Entry> await_resume() const { return queue.Take(); }
  };
  // Nothing: closed and empty. One waiter at a time.
  Awaiter Pop() { return Awaiter{*this}; }

 private:
  std::optional<Entry> Take();
  void Wake();

  EventLoop& loop_;
  std::array<Entry, kMax> ring_;
  size_t head_ = 0;
  size_t count_ = 0;
  bool closed_ = false;
  std::coroutine_handle<> waiter_;
};

// Runs the bodies of transactions.h and keeps what they need while they run and are retried.
class Runner {
 public:
  explicit Runner(const Tables& tables) : tables_(tables), scratch_(std::make_unique<Scratch>()) {}
  // The report's `wanted` is the caller's to fill.
  Task<TxReport> RunNewOrder(txn::Worker& worker, NewOrderInput input);
  Task<TxReport> RunPayment(txn::Worker& worker, PaymentInput input, uint32_t terminal, uint32_t sequence);
  Task<TxReport> RunOrderStatus(txn::Worker& worker, OrderStatusInput input);
  Task<TxReport> RunDelivery(txn::Worker& worker, DeliveryInput input);
  Task<TxReport> RunStockLevel(txn::Worker& worker, StockLevelInput input);
  const Output& output() const { return output_; }

 private:
  Context MakeContext() const;
  const Tables& tables_;
  std::unique_ptr<Scratch> scratch_;
  Output output_;
};

class TpccTerminal final : public Terminal {
 public:
  // `number` is unique among all terminals of all processes and runs against the same data: it names HISTORY
  // rows.
  TpccTerminal(const Tables& tables, InputGenerator inputs, uint32_t number, DeliveryQueue& deliveries)
      : runner_(tables), inputs_(std::move(inputs)), number_(number), deliveries_(deliveries) {}
  Task<TxReport> Next(txn::Worker& worker, Nanos wanted) override;

 private:
  Runner runner_;
  InputGenerator inputs_;
  const uint32_t number_;
  uint32_t payments_ = 0;
  DeliveryQueue& deliveries_;
};

// Executes the deliveries of one warehouse; owns their queue.
class DeliveryTerminal final : public Terminal {
 public:
  DeliveryTerminal(const Tables& tables, EventLoop& loop) : runner_(tables), queue_(loop) {}
  DeliveryQueue& queue() { return queue_; }
  Task<TxReport> Next(txn::Worker& worker, Nanos wanted) override;
  bool serves_queue() const override { return true; }
  void Stop() override { queue_.Close(); }

 private:
  Runner runner_;
  DeliveryQueue queue_;
};

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_TERMINAL_H_
