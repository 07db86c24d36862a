#include "bench/harness/driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace furrow::bench {
namespace {

uint64_t Aborts(const txn::WorkerStats& stats) {
  uint64_t sum = 0;
  for (size_t i = 0; i < std::size(stats.aborted); ++i) {
    if (static_cast<txn::AbortReason>(i) != txn::AbortReason::kUser) sum += stats.aborted[i];
  }
  return sum;
}

}  // namespace

Driver::Driver(txn::Worker& worker, std::vector<std::string> types, Options options)
    : worker_(worker), loop_(worker.loop()), type_names_(std::move(types)), options_(options) {
  ResetMeasurement();
  interval_committed_.assign(type_names_.size(), 0);
  interval_aborts_base_ = Aborts(worker.stats());
}

void Driver::Start(std::vector<std::unique_ptr<Terminal>> terminals, std::function<void()> stopped) {
  FURROW_CHECK(running_ == 0);
  terminals_ = std::move(terminals);
  stopped_ = std::move(stopped);
  if (options_.rate > 0) arrivals_ = std::make_unique<Arrivals>(options_.rate, loop_.Now(), options_.seed);
  running_ = terminals_.size();
  for (const auto& terminal : terminals_) paced_ += terminal->serves_queue() ? 0 : 1;
  if (running_ == 0) {
    loop_.Post([this] { stopped_(); });
    return;
  }
  for (const auto& terminal : terminals_) loop_.Spawn(RunTerminal(terminal.get()));
}

void Driver::Stop() { stopping_ = true; }

void Driver::Fail(const absl::Status& status) {
  if (failure_.empty()) failure_ = status.ToString();
  stopping_ = true;
}

Task<void> Driver::RunTerminal(Terminal* terminal) {
  const bool serves_queue = terminal->serves_queue();
  // A terminal that waits for its arrival looks up at least this often whether the run has ended.
  constexpr Nanos kLookUp = 50 * kMillisecond;
  while (serves_queue || !stopping_) {
    Nanos wanted = loop_.Now();
    if (arrivals_ != nullptr && !serves_queue) {
      wanted = arrivals_->Next();
      for (Nanos now = loop_.Now(); now < wanted && !stopping_; now = loop_.Now()) {
        co_await loop_.SleepUntil(std::min(wanted, now + kLookUp));
      }
      if (stopping_) break;
    }
    const TxReport report = co_await terminal->Next(worker_, wanted);
    if (serves_queue && absl::IsCancelled(report.status)) break;
    if (report.status.ok()) {
      Record(report);
    } else {
      Fail(report.status);
      if (serves_queue) break;
    }
    co_await loop_.Yield();  // the pollers and the other terminals, also when nothing had to be waited for
  }
  // The last of those that fill the queues tells those that serve them.
  if (!serves_queue && --paced_ == 0) {
    for (const auto& other : terminals_) other->Stop();
  }
  if (--running_ == 0) loop_.Post([this] { stopped_(); });
}

void Driver::Record(const TxReport& report) {
  const Nanos latency = loop_.Now() - report.wanted;
  TypeResult& type = types_[report.type];
  type.latency.Record(latency);
  interval_latency_.Record(latency);
  if (report.rolled_back) {
    ++type.rolled_back;
  } else {
    ++type.committed;
    ++interval_committed_[report.type];
  }
}

void Driver::ResetMeasurement() {
  types_.clear();
  for (const std::string& name : type_names_) types_.push_back({name, 0, 0, {}});
  base_ = worker_.stats();
}

Measurement Driver::Measured() const {
  Measurement m;
  m.types = types_;
  const txn::WorkerStats& now = worker_.stats();
  for (size_t i = 0; i < std::size(now.aborted); ++i) {
    const txn::AbortReason reason = static_cast<txn::AbortReason>(i);
    const uint64_t count = now.aborted[i] - base_.aborted[i];
    if (reason != txn::AbortReason::kUser && count != 0) {
      std::string name(txn::ToString(reason));
      for (char& c : name) {
        if (c == ' ' || c == '\n') c = '_';
      }
      m.aborted[name] += count;
    }
  }
  m.unknown = now.unknown - base_.unknown;
  m.local_reads = now.local_reads - base_.local_reads;
  m.remote_reads = now.remote_reads - base_.remote_reads;
  m.distributed = now.distributed - base_.distributed;
  m.system_committed = now.committed - base_.committed;
  m.ended_early = failure_;
  return m;
}

Measurement Driver::TakeInterval() {
  Measurement taken;
  for (size_t i = 0; i < type_names_.size(); ++i) {
    taken.types.push_back({type_names_[i], std::exchange(interval_committed_[i], 0), 0, {}});
  }
  taken.types.push_back({"all", 0, 0, std::exchange(interval_latency_, {})});
  const uint64_t aborts = Aborts(worker_.stats());
  taken.aborted["all"] = aborts - std::exchange(interval_aborts_base_, aborts);
  return taken;
}

}  // namespace furrow::bench
