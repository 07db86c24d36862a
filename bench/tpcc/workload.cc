#include "bench/tpcc/workload.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "bench/tpcc/check.h"
#include "bench/tpcc/loader.h"
#include "bench/tpcc/terminal.h"

namespace furrow::bench::tpcc {
namespace {

// Loads of one worker that run at the same time.
constexpr size_t kLoadsInFlight = 3;

// What several loads of one worker share.
struct Loads {
  std::vector<std::pair<bool, uint32_t>> parts;  // {a copy of ITEM, its number} or {a warehouse, its number}
  size_t next = 0;
  size_t running = 0;
  absl::Status status;
  std::coroutine_handle<> waiter;
};

struct AllEnded {
  Loads& loads;
  bool await_ready() const { return loads.running == 0; }
  void await_suspend(std::coroutine_handle<> h) const { loads.waiter = h; }
  void await_resume() const {}
};

Task<void> LoadParts(const Tables& tables, txn::Worker& worker, uint64_t seed, NurandConstants constants,
                     Progress* progress, Loads& loads) {
  while (loads.next < loads.parts.size() && loads.status.ok()) {
    const auto [item, number] = loads.parts[loads.next++];
    loads.status.Update(item ? co_await LoadItems(tables, worker, number, seed, constants, progress)
                             : co_await LoadWarehouse(tables, worker, number, seed, constants, progress));
  }
  if (--loads.running == 0 && loads.waiter) worker.loop().Schedule(loads.waiter);
}

}  // namespace

std::vector<std::string> TpccWorkload::types() const { return {std::begin(kTxNames), std::end(kTxNames)}; }

Task<absl::Status> TpccWorkload::Create(index::Catalog& catalog, txn::Worker& worker) {
  if (data_ == Data::kReplace) FURROW_CO_RETURN_IF_ERROR(co_await DropTables(catalog, worker, scale_));
  co_return co_await CreateTables(catalog, worker, scale_);
}

Task<absl::Status> TpccWorkload::Open(index::Catalog& catalog, txn::Worker& worker) {
  FURROW_CO_ASSIGN_OR_RETURN(tables_, co_await OpenTables(catalog, worker, scale_));
  co_return data_ == Data::kThere ? co_await CheckLoaded(*tables_, worker) : absl::OkStatus();
}

std::vector<uint32_t> TpccWorkload::Share(txn::Worker& worker, Place place) const {
  std::vector<uint32_t> share;
  const NodeId self = worker.node().options.id;
  uint32_t position = 0;
  for (uint32_t w = 1; w <= tables_->scale.warehouses; ++w) {
    if (co_located_ && tables_->home[w] != self) continue;
    const uint32_t slots = co_located_ ? place.workers : place.processes * place.workers;
    const uint32_t mine = co_located_ ? place.worker : place.process * place.workers + place.worker;
    if (position++ % slots == mine) share.push_back(w);
  }
  return share;
}

Task<absl::Status> TpccWorkload::Load(txn::Worker& worker, Place place, Progress* progress) {
  Loads loads;
  const uint32_t slots = place.processes * place.workers;
  for (uint32_t copy = 0; copy < tables_->scale.item_copies; ++copy) {
    if (copy % slots == place.process * place.workers + place.worker) loads.parts.push_back({true, copy});
  }
  for (const uint32_t w : Share(worker, place)) loads.parts.push_back({false, w});
  uint64_t rows = 0;
  for (const auto& [item, number] : loads.parts)
    rows += item ? tables_->scale.items : RowsPerWarehouse(tables_->scale);
  progress->total.fetch_add(rows, std::memory_order_relaxed);
  loads.running = std::min(kLoadsInFlight, loads.parts.size());
  const size_t start = loads.running;
  for (size_t i = 0; i < start; ++i) {
    worker.loop().Spawn(LoadParts(*tables_, worker, seed_, constants_, progress, loads));
  }
  co_await AllEnded{loads};
  co_return loads.status;
}

std::vector<std::unique_ptr<Terminal>> TpccWorkload::MakeTerminals(txn::Worker& worker, Place place,
                                                                   size_t count, uint64_t seed) {
  const std::vector<uint32_t> warehouses = Share(worker, place);
  std::vector<std::unique_ptr<Terminal>> terminals;
  if (warehouses.empty()) return terminals;
  if (count == 0) count = TerminalsOf(warehouses.size(), co_located_);
  std::vector<DeliveryQueue*> deliveries;
  for (size_t i = 0; i < std::min(warehouses.size(), count); ++i) {
    auto executor = std::make_unique<DeliveryTerminal>(*tables_, worker.loop());
    deliveries.push_back(&executor->queue());
    terminals.push_back(std::move(executor));
  }
  Random random(seed);
  Random numbers(EntropySeed());
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i % warehouses.size();
    const uint8_t d = static_cast<uint8_t>(i / warehouses.size() % tables_->scale.districts + 1);
    // Any number that no other terminal has had on this data, of this run or of one before: 2^31 of them; 0
    // is the load.
    const uint32_t number = static_cast<uint32_t>(numbers.Below(uint64_t{1} << 31)) + 1;
    InputGenerator inputs(tables_->scale, warehouses[at], d, random.Next(), constants_);
    terminals.push_back(std::make_unique<TpccTerminal>(*tables_, std::move(inputs), number,
                                                       *deliveries[at % deliveries.size()]));
  }
  return terminals;
}

Task<absl::Status> TpccWorkload::Check(Host& host, txn::Worker& worker, bool after_load,
                                       std::vector<CheckResult>* results) {
  co_return co_await CheckCluster(*tables_, host, worker, after_load, results);
}

}  // namespace furrow::bench::tpcc
