#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/checker/rules.h"

namespace furrow::checker {
namespace {

// Amounts come from outside and may be anything: sums wrap.
int64_t Sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// Amounts by the time from which on they count.
class Ledger {
 public:
  void Add(Nanos time, int64_t amount) { entries_.push_back({time, amount}); }
  void Close() {
    std::sort(entries_.begin(), entries_.end());
    for (size_t i = 1; i < entries_.size(); ++i)
      entries_[i].second = Sum(entries_[i].second, entries_[i - 1].second);
  }
  // Of all entries with a time below `time`.
  int64_t Before(Nanos time) const {
    const auto end = std::partition_point(entries_.begin(), entries_.end(),
                                          [&](const auto& entry) { return entry.first < time; });
    return end == entries_.begin() ? 0 : (end - 1)->second;
  }

 private:
  std::vector<std::pair<Nanos, int64_t>> entries_;
};

// What all transactions add to one counter.
struct Increments {
  Ledger over;   // committed ones, from their ends on
  Ledger begun;  // those that did not fail, from their beginnings on
  bool only_grow = true;
  std::vector<std::pair<uint32_t, int64_t>> by_txn;  // those that did not fail, sorted

  int64_t Of(uint32_t txn) const {
    const auto it =
        std::lower_bound(by_txn.begin(), by_txn.end(), std::pair<uint32_t, int64_t>(txn, INT64_MIN));
    return it != by_txn.end() && it->first == txn ? it->second : 0;
  }
};

class CounterCheck {
 public:
  CounterCheck(const Model& model, Reporter* reporter)
      : model_(model), reporter_(reporter), increments_(model.keys()) {}

  void Run() {
    FindIncrements();
    for (uint32_t key = 0; key < model_.keys(); ++key) {
      if (model_.kind(key) != KeyKind::kCounter || !increments_[key].only_grow) continue;
      CheckBounds(key);
      if (model_.options().real_time) CheckNeverBack(key);
    }
    CheckSnapshots();
  }

 private:
  void FindIncrements();
  void CheckBounds(uint32_t key);
  void CheckNeverBack(uint32_t key);
  void CheckSnapshots();
  void CheckGroup(const std::vector<uint32_t>& keys, std::vector<const std::vector<int64_t>*> snapshots,
                  const std::vector<uint32_t>& txns);

