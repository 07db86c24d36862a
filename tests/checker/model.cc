#include "tests/checker/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow::checker {
namespace {

// What a transaction knows of one key while its micro-operations are replayed.
struct KeyState {
  bool has_read = false;
  ExternalRead read;
  std::vector<int64_t> own;  // its appends; of a register, its last write
  uint64_t added = 0;        // its increments, wrapping
};

bool IsPrefixOwn(std::span<const int64_t> list, const std::vector<int64_t>& own) {
  return list.size() >= own.size() && std::equal(own.begin(), own.end(), list.end() - own.size());
}

// Takes the transaction's own writes off the result of a read. False if they are not in it as they must be.
bool StripOwn(const History& history, KeyKind kind, const MicroOp& op, const KeyState& state,
              ExternalRead* read, bool* all_own) {
  *all_own = false;
  read->result = op.result;
  read->value = op.value;
  if (kind == KeyKind::kList) {
    const auto list = op.result == ReadResult::kList ? history.List(op) : std::span<const int64_t>();
    if (!IsPrefixOwn(list, state.own)) return false;
    read->result = ReadResult::kList;
    read->list_begin = op.list_begin;
    read->list_size = static_cast<uint32_t>(list.size() - state.own.size());
    return true;
  }
  if (kind == KeyKind::kCounter || kind == KeyKind::kAccount) {
    if (op.result == ReadResult::kNil) read->value = 0;
    read->result = ReadResult::kValue;
    read->value = static_cast<int64_t>(static_cast<uint64_t>(read->value) - state.added);
    return true;
  }
  if (state.own.empty()) return true;
  *all_own = true;
  return op.result == ReadResult::kValue && op.value == state.own.back();
}

bool SameRead(const History& history, const ExternalRead& a, const ExternalRead& b) {
  if (a.result != b.result || a.list_size != b.list_size) return false;
  if (a.result == ReadResult::kValue) return a.value == b.value;
  const int64_t* elements = history.elements.data();
  return std::equal(elements + a.list_begin, elements + a.list_begin + a.list_size, elements + b.list_begin);
}

const char* KindWord(KeyKind kind) {
  static constexpr const char* kWords[] = {"nothing known", "a list", "a register", "a counter",
                                           "an account"};
  return kWords[static_cast<int>(kind)];
}

}  // namespace

absl::Status Model::CheckShape() const {
  for (size_t i = 0; i < history_.operations.size(); ++i) {
    const Operation& op = history_.operations[i];
    if (op.ops_begin + op.ops_size > history_.micro_ops.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("operation ", i, " has micro-operations outside the history"));
    }
    if (op.complete_ns < op.invoke_ns) {
      return absl::InvalidArgumentError(
          absl::StrCat("operation T", op.invoke_index, " completes before it begins"));
    }
    if (op.outcome != Outcome::kUnknown && op.complete_ns == kNever) {
      return absl::InvalidArgumentError(
          absl::StrCat("operation T", op.invoke_index, " has an outcome but no end"));
    }
    if (i > 0 && op.invoke_ns < history_.operations[i - 1].invoke_ns) {
      return absl::InvalidArgumentError(absl::StrCat(
          "operation T", op.invoke_index, " is not in the order of invocations; call History::Number"));
    }
  }
  for (const MicroOp& op : history_.micro_ops) {
    if (op.result == ReadResult::kList && op.list_begin + op.list_size > history_.elements.size()) {
      return absl::InvalidArgumentError("a read has elements outside the history");
    }
  }
  return absl::OkStatus();
}

absl::Status Model::SetKind(uint32_t key, KeyKind kind) {
  if (kinds_[key] == KeyKind::kUnknown || kind == KeyKind::kUnknown) {
    if (kind != KeyKind::kUnknown) kinds_[key] = kind;
    return absl::OkStatus();
  }
  if (kinds_[key] == kind) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("key ", history_.KeyName(keys_[key]), " is used both as ",
                                                 KindWord(kinds_[key]), " and as ", KindWord(kind)));
}

