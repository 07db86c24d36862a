#include "tests/checker/recorder.h"

#include "base/check.h"

namespace furrow::checker {

void ProcessLog::Invoke(Nanos now, Function function) {
  if (open_) Complete(Outcome::kUnknown, now);
  FURROW_CHECK(operations_.size() < kMaxOperations);
  FURROW_CHECK(operations_.empty() || operations_.back().invoke_ns <= now);
  Operation op;
  op.invoke_ns = now;
  op.ops_begin = micro_ops_.size();
  op.process = process_;
  op.function = function;
  operations_.push_back(op);
  open_ = true;
}

void ProcessLog::Add(MicroOp op) {
  FURROW_CHECK(open_);
  micro_ops_.push_back(op);
  ++operations_.back().ops_size;
}

void ProcessLog::Append(Key key, int64_t value) {
  Add({.key = key, .value = value, .kind = OpKind::kAppend});
}

void ProcessLog::ReadList(Key key, std::span<const int64_t> elements) {
  Add({.key = key,
       .list_begin = elements_.size(),
       .list_size = static_cast<uint32_t>(elements.size()),
       .kind = OpKind::kRead,
       .result = ReadResult::kList});
  elements_.insert(elements_.end(), elements.begin(), elements.end());
}

void ProcessLog::Write(Key key, int64_t value) { Add({.key = key, .value = value, .kind = OpKind::kWrite}); }

void ProcessLog::ReadRegister(Key key, std::optional<int64_t> value) {
  Add({.key = key,
       .value = value.value_or(0),
       .kind = OpKind::kRead,
       .result = value.has_value() ? ReadResult::kValue : ReadResult::kNil});
}

void ProcessLog::Increment(Key key, int64_t amount) {
  Add({.key = key, .value = amount, .kind = OpKind::kIncrement});
}

void ProcessLog::ReadCounter(Key key, int64_t value) { ReadRegister(key, value); }

void ProcessLog::Transfer(Key from, Key to, int64_t amount) {
  FURROW_CHECK(open_ && operations_.back().function == Function::kTransfer);
  FURROW_CHECK(operations_.back().ops_size == 0);
  Increment(from, -amount);
  Increment(to, amount);
}

void ProcessLog::ReadAccount(Key account, int64_t balance) {
  FURROW_CHECK(open_ && operations_.back().function == Function::kReadAll);
  ReadRegister(account, balance);
}

void ProcessLog::Complete(Outcome outcome, Nanos now) {
  FURROW_CHECK(open_);
  Operation& op = operations_.back();
  FURROW_CHECK(op.invoke_ns <= now);
  op.outcome = outcome;
  op.complete_ns = now;
  open_ = false;
}

Recorder::Recorder(uint32_t processes) {
  for (uint32_t i = 0; i < processes; ++i) logs_.push_back(std::make_unique<ProcessLog>(i));
}

History Recorder::Merge() const {
  History history;
  for (const auto& log : logs_) {
    const uint64_t micro_base = history.micro_ops.size();
    const uint64_t element_base = history.elements.size();
    for (Operation op : log->operations_) {
      op.ops_begin += micro_base;
      history.operations.push_back(op);
    }
    for (MicroOp op : log->micro_ops_) {
      op.list_begin += element_base;
      history.micro_ops.push_back(op);
    }
    history.elements.insert(history.elements.end(), log->elements_.begin(), log->elements_.end());
  }
  history.Number();
  return history;
}

}  // namespace furrow::checker
