#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/checker/rules.h"

namespace furrow::checker {
namespace {

class RegisterCheck {
 public:
  RegisterCheck(const Model& model, Graph* graph, Reporter* reporter)
      : model_(model), graph_(graph), reporter_(reporter) {}

  void Run(uint32_t key) {
    key_ = key;
    FindWriters();
    FindVersions();
    LinkReads();
  }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  // What is known of one value that was read: the initial one (write = kNoWrite) or a committed one.
  struct Version {
    uint32_t write = kNoWrite;
    Nanos there_ns = kNever;         // by then it was written: its writer or one of its readers was over
    uint32_t replaced_by = kNobody;  // the first transaction that read it and wrote the key
    int64_t replacement = 0;
  };

  std::string Name() const { return model_.history().KeyName(model_.key(key_)); }
  void FindWriters();
  void FindVersions();
  bool IsInitial(const ExternalRead& read) const;
  // The committed write that was read; reports what must not be read. kNoWrite: none.
  uint32_t CheckRead(const ExternalRead& read);
  void NoteRead(const ExternalRead& read, Version* version);
  void LinkReads();
  void LinkVersion(const ExternalRead& read, const Version& version, FanOut* fan_out);

  const Model& model_;
  Graph* const graph_;
  Reporter* const reporter_;
  uint32_t key_ = 0;
  std::vector<FanOut::Target> writers_;  // committed ones with the value that they left
  Version initial_;
  absl::flat_hash_map<uint32_t, Version> versions_;             // by write
  std::vector<std::pair<const ExternalRead*, uint32_t>> good_;  // reads, with the write that they saw
};

void RegisterCheck::FindWriters() {
  writers_.clear();
  for (const Write& write : model_.Writes(key_)) {
    if (write.is_final && model_.committed(write.txn)) writers_.push_back({write.txn, write.value});
  }
}

bool RegisterCheck::IsInitial(const ExternalRead& read) const {
  if (read.result == ReadResult::kNil) return true;
  const auto& initial = model_.options().initial_register;
  return initial.has_value() && read.value == *initial && model_.FindWrite(key_, read.value) == kNoWrite;
}

uint32_t RegisterCheck::CheckRead(const ExternalRead& read) {
  const uint32_t id = model_.FindWrite(key_, read.value);
  if (id == kNoWrite) {
    reporter_->Report(AnomalyKind::kPhantom, {read.txn},
                      absl::StrCat(DescribeRead(model_, read), ", but nobody ever wrote that"));
    return kNoWrite;
  }
  const Write& write = model_.write(id);
  if (write.txn == read.txn) {
    reporter_->Report(AnomalyKind::kInternal, {read.txn},
                      absl::StrCat(DescribeRead(model_, read), " before it wrote that itself"));
    return kNoWrite;
  }
  if (!model_.committed(write.txn)) {
    reporter_->Report(AnomalyKind::kG1a, {read.txn, write.txn},
                      absl::StrCat(DescribeRead(model_, read), ", but ", TxnName(model_, write.txn),
                                   ", which wrote that, was aborted"));
    return kNoWrite;
  }
  if (!write.is_final) {
    reporter_->Report(AnomalyKind::kG1b, {read.txn, write.txn},
                      absl::StrCat(DescribeRead(model_, read), ", but ", TxnName(model_, write.txn),
                                   " wrote ", Name(), " again after that"));
    return kNoWrite;
  }
  return id;
}

void RegisterCheck::NoteRead(const ExternalRead& read, Version* version) {
  version->there_ns = std::min(version->there_ns, model_.end_ns(read.txn));
  const auto own =
      std::lower_bound(writers_.begin(), writers_.end(), read.txn,
                       [](const FanOut::Target& target, uint32_t txn) { return target.txn < txn; });
  if (own == writers_.end() || own->txn != read.txn) return;
  if (version->replaced_by == kNobody) {
    version->replaced_by = read.txn;
    version->replacement = own->value;
    return;
  }
  reporter_->Report(AnomalyKind::kLostUpdate, {version->replaced_by, read.txn},
                    absl::StrCat(TxnName(model_, version->replaced_by), " and ", DescribeRead(model_, read),
                                 ", and both wrote ", Name(), " anew"));
}

void RegisterCheck::FindVersions() {
  initial_ = Version();
  versions_.clear();
  good_.clear();
  for (const ExternalRead& read : model_.Reads(key_)) {
    if (IsInitial(read)) {
      good_.push_back({&read, kNoWrite});
      NoteRead(read, &initial_);
      continue;
    }
    const uint32_t id = CheckRead(read);
    if (id == kNoWrite) continue;
    good_.push_back({&read, id});
    auto [it, is_new] = versions_.try_emplace(id);
    if (is_new) it->second.there_ns = model_.end_ns(model_.write(id).txn);
    it->second.write = id;
    NoteRead(read, &it->second);
  }
}

// Everything that follows from a transaction's read of a written version.
void RegisterCheck::LinkVersion(const ExternalRead& read, const Version& version, FanOut* fan_out) {
  const Write& write = model_.write(version.write);
  const auto own =
      std::lower_bound(writers_.begin(), writers_.end(), read.txn,
                       [](const FanOut::Target& target, uint32_t txn) { return target.txn < txn; });
  const bool replaces = own != writers_.end() && own->txn == read.txn;
  graph_->AddEdge({.from = write.txn,
                   .to = read.txn,
                   .key = key_,
                   .kind = replaces ? EdgeKind::kWw : EdgeKind::kWr,
                   .reason = replaces ? Reason::kRegisterOver : Reason::kRegisterRead,
                   .a = write.value,
                   .b = replaces ? own->value : 0});
  if (version.replaced_by != kNobody && version.replaced_by != read.txn) {
    graph_->AddEdge({.from = read.txn,
                     .to = version.replaced_by,
                     .key = key_,
                     .kind = EdgeKind::kRw,
                     .reason = Reason::kRegisterMissed,
                     .a = write.value,
                     .b = version.replacement});
  }
  if (!model_.options().real_time || version.there_ns == kNever) return;
  // Transactions are numbered by their invocations, so the writers that began later are the row's end.
  const auto later =
      std::partition_point(writers_.begin(), writers_.end(), [&](const FanOut::Target& target) {
        return model_.history().operations[target.txn].invoke_ns <= version.there_ns;
      });
  fan_out->Link({.from = read.txn,
                 .key = key_,
                 .kind = EdgeKind::kTimedRw,
                 .reason = Reason::kRegisterTimed,
                 .a = write.value},
                static_cast<size_t>(later - writers_.begin()), writers_.size());
}

void RegisterCheck::LinkReads() {
  FanOut fan_out(graph_, writers_, key_);
  for (const auto& [read, write] : good_) {
    if (write != kNoWrite) {
      LinkVersion(*read, versions_.at(write), &fan_out);
      continue;
    }
    fan_out.Link({.from = read->txn, .key = key_, .kind = EdgeKind::kRw, .reason = Reason::kRegisterFirst}, 0,
                 writers_.size());
  }
}

}  // namespace

void CheckRegisters(const Model& model, Graph* graph, Reporter* reporter) {
  RegisterCheck check(model, graph, reporter);
  for (uint32_t key = 0; key < model.keys(); ++key) {
    if (model.kind(key) == KeyKind::kRegister) check.Run(key);
  }
}

}  // namespace furrow::checker