  const Model& model_;
  Reporter* const reporter_;
  std::vector<Increments> increments_;
};

void CounterCheck::FindIncrements() {
  const History& history = model_.history();
  for (uint32_t txn = 0; txn < history.operations.size(); ++txn) {
    const Operation& op = history.operations[txn];
    if (op.outcome == Outcome::kFail || op.function != Function::kTxn) continue;
    for (const MicroOp& micro : history.Ops(op)) {
      if (micro.kind != OpKind::kIncrement) continue;
      Increments& increments = increments_[model_.DenseKey(micro.key)];
      increments.only_grow &= micro.value >= 0;
      increments.begun.Add(op.invoke_ns, micro.value);
      if (op.outcome == Outcome::kOk) increments.over.Add(op.complete_ns, micro.value);
      if (!increments.by_txn.empty() && increments.by_txn.back().first == txn) {
        increments.by_txn.back().second = Sum(increments.by_txn.back().second, micro.value);
      } else {
        increments.by_txn.push_back({txn, micro.value});
      }
    }
  }
  for (Increments& increments : increments_) {
    increments.over.Close();
    increments.begun.Close();
  }
}

void CounterCheck::CheckBounds(uint32_t key) {
  const Increments& increments = increments_[key];
  const bool real_time = model_.options().real_time;
  for (const ExternalRead& read : model_.Reads(key)) {
    const Nanos end = model_.end_ns(read.txn);
    const int64_t low =
        real_time ? increments.over.Before(model_.history().operations[read.txn].invoke_ns) : 0;
    const Nanos horizon = real_time && end != kNever ? end + 1 : kNever;
    const int64_t high = Difference(increments.begun.Before(horizon), increments.Of(read.txn));
    if (low <= read.value && read.value <= high) continue;
    reporter_->Report(AnomalyKind::kCounter, {read.txn},
                      absl::StrCat(DescribeRead(model_, read), ", but increments allow ", low, " to ", high),
                      "outside its bounds", real_time);
  }
}

void CounterCheck::CheckNeverBack(uint32_t key) {
  // In the order of their ends, while the others go by in the order of their beginnings.
  std::vector<const ExternalRead*> ended;
  for (const ExternalRead& read : model_.Reads(key)) ended.push_back(&read);
  std::sort(ended.begin(), ended.end(), [&](const ExternalRead* a, const ExternalRead* b) {
    return model_.end_ns(a->txn) < model_.end_ns(b->txn);
  });
  const ExternalRead* highest = nullptr;
  size_t next = 0;
  for (const ExternalRead& read : model_.Reads(key)) {
    const Nanos begin = model_.history().operations[read.txn].invoke_ns;
    for (; next < ended.size() && model_.end_ns(ended[next]->txn) < begin; ++next) {
      if (highest == nullptr || ended[next]->value > highest->value) highest = ended[next];
    }
    if (highest == nullptr || highest->value <= read.value) continue;
    reporter_->Report(
        AnomalyKind::kCounter, {read.txn, highest->txn},
        absl::StrCat(DescribeRead(model_, read), " after ", DescribeRead(model_, *highest), " was over"),
        "going back", true);
  }
}

// Snapshots of the same counters, in the order of their sums, must grow in every counter.
void CounterCheck::CheckGroup(const std::vector<uint32_t>& keys,
                              std::vector<const std::vector<int64_t>*> snapshots,
                              const std::vector<uint32_t>& txns) {
  std::vector<std::pair<int64_t, uint32_t>> by_sum;
  for (uint32_t i = 0; i < snapshots.size(); ++i) {
    int64_t sum = 0;
    for (int64_t value : *snapshots[i]) sum = Sum(sum, value);
    by_sum.push_back({sum, i});
  }
  std::sort(by_sum.begin(), by_sum.end());
  for (size_t i = 1; i < by_sum.size(); ++i) {
    const auto& low = *snapshots[by_sum[i - 1].second];
    const auto& high = *snapshots[by_sum[i].second];
    for (size_t k = 0; k < keys.size(); ++k) {
      if (low[k] <= high[k]) continue;
      const uint32_t a = txns[by_sum[i - 1].second];
      const uint32_t b = txns[by_sum[i].second];
      reporter_->Report(
          AnomalyKind::kLongFork, {a, b},
          absl::StrCat(TxnName(model_, a), " and ", TxnName(model_, b),
                       " each saw some counter newer and another one older than the other did"));
      break;
    }
  }
}

void CounterCheck::CheckSnapshots() {
  std::vector<std::pair<uint32_t, std::pair<uint32_t, int64_t>>> all;  // transaction, key, value
  for (uint32_t key = 0; key < model_.keys(); ++key) {
    if (model_.kind(key) != KeyKind::kCounter || !increments_[key].only_grow) continue;
    for (const ExternalRead& read : model_.Reads(key)) all.push_back({read.txn, {key, read.value}});
  }
  std::sort(all.begin(), all.end());
  struct Group {
    std::vector<std::vector<int64_t>> values;
    std::vector<uint32_t> txns;
  };
  std::map<std::vector<uint32_t>, Group> groups;
  for (size_t i = 0; i < all.size();) {
    std::vector<uint32_t> keys;
    std::vector<int64_t> values;
    const uint32_t txn = all[i].first;
    for (; i < all.size() && all[i].first == txn; ++i) {
      keys.push_back(all[i].second.first);
      values.push_back(all[i].second.second);
    }
    if (keys.size() < 2) continue;
    Group& group = groups[std::move(keys)];
    group.values.push_back(std::move(values));
    group.txns.push_back(txn);
  }
  for (const auto& [keys, group] : groups) {
    std::vector<const std::vector<int64_t>*> snapshots;
    for (const auto& values : group.values) snapshots.push_back(&values);
    CheckGroup(keys, std::move(snapshots), group.txns);
  }
}

}  // namespace

void CheckCounters(const Model& model, Reporter* reporter) { CounterCheck(model, reporter).Run(); }

void CheckBank(const Model& model, Reporter* reporter) {
  const History& history = model.history();
  // Accounts are those that any read shows.
  std::vector<bool> is_account(model.keys());
  size_t accounts = 0;
  auto for_each_read = [&](auto&& visit) {
    for (uint32_t txn = 0; txn < history.operations.size(); ++txn) {
      const Operation& op = history.operations[txn];
      if (op.function == Function::kReadAll && model.takes_part(txn)) visit(txn, history.Ops(op));
    }
  };
  for_each_read([&](uint32_t, std::span<const MicroOp> ops) {
    for (const MicroOp& op : ops) {
      const uint32_t key = model.DenseKey(op.key);
      if (op.result != ReadResult::kValue || is_account[key]) continue;
      is_account[key] = true;
      ++accounts;
    }
  });
  auto total = model.options().bank_total;
  for_each_read([&](uint32_t txn, std::span<const MicroOp> ops) {
    int64_t sum = 0;
    size_t found = 0;
    for (const MicroOp& op : ops) {
      if (op.result != ReadResult::kValue) continue;
      sum = Sum(sum, op.value);
      ++found;
    }
    if (found < accounts) {
      // An attempt that aborted, or has no outcome, may have ended between two accounts.
      if (history.operations[txn].outcome != Outcome::kOk) return;
      return reporter->Report(
          AnomalyKind::kBankTotal, {txn},
          absl::StrCat(TxnName(model, txn), " found ", found, " of ", accounts, " accounts"),
          "missing account");
    }
    if (!total.has_value()) total = sum;
    if (sum == *total) return;
    reporter->Report(AnomalyKind::kBankTotal, {txn},
                     absl::StrCat("the accounts that ", TxnName(model, txn), " read add up to ", sum,
                                  " instead of ", *total));
  });
}

}  // namespace furrow::checker
