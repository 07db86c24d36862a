#include "bench/tpcc/inputs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace furrow::bench::tpcc {

InputGenerator::InputGenerator(const Scale& scale, uint32_t w, uint8_t d, uint64_t seed,
                               const NurandConstants& constants)
    : scale_(scale), w_(w), d_(d), random_(seed, constants) {
  FURROW_CHECK(w >= 1 && w <= scale.warehouses && d >= 1 && d <= scale.districts);
  constexpr std::pair<TxType, size_t> kMix[] = {{TxType::kNewOrder, 45},
                                                {TxType::kPayment, 43},
                                                {TxType::kOrderStatus, 4},
                                                {TxType::kDelivery, 4},
                                                {TxType::kStockLevel, 4}};
  auto card = deck_.begin();
  for (const auto& [type, count] : kMix) card = std::fill_n(card, count, type);
  FURROW_CHECK(card == deck_.end());
  Shuffle();
}

void InputGenerator::Shuffle() {
  for (size_t i = kCards; i > 1; --i) std::swap(deck_[i - 1], deck_[random_.raw().Below(i)]);
  drawn_ = 0;
}

TxType InputGenerator::NextType() {
  if (drawn_ == kCards) Shuffle();
  return deck_[drawn_++];
}

uint32_t InputGenerator::OtherWarehouse() {
  if (scale_.warehouses == 1) return w_;
  const uint32_t other = random_.Uniform(1, scale_.warehouses - 1);
  return other >= w_ ? other + 1 : other;
}

NewOrderInput InputGenerator::NewOrder() {
  NewOrderInput in;
  in.w = w_;
  in.d = static_cast<uint8_t>(random_.Uniform(1, scale_.districts));
  in.c = random_.CustomerId(scale_.customers);
  in.lines = static_cast<uint8_t>(random_.Uniform(kMinOrderLines, kMaxOrderLines));
  in.rolls_back = random_.Percent(1);
  for (uint8_t i = 0; i < in.lines; ++i) {
    NewOrderInput::Line& line = in.line[i];
    line.item = random_.ItemId(scale_.items);
    line.supply_w = random_.Percent(1) ? OtherWarehouse() : w_;
    line.quantity = static_cast<uint8_t>(random_.Uniform(1, 10));
    if (line.supply_w != w_) in.all_local = false;
  }
  if (in.rolls_back) in.line[in.lines - 1].item = scale_.items + 1;
  return in;
}

void InputGenerator::ChooseCustomer(CustomerChoice* choice) {
  if (random_.Percent(60)) {
    // A smaller data set has only the first names.
    LastName(random_.LastNameForRun() % std::min(1000u, scale_.customers), choice->last.span());
  } else {
    choice->c = random_.CustomerId(scale_.customers);
  }
}

PaymentInput InputGenerator::Payment() {
  PaymentInput in;
  in.w = w_;
  in.d = static_cast<uint8_t>(random_.Uniform(1, scale_.districts));
  in.amount = static_cast<int32_t>(random_.Uniform(100, 500'000));
  in.customer.w = in.w;
  in.customer.d = in.d;
  if (random_.Percent(15)) {
    in.customer.w = OtherWarehouse();
    in.customer.d = static_cast<uint8_t>(random_.Uniform(1, scale_.districts));
  }
  ChooseCustomer(&in.customer);
  return in;
}

OrderStatusInput InputGenerator::OrderStatus() {
  OrderStatusInput in;
  in.customer.w = w_;
  in.customer.d = static_cast<uint8_t>(random_.Uniform(1, scale_.districts));
  ChooseCustomer(&in.customer);
  return in;
}

DeliveryInput InputGenerator::Delivery() {
  return DeliveryInput{.w = w_, .carrier = static_cast<uint8_t>(random_.Uniform(1, 10))};
}

StockLevelInput InputGenerator::StockLevel() {
  return StockLevelInput{.w = w_, .d = d_, .threshold = static_cast<int16_t>(random_.Uniform(10, 20))};
}

}  // namespace furrow::bench::tpcc
