// A history, indexed for checking: keys with their kinds, writes, what each transaction read from outside
// itself, and which transactions count.
#ifndef FURROW_TESTS_CHECKER_MODEL_H_
#define FURROW_TESTS_CHECKER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tests/checker/checker.h"
#include "tests/checker/history.h"

namespace furrow::checker {

enum class KeyKind : uint8_t { kUnknown, kList, kRegister, kCounter, kAccount };

// An append or a register write. Transactions are positions in History::operations, keys are dense from 0.
struct Write {
  int64_t value = 0;
  uint32_t txn = 0;
  uint32_t key = 0;
  uint32_t sequence = 0;  // among the transaction's writes to the key
  bool is_final = false;  // the last one of them
};

// What a transaction read of a key before it wrote the key: its own writes are taken off the result. A
// transaction has one per key, since all its reads must agree (else: kInternal).
struct ExternalRead {
  uint64_t list_begin = 0;
  int64_t value = 0;
  uint32_t list_size = 0;
  uint32_t txn = 0;
  uint32_t key = 0;
  ReadResult result = ReadResult::kNil;  // of a list: kList always
};

// A contradiction inside one transaction.
struct InternalConflict {
  uint32_t txn = 0;
  uint32_t key = 0;
  uint32_t op = 0;  // position of the read among the transaction's micro-operations
};

inline constexpr uint32_t kNoWrite = UINT32_MAX;

class Model {
 public:
  Model(const History& history, const CheckOptions& options) : history_(history), options_(options) {}
  absl::Status Build();

  const History& history() const { return history_; }
  const CheckOptions& options() const { return options_; }

  size_t keys() const { return keys_.size(); }
  Key key(uint32_t dense) const { return keys_[dense]; }
  // Of a key that the history has.
  uint32_t DenseKey(Key key) const { return dense_.at(key); }
  KeyKind kind(uint32_t dense) const { return kinds_[dense]; }

  // Sorted by transaction and sequence.
  std::span<const Write> Writes(uint32_t key) const {
    return {writes_.data() + first_write_[key], first_write_[key + 1] - first_write_[key]};
  }
  const Write& write(uint32_t id) const { return writes_[id]; }
  uint32_t write_count() const { return static_cast<uint32_t>(writes_.size()); }
  uint32_t IdOf(const Write& write) const { return static_cast<uint32_t>(&write - writes_.data()); }
  // The write of a value, of a transaction that did not fail if there is one; kNoWrite if nobody wrote it.
  uint32_t FindWrite(uint32_t key, int64_t value) const;

  // Of the transactions that take part. Sorted by transaction.
  std::span<const ExternalRead> Reads(uint32_t key) const {
    return {reads_.data() + first_read_[key], first_read_[key + 1] - first_read_[key]};
  }
  std::span<const int64_t> List(const ExternalRead& read) const {
    return {history_.elements.data() + read.list_begin, read.list_size};
  }
  size_t read_count() const { return reads_.size(); }
  // Of the transactions that take part.
  const std::vector<InternalConflict>& internal_conflicts() const { return conflicts_; }

  // Committed: reported so, or of unknown outcome and seen by somebody.
  bool committed(uint32_t txn) const { return committed_[txn]; }
  // Committed, or its reads count although it is not.
  bool takes_part(uint32_t txn) const { return committed_[txn] || options_.opacity; }
  // The time by which its effect, if it has one, was there.
  Nanos end_ns(uint32_t txn) const {
    const Operation& op = history_.operations[txn];
    return op.outcome == Outcome::kUnknown ? kNever : op.complete_ns;
  }

 private:
  absl::Status CheckShape() const;
  absl::Status IndexKeys();
  absl::Status SetKind(uint32_t key, KeyKind kind);
  absl::Status IndexWrites();
  void CollectReads();
  void CollectReadsOf(uint32_t txn);
  void FindSeenUnknowns();
  void SortReads();

  const History& history_;
  const CheckOptions options_;
  std::vector<Key> keys_;
  std::vector<KeyKind> kinds_;
  absl::flat_hash_map<Key, uint32_t> dense_;
  std::vector<uint32_t> op_keys_;  // of each micro-operation
  std::vector<Write> writes_;      // sorted by key, then transaction
  std::vector<size_t> first_write_;
  absl::flat_hash_map<std::pair<uint32_t, int64_t>, uint32_t> write_of_;
  std::vector<ExternalRead> reads_;
  std::vector<size_t> first_read_;
  std::vector<InternalConflict> conflicts_;
  std::vector<bool> committed_;
};

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_MODEL_H_
