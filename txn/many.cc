// ReadMany: objects that this CPU copies are brought into the cache together before the first is looked at;
// others are read by coroutines side by side.
#include "base/check.h"
#include "txn/coordinator.h"
#include "txn/transaction.h"
#include "txn/worker.h"

namespace furrow::txn {
namespace {

// Counts readers down and resumes the one who waits for all of them.
struct Join {
  uint32_t pending = 0;
  std::coroutine_handle<> waiter;
  bool await_ready() const noexcept { return pending == 0; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiter = h; }
  void await_resume() const noexcept {}
};

Transaction::ReadAwaiter Reader(Transaction& tx, const ReadSpec& spec) {
  return spec.hint ? tx.ReadHint(spec.address, spec.payload_bytes)
                   : tx.Read(spec.address, spec.payload_bytes);
}

Task<void> ReadInto(Transaction& tx, ReadSpec spec, ReadResult* result, Join* join) {
  *result = co_await Reader(tx, spec);
  if (--join->pending == 0 && join->waiter) tx.worker().loop().Schedule(join->waiter);
}

}  // namespace

Task<absl::Status> Transaction::ReadMany(std::span<const ReadSpec> specs, std::span<ReadResult> results) {
  FURROW_CHECK(specs.size() == results.size());
  for (const ReadSpec& spec : specs) Prefetch(spec.address, spec.payload_bytes);
  Join join;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (TryReadNow(specs[i].address, specs[i].payload_bytes, specs[i].hint, &results[i])) continue;
    // Where READs end inside Post() nothing is gained by coroutines side by side, and this one need not give
    // its turn away, in which others would change what it has read.
    const cluster::RegionMapping* mapping = worker_.node().directory.Find(specs[i].address.region());
    if (mapping != nullptr && worker_.coordinator().ReadsAtOnce(*mapping)) {
      results[i] = co_await Reader(*this, specs[i]);
      continue;
    }
    // The same object twice among those that are under way: the second would enter the read set again.
    bool twice = false;
    for (size_t j = 0; j < i && !twice; ++j) twice = specs[j].address == specs[i].address;
    if (twice) {
      if (join.pending > 0) co_await join;
      join = Join{};
      results[i] = co_await Reader(*this, specs[i]);
      continue;
    }
    ++join.pending;
    worker_.loop().Spawn(ReadInto(*this, specs[i], &results[i], &join));
  }
  if (join.pending > 0) co_await join;
  if (doomed()) co_return ToStatus(conflict_);
  co_return absl::OkStatus();
}

}  // namespace furrow::txn