absl::Status Model::IndexKeys() {
  op_keys_.resize(history_.micro_ops.size());
  for (size_t i = 0; i < history_.micro_ops.size(); ++i) {
    const auto [it, is_new] =
        dense_.try_emplace(history_.micro_ops[i].key, static_cast<uint32_t>(keys_.size()));
    if (is_new) keys_.push_back(it->first);
    op_keys_[i] = it->second;
  }
  kinds_.assign(keys_.size(), KeyKind::kUnknown);
  std::vector<bool> has_value(keys_.size());
  for (const Operation& op : history_.operations) {
    for (size_t i = op.ops_begin; i < op.ops_begin + op.ops_size; ++i) {
      const MicroOp& micro = history_.micro_ops[i];
      KeyKind kind = KeyKind::kUnknown;
      if (op.function != Function::kTxn) {
        kind = KeyKind::kAccount;
      } else if (micro.kind == OpKind::kAppend || micro.result == ReadResult::kList) {
        kind = KeyKind::kList;
      } else if (micro.kind == OpKind::kWrite) {
        kind = KeyKind::kRegister;
      } else if (micro.kind == OpKind::kIncrement) {
        kind = KeyKind::kCounter;
      }
      if (micro.result == ReadResult::kValue) has_value[op_keys_[i]] = true;
      FURROW_RETURN_IF_ERROR(SetKind(op_keys_[i], kind));
    }
  }
  for (uint32_t key = 0; key < keys_.size(); ++key) {
    if (kinds_[key] == KeyKind::kUnknown) kinds_[key] = KeyKind::kRegister;
    if (kinds_[key] == KeyKind::kList && has_value[key]) {
      return absl::InvalidArgumentError(absl::StrCat("key ", history_.KeyName(keys_[key]),
                                                     " is a list, but a read of it returned a number"));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::IndexWrites() {
  for (uint32_t txn = 0; txn < history_.operations.size(); ++txn) {
    const Operation& op = history_.operations[txn];
    for (size_t i = op.ops_begin; i < op.ops_begin + op.ops_size; ++i) {
      const MicroOp& micro = history_.micro_ops[i];
      if (micro.kind != OpKind::kAppend && micro.kind != OpKind::kWrite) continue;
      writes_.push_back({.value = micro.value, .txn = txn, .key = op_keys_[i]});
    }
  }
  first_write_.assign(keys_.size() + 1, 0);
  for (const Write& write : writes_) ++first_write_[write.key + 1];
  for (size_t key = 0; key < keys_.size(); ++key) first_write_[key + 1] += first_write_[key];
  std::vector<size_t> next(first_write_.begin(), first_write_.end() - 1);
  std::vector<Write> sorted(writes_.size());
  for (const Write& write : writes_) sorted[next[write.key]++] = write;
  writes_ = std::move(sorted);

  write_of_.reserve(writes_.size());
  for (uint32_t id = 0; id < writes_.size(); ++id) {
    Write& write = writes_[id];
    const bool has_before = id > 0 && writes_[id - 1].key == write.key && writes_[id - 1].txn == write.txn;
    const bool has_after =
        id + 1 < writes_.size() && writes_[id + 1].key == write.key && writes_[id + 1].txn == write.txn;
    write.sequence = has_before ? writes_[id - 1].sequence + 1 : 0;
    write.is_final = !has_after;
    const auto [it, is_new] = write_of_.try_emplace({write.key, write.value}, id);
    if (is_new) continue;
    const Write& other = writes_[it->second];
    const bool other_failed = history_.operations[other.txn].outcome == Outcome::kFail;
    if (history_.operations[write.txn].outcome == Outcome::kFail && other.txn != write.txn) continue;
    if (other_failed && other.txn != write.txn) {
      it->second = id;
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("T", history_.operations[other.txn].invoke_index, " and T",
                     history_.operations[write.txn].invoke_index, " both write ", write.value, " to key ",
                     history_.KeyName(keys_[write.key]), "; values must be unique"));
  }
  return absl::OkStatus();
}

uint32_t Model::FindWrite(uint32_t key, int64_t value) const {
  const auto it = write_of_.find({key, value});
  return it == write_of_.end() ? kNoWrite : it->second;
}

void Model::CollectReadsOf(uint32_t txn) {
  const Operation& op = history_.operations[txn];
  absl::flat_hash_map<uint32_t, KeyState> states;
  for (uint32_t i = 0; i < op.ops_size; ++i) {
    const MicroOp& micro = history_.micro_ops[op.ops_begin + i];
    const uint32_t key = op_keys_[op.ops_begin + i];
    if (micro.kind == OpKind::kRead && micro.result == ReadResult::kNone) continue;
    KeyState& state = states[key];
    if (micro.kind == OpKind::kAppend || micro.kind == OpKind::kWrite) state.own.push_back(micro.value);
    if (micro.kind == OpKind::kIncrement) state.added += static_cast<uint64_t>(micro.value);
    if (micro.kind != OpKind::kRead) continue;
    ExternalRead read = {.txn = txn, .key = key};
    bool all_own;
    if (!StripOwn(history_, kinds_[key], micro, state, &read, &all_own)) {
      conflicts_.push_back({txn, key, i});
    } else if (all_own) {
      continue;
    } else if (!state.has_read) {
      state.has_read = true;
      state.read = read;
      reads_.push_back(read);
    } else if (!SameRead(history_, state.read, read)) {
      conflicts_.push_back({txn, key, i});
    }
  }
}

void Model::CollectReads() {
  committed_.resize(history_.operations.size());
  for (uint32_t txn = 0; txn < history_.operations.size(); ++txn) {
    committed_[txn] = history_.operations[txn].outcome == Outcome::kOk;
    CollectReadsOf(txn);
  }
}

// A transaction of unknown outcome has committed if somebody whose reads count saw a write of it. Its own
// reads count from then on, and may show further ones. Lists grow by prefixes, so each list is searched once,
// to its longest read.
void Model::FindSeenUnknowns() {
  // Reads are sorted by transaction here.
  std::vector<size_t> first(history_.operations.size() + 1, 0);
  for (const ExternalRead& read : reads_) ++first[read.txn + 1];
  for (size_t txn = 0; txn + 1 < first.size(); ++txn) first[txn + 1] += first[txn];
  std::vector<uint32_t> searched(keys_.size(), 0);
  std::vector<uint32_t> waiting;
  for (uint32_t txn = 0; txn < history_.operations.size(); ++txn) {
    if (takes_part(txn)) waiting.push_back(txn);
  }
  auto see = [&](uint32_t key, int64_t value) {
    const uint32_t id = FindWrite(key, value);
    if (id == kNoWrite) return;
    const uint32_t txn = writes_[id].txn;
    if (committed_[txn] || history_.operations[txn].outcome != Outcome::kUnknown) return;
    committed_[txn] = true;
    if (!options_.opacity) waiting.push_back(txn);
  };
  while (!waiting.empty()) {
    const uint32_t txn = waiting.back();
    waiting.pop_back();
    for (size_t i = first[txn]; i < first[txn + 1]; ++i) {
      const ExternalRead& read = reads_[i];
      if (kinds_[read.key] == KeyKind::kRegister && read.result == ReadResult::kValue) {
        see(read.key, read.value);
      }
      if (kinds_[read.key] != KeyKind::kList) continue;
      for (; searched[read.key] < read.list_size; ++searched[read.key]) {
        see(read.key, history_.elements[read.list_begin + searched[read.key]]);
      }
    }
  }
}

void Model::SortReads() {
  std::erase_if(reads_, [&](const ExternalRead& read) { return !takes_part(read.txn); });
  std::erase_if(conflicts_, [&](const InternalConflict& conflict) { return !takes_part(conflict.txn); });
  first_read_.assign(keys_.size() + 1, 0);
  for (const ExternalRead& read : reads_) ++first_read_[read.key + 1];
  for (size_t key = 0; key < keys_.size(); ++key) first_read_[key + 1] += first_read_[key];
  std::vector<size_t> next(first_read_.begin(), first_read_.end() - 1);
  std::vector<ExternalRead> sorted(reads_.size());
  for (const ExternalRead& read : reads_) sorted[next[read.key]++] = read;
  reads_ = std::move(sorted);
}

absl::Status Model::Build() {
  FURROW_RETURN_IF_ERROR(CheckShape());
  FURROW_RETURN_IF_ERROR(IndexKeys());
  FURROW_RETURN_IF_ERROR(IndexWrites());
  CollectReads();
  FindSeenUnknowns();
  SortReads();
  return absl::OkStatus();
}

}  // namespace furrow::checker
