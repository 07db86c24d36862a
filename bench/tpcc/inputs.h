// What terminals ask for (TPC-C 5.11, clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 and 5.2.4): the choice of the
// next transaction and the input of each, in fixed memory.
#ifndef FURROW_BENCH_TPCC_INPUTS_H_
#define FURROW_BENCH_TPCC_INPUTS_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "bench/tpcc/random.h"
#include "bench/tpcc/schema.h"

namespace furrow::bench::tpcc {

enum class TxType : uint8_t { kNewOrder, kPayment, kOrderStatus, kDelivery, kStockLevel, kCount };
inline constexpr size_t kTxTypes = static_cast<size_t>(TxType::kCount);
inline constexpr std::string_view kTxNames[kTxTypes] = {"new_order", "payment", "order_status", "delivery",
                                                        "stock_level"};

struct NewOrderInput {
  uint32_t w = 0;
  uint8_t d = 0;
  uint32_t c = 0;
  uint8_t lines = 0;
  bool rolls_back = false;  // the last item does not exist
  bool all_local = true;
  struct Line {
    uint32_t item;
    uint32_t supply_w;
    uint8_t quantity;
  } line[kMaxOrderLines];
};

// Whom a payment or an order status is about.
struct CustomerChoice {
  uint32_t w = 0;
  uint8_t d = 0;
  uint32_t c = 0;  // 0: by last name
  Text<16> last = {};
};

struct PaymentInput {
  uint32_t w = 0;
  uint8_t d = 0;
  int32_t amount = 0;
  CustomerChoice customer;
};

struct OrderStatusInput {
  CustomerChoice customer;
};

struct DeliveryInput {
  uint32_t w = 0;
  uint8_t carrier = 0;
};

struct StockLevelInput {
  uint32_t w = 0;
  uint8_t d = 0;
  int16_t threshold = 0;
};

// One per terminal. The mix is a deck of 100 cards, shuffled, drawn to the end and shuffled again
// (clause 5.2.4.2): 45 new orders, 43 payments, 4 of each other type, the least shares that clause 5.2.3
// allows for all but new orders.
class InputGenerator {
 public:
  // The terminal stands in warehouse `w`; its stock levels are of district `d`.
  InputGenerator(const Scale& scale, uint32_t w, uint8_t d, uint64_t seed, const NurandConstants& constants);

  TxType NextType();
  NewOrderInput NewOrder();
  PaymentInput Payment();
  OrderStatusInput OrderStatus();
  DeliveryInput Delivery();
  StockLevelInput StockLevel();

  uint32_t w() const { return w_; }
  TpccRandom& random() { return random_; }

 private:
  void Shuffle();
  void ChooseCustomer(CustomerChoice* choice);
  uint32_t OtherWarehouse();

  static constexpr size_t kCards = 100;
  const Scale scale_;
  const uint32_t w_;
  const uint8_t d_;
  TpccRandom random_;
  std::array<TxType, kCards> deck_;
  size_t drawn_ = 0;
};

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_INPUTS_H_
