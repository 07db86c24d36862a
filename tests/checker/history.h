// A history: what clients asked of the database, when, and what came back. Recorded by recorder.h, read and
// written as EDN by edn.h, judged by checker.h.
#ifndef FURROW_TESTS_CHECKER_HISTORY_H_
#define FURROW_TESTS_CHECKER_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace furrow::checker {

// Names one list, register, counter or account. Keys from 0 up are numbers; negative ones stand for the names
// that the history's table holds (:x in EDN).
using Key = int64_t;

enum class OpKind : uint8_t {
  kAppend,  // key's list grows by `value`; each (key, value) is appended by one committed operation at most
  kWrite,   // the register `key` becomes `value`; unique in the same way
  kIncrement,  // a counter or an account changes by `value`
  kRead,
};

enum class ReadResult : uint8_t {
  kNone,   // not a read, or a read whose result is not known
  kNil,    // nothing there yet: an empty list, a register never written
  kValue,  // `value`
  kList,   // the elements [list_begin, list_begin + list_size) of the history
};

struct MicroOp {
  Key key = 0;
  int64_t value = 0;
  uint64_t list_begin = 0;
  uint32_t list_size = 0;
  OpKind kind = OpKind::kRead;
  ReadResult result = ReadResult::kNone;
};

enum class Outcome : uint8_t {
  kOk,       // committed
  kFail,     // certainly aborted; its writes must never be seen
  kUnknown,  // `:info`: may have committed, at any time from its invocation on
};

enum class Function : uint8_t {
  kTxn,       // a list of micro-operations
  kTransfer,  // bank: two increments that add up to 0
  kReadAll,   // bank: reads of all accounts
};

// One transaction, or one attempt of it.
struct Operation {
  Nanos invoke_ns = 0;
  Nanos complete_ns = kNever;  // when the client learned the outcome; kNever if it never did
  uint64_t ops_begin = 0;
  uint32_t ops_size = 0;
  uint32_t process = 0;
  uint32_t invoke_index = 0;    // the :index of its two lines; reports call it T<invoke_index>
  uint32_t complete_index = 0;  // 0 if it has no second line
  Outcome outcome = Outcome::kUnknown;
  Function function = Function::kTxn;
};

// Plain data with one owner. Operations stand in the order of their invocations; micro-operations and list
// elements lie in shared arrays, so that a large history costs few allocations.
class History {
 public:
  std::vector<Operation> operations;
  std::vector<MicroOp> micro_ops;
  std::vector<int64_t> elements;

  std::span<const MicroOp> Ops(const Operation& op) const {
    return {micro_ops.data() + op.ops_begin, op.ops_size};
  }
  std::span<const int64_t> List(const MicroOp& op) const {
    return {elements.data() + op.list_begin, op.list_size};
  }

  // The key of a name, made when it is new.
  Key NamedKey(std::string_view name);
  // "x" or "17".
  std::string KeyName(Key key) const;

  // Takes over the operations of another log of the same run, whose processes are others and whose times come
  // from the same clock. Number() has to follow.
  void Add(const History& other);

  // Sorts operations by invocation and numbers the lines of both events by time; of events at the same time,
  // invocations come first, except that each process keeps its own order.
  void Number();

 private:
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, Key> name_keys_;
};

// One event of an operation: its invocation or its completion.
struct Event {
  Nanos time = 0;
  uint32_t operation = 0;
  bool completion = false;
};

// All events in the order of their indexes. Operations that never completed have one event only.
std::vector<Event> EventsByIndex(const History& history);

}  // namespace furrow::checker

#endif  // FURROW_TESTS_CHECKER_HISTORY_H_
