#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/checker/rules.h"

namespace furrow::checker {
namespace {

class ListCheck {
 public:
  ListCheck(const Model& model, Graph* graph, Reporter* reporter)
      : model_(model), graph_(graph), reporter_(reporter), position_(model.write_count(), kNowhere) {}

  void Run(uint32_t key) {
    key_ = key;
    FindOrder();
    PlaceElements();
    CheckAppendOrder();
    KeepPrefixes();
    CheckReads();
    LinkAppends();
    LinkReads();
    LinkUnseen();
  }

 private:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  std::string Name() const { return model_.history().KeyName(model_.key(key_)); }
  uint32_t length() const { return static_cast<uint32_t>(order_.size()); }

  void FindOrder();
  void PlaceElements();
  uint32_t CheckElement(const ExternalRead& read, uint32_t i);
  void ReportOwn(const ExternalRead& read, int64_t value);
  void CheckAppendOrder();
  void KeepPrefixes();
  void CheckReads();
  void LinkAppends();
  void LinkReads();
  void LinkUnseen();

  const Model& model_;
  Graph* const graph_;
  Reporter* const reporter_;
  std::vector<uint32_t> position_;  // of each write in its list

  uint32_t key_ = 0;
  const ExternalRead* longest_ = nullptr;
  std::span<const int64_t> order_;         // the elements of the longest read
  std::vector<uint32_t> made_by_;          // for each of them the committed write, or kNoWrite
  std::vector<const ExternalRead*> good_;  // the reads that are prefixes of it
};

void ListCheck::FindOrder() {
  longest_ = nullptr;
  for (const ExternalRead& read : model_.Reads(key_)) {
    if (longest_ == nullptr || read.list_size > longest_->list_size) longest_ = &read;
  }
  order_ = longest_ == nullptr ? std::span<const int64_t>() : model_.List(*longest_);
}

// Reports an element that must not be there. Returns its write if that is committed.
uint32_t ListCheck::CheckElement(const ExternalRead& read, uint32_t i) {
  const int64_t value = model_.List(read)[i];
  const uint32_t id = model_.FindWrite(key_, value);
  if (id == kNoWrite) {
    reporter_->Report(AnomalyKind::kPhantom, {read.txn},
                      absl::StrCat(DescribeRead(model_, read), ", but nobody ever appended ", value));
    return kNoWrite;
  }
  const uint32_t writer = model_.write(id).txn;
  if (model_.committed(writer)) return id;
  if (writer == read.txn) {
    ReportOwn(read, value);
  } else if (model_.history().operations[writer].outcome == Outcome::kFail) {
    reporter_->Report(AnomalyKind::kG1a, {read.txn, writer},
                      absl::StrCat(DescribeRead(model_, read), ", but ", TxnName(model_, writer),
                                   ", which appended ", value, ", was aborted"));
  }
  return kNoWrite;
}

// A transaction's own appends are taken off its reads: what is left of them was there before it appended.
void ListCheck::ReportOwn(const ExternalRead& read, int64_t value) {
  reporter_->Report(AnomalyKind::kInternal, {read.txn},
                    absl::StrCat(DescribeRead(model_, read), " with its own append of ", value,
                                 ", which came later or is there twice"));
}

void ListCheck::PlaceElements() {
  made_by_.assign(order_.size(), kNoWrite);
  for (uint32_t i = 0; i < order_.size(); ++i) {
    const uint32_t id = CheckElement(*longest_, i);
    if (id == kNoWrite) continue;
    if (position_[id] != kNowhere) {
      reporter_->Report(AnomalyKind::kDuplicate, {longest_->txn, model_.write(id).txn},
                        absl::StrCat(DescribeRead(model_, *longest_), ", with ", order_[i], " at positions ",
                                     position_[id], " and ", i, "; it was appended once"));
      continue;
    }
    position_[id] = i;
    made_by_[i] = id;
  }
}

// The appends of one transaction to the list stand in it in their order.
void ListCheck::CheckAppendOrder() {
  for (const Write& write : model_.Writes(key_)) {
    if (write.sequence == 0 || !model_.committed(write.txn)) continue;
    const uint32_t id = model_.IdOf(write);
    const uint32_t before = position_[id - 1];
    if (position_[id] == kNowhere || (before != kNowhere && before < position_[id])) continue;
    reporter_->Report(AnomalyKind::kIncompatibleOrder, {longest_->txn, write.txn},
                      absl::StrCat(DescribeRead(model_, *longest_), ", but ", TxnName(model_, write.txn),
                                   " had appended ", model_.write(id - 1).value, " before ", write.value),
                      "appends of one transaction out of order");
  }
}

void ListCheck::KeepPrefixes() {
  good_.clear();
  for (const ExternalRead& read : model_.Reads(key_)) {
    const auto list = model_.List(read);
    const auto [at, other] = std::mismatch(list.begin(), list.end(), order_.begin());
    if (at == list.end()) {
      good_.push_back(&read);
      continue;
    }
    for (uint32_t i = static_cast<uint32_t>(at - list.begin()); i < list.size(); ++i) CheckElement(read, i);
    std::vector<int64_t> sorted(list.begin(), list.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      reporter_->Report(AnomalyKind::kDuplicate, {read.txn},
                        absl::StrCat(DescribeRead(model_, read), ", with ", *twice, " more than once"));
    }
    reporter_->Report(AnomalyKind::kIncompatibleOrder, {read.txn, longest_->txn},
                      absl::StrCat(DescribeRead(model_, read), " and ", DescribeRead(model_, *longest_),
                                   "; neither is a prefix of the other"));
  }
}

void ListCheck::CheckReads() {
  std::vector<uint32_t> replaced_by(order_.size() + 1,
                                    kNowhere);  // by length read: a transaction that appended too
  for (const ExternalRead* read : good_) {
    const uint32_t size = read->list_size;
    if (size > 0 && made_by_[size - 1] != kNoWrite) {
      const Write& last = model_.write(made_by_[size - 1]);
      if (!last.is_final) {
        reporter_->Report(AnomalyKind::kG1b, {read->txn, last.txn},
                          absl::StrCat(DescribeRead(model_, *read), ", but ", TxnName(model_, last.txn),
                                       " appended more than ", last.value, " to ", Name()));
      }
    }
    const auto writes = model_.Writes(key_);
    const auto own = std::lower_bound(writes.begin(), writes.end(), read->txn,
                                      [](const Write& write, uint32_t txn) { return write.txn < txn; });
    if (own == writes.end() || own->txn != read->txn || !model_.committed(read->txn)) continue;
    if (position_[model_.IdOf(*own)] < size) ReportOwn(*read, own->value);
    if (replaced_by[size] == kNowhere) {
      replaced_by[size] = read->txn;
      continue;
    }
    reporter_->Report(AnomalyKind::kLostUpdate, {replaced_by[size], read->txn},
                      absl::StrCat(TxnName(model_, replaced_by[size]), " and ", TxnName(model_, read->txn),
                                   " read the same version of ", Name(), ", and both appended to it"));
  }
}

void ListCheck::LinkAppends() {
  const Write* previous = nullptr;
  for (uint32_t id : made_by_) {
    if (id == kNoWrite) continue;
    const Write& write = model_.write(id);
    if (previous != nullptr && previous->txn != write.txn) {
      graph_->AddEdge({.from = previous->txn,
                       .to = write.txn,
                       .key = key_,
                       .kind = EdgeKind::kWw,
                       .reason = Reason::kListNext,
                       .a = previous->value,
                       .b = write.value});
    }
    previous = &write;
  }
}

void ListCheck::LinkReads() {
  // For each length the first committed write at or behind it.
  std::vector<uint32_t> next(order_.size() + 1, kNoWrite);
  for (uint32_t i = length(); i-- > 0;) next[i] = made_by_[i] != kNoWrite ? made_by_[i] : next[i + 1];
  for (const ExternalRead* read : good_) {
    const uint32_t size = read->list_size;
    if (size > 0 && made_by_[size - 1] != kNoWrite && model_.write(made_by_[size - 1]).txn != read->txn) {
      const Write& last = model_.write(made_by_[size - 1]);
      graph_->AddEdge({.from = last.txn,
                       .to = read->txn,
                       .key = key_,
                       .kind = EdgeKind::kWr,
                       .reason = Reason::kListRead,
                       .a = last.value});
    }
    if (next[size] == kNoWrite || model_.write(next[size]).txn == read->txn) continue;
    const Write& missed = model_.write(next[size]);
    graph_->AddEdge({.from = read->txn,
                     .to = missed.txn,
                     .key = key_,
                     .kind = EdgeKind::kRw,
                     .reason = Reason::kListMissed,
                     .b = missed.value});
  }
}

// Committed appends that no read shows lie behind the longest list, in an order of their own.
void ListCheck::LinkUnseen() {
  std::vector<FanOut::Target> unseen;
  for (const Write& write : model_.Writes(key_)) {
    if (!model_.committed(write.txn) || position_[model_.IdOf(write)] != kNowhere) continue;
    if (unseen.empty() || unseen.back().txn != write.txn) unseen.push_back({write.txn, write.value});
  }
  if (unseen.empty()) return;
  FanOut fan_out(graph_, unseen, key_);
  uint32_t last = kNoWrite;
  for (uint32_t id : made_by_) last = id != kNoWrite ? id : last;
  if (last != kNoWrite) {
    fan_out.Link({.from = model_.write(last).txn,
                  .key = key_,
                  .kind = EdgeKind::kWw,
                  .reason = Reason::kListUnseen,
                  .a = model_.write(last).value},
                 0, unseen.size());
  }
  for (const ExternalRead* read : good_) {
    if (read->list_size != length()) continue;
    fan_out.Link({.from = read->txn, .key = key_, .kind = EdgeKind::kRw, .reason = Reason::kListMissedLast},
                 0, unseen.size());
  }
}

}  // namespace

void CheckLists(const Model& model, Graph* graph, Reporter* reporter) {
  ListCheck check(model, graph, reporter);
  for (uint32_t key = 0; key < model.keys(); ++key) {
    if (model.kind(key) == KeyKind::kList) check.Run(key);
  }
}

}  // namespace furrow::checker
