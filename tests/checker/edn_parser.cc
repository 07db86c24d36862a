#include "tests/checker/edn.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/checker/edn_scanner.h"

namespace furrow::checker {
namespace {

enum class LineType { kInvoke, kOk, kFail, kInfo };

struct Line {
  size_t number = 0;
  std::optional<LineType> type;
  std::optional<Function> function;
  std::optional<uint32_t> process;  // empty: not a client's
  bool has_process = false;
  bool has_value = false;
  std::optional<int64_t> time;
  std::vector<MicroOp> ops;
};

// An invocation that waits for its completion.
struct Pending {
  uint32_t operation;
  std::vector<MicroOp> ops;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) {}
  absl::StatusOr<History> Run();

 private:
  absl::Status ParseLine(Line* line);
  absl::Status ParseField(std::string_view field, Line* line);
  absl::Status ParseType(Line* line);
  absl::Status ParseFunction(Line* line);
  absl::Status ParseProcess(Line* line);
  absl::Status ParseValue(Line* line);
  absl::Status ParseTxn(Line* line);
  absl::StatusOr<MicroOp> ParseMicroOp();
  absl::Status ParseReadResult(MicroOp* op);
  absl::Status ParseTransfer(Line* line);
  absl::Status ParseAccounts(Line* line);
  absl::StatusOr<Key> ParseKey();
  absl::Status Accept(Line line);
  void SetOps(Operation* op, const std::vector<MicroOp>& ops);
  absl::Status ErrorAt(size_t line, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", Sv(what)));
  }

  EdnScanner scanner_;
  History history_;
  absl::flat_hash_map<uint32_t, Pending> pending_;
  uint32_t events_ = 0;
  bool timed_ = false;
  bool untimed_ = false;
  Nanos last_time_ = std::numeric_limits<Nanos>::min();
};

absl::StatusOr<Key> Parser::ParseKey() {
  if (scanner_.Peek() == '"') {
    FURROW_ASSIGN_OR_RETURN(const std::string_view name, scanner_.TakeString());
    return history_.NamedKey(name);
  }
  if (scanner_.Peek() == ':') {
    FURROW_ASSIGN_OR_RETURN(const std::string_view keyword, scanner_.TakeToken());
    return history_.NamedKey(keyword.substr(1));
  }
  FURROW_ASSIGN_OR_RETURN(const Key key, scanner_.TakeInt());
  if (key < 0)
    return scanner_.Error(absl::StrCat("key ", key, " is negative; keys are numbers from 0 up or names"));
  return key;
}

absl::Status Parser::ParseReadResult(MicroOp* op) {
  if (scanner_.TryTake('[')) {
    op->result = ReadResult::kList;
    op->list_begin = history_.elements.size();
    while (!scanner_.TryTake(']')) {
      FURROW_ASSIGN_OR_RETURN(const int64_t element, scanner_.TakeInt());
      history_.elements.push_back(element);
    }
    const size_t size = history_.elements.size() - op->list_begin;
    if (size > std::numeric_limits<uint32_t>::max()) return scanner_.Error("the list has over 2^32 elements");
    op->list_size = static_cast<uint32_t>(size);
    return absl::OkStatus();
  }
  if (scanner_.Peek() == 'n') {
    FURROW_ASSIGN_OR_RETURN(const std::string_view nil, scanner_.TakeToken());
    if (nil != "nil") return scanner_.Error(absl::StrCat("'", Sv(nil), "' is no result of a read"));
    op->result = ReadResult::kNil;
    return absl::OkStatus();
  }
  op->result = ReadResult::kValue;
  FURROW_ASSIGN_OR_RETURN(op->value, scanner_.TakeInt());
  return absl::OkStatus();
}

absl::StatusOr<MicroOp> Parser::ParseMicroOp() {
  MicroOp op;
  FURROW_RETURN_IF_ERROR(scanner_.Take('['));
  FURROW_ASSIGN_OR_RETURN(const std::string_view name, scanner_.TakeToken());
  if (name == ":append") {
    op.kind = OpKind::kAppend;
  } else if (name == ":w") {
    op.kind = OpKind::kWrite;
  } else if (name == ":inc") {
    op.kind = OpKind::kIncrement;
  } else if (name != ":r") {
    return scanner_.Error(absl::StrCat("'", Sv(name), "' is none of :append, :w, :inc and :r"));
  }
  FURROW_ASSIGN_OR_RETURN(op.key, ParseKey());
  if (op.kind == OpKind::kRead) {
    FURROW_RETURN_IF_ERROR(ParseReadResult(&op));
  } else {
    FURROW_ASSIGN_OR_RETURN(op.value, scanner_.TakeInt());
  }
  FURROW_RETURN_IF_ERROR(scanner_.Take(']'));
  return op;
}

absl::Status Parser::ParseTxn(Line* line) {
  FURROW_RETURN_IF_ERROR(scanner_.Take('['));
  while (!scanner_.TryTake(']')) {
    FURROW_ASSIGN_OR_RETURN(const MicroOp op, ParseMicroOp());
    line->ops.push_back(op);
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseTransfer(Line* line) {
  std::optional<Key> from, to;
  std::optional<int64_t> amount;
  FURROW_RETURN_IF_ERROR(scanner_.Take('{'));
  while (!scanner_.TryTake('}')) {
    FURROW_ASSIGN_OR_RETURN(const std::string_view field, scanner_.TakeToken());
    if (field == ":from") {
      FURROW_ASSIGN_OR_RETURN(from, ParseKey());
    } else if (field == ":to") {
      FURROW_ASSIGN_OR_RETURN(to, ParseKey());
    } else if (field == ":amount") {
      FURROW_ASSIGN_OR_RETURN(amount, scanner_.TakeInt());
    } else {
      FURROW_RETURN_IF_ERROR(scanner_.SkipForm());
    }
  }
  if (!from || !to || !amount || *amount == std::numeric_limits<int64_t>::min()) {
    return scanner_.Error("a transfer needs :from, :to and :amount");
  }
  line->ops.push_back({.key = *from, .value = -*amount, .kind = OpKind::kIncrement});
  line->ops.push_back({.key = *to, .value = *amount, .kind = OpKind::kIncrement});
  return absl::OkStatus();
}

absl::Status Parser::ParseAccounts(Line* line) {
  FURROW_RETURN_IF_ERROR(scanner_.Take('{'));
  while (!scanner_.TryTake('}')) {
    MicroOp op;
    FURROW_ASSIGN_OR_RETURN(op.key, ParseKey());
    FURROW_RETURN_IF_ERROR(ParseReadResult(&op));
    line->ops.push_back(op);
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseValue(Line* line) {
  if (scanner_.Peek() == 'n') return scanner_.SkipForm();  // nil
  if (!line->function.has_value()) {
    return scanner_.Error(":f must stand before :value and be :txn, :transfer or :read");
  }
  line->has_value = true;
  switch (*line->function) {
    case Function::kTxn:
      return ParseTxn(line);
    case Function::kTransfer:
      return ParseTransfer(line);
    case Function::kReadAll:
      return ParseAccounts(line);
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseType(Line* line) {
  FURROW_ASSIGN_OR_RETURN(const std::string_view type, scanner_.TakeToken());
  static constexpr std::pair<std::string_view, LineType> kTypes[] = {{":invoke", LineType::kInvoke},
                                                                     {":ok", LineType::kOk},
                                                                     {":fail", LineType::kFail},
                                                                     {":info", LineType::kInfo}};
  for (const auto& [name, value] : kTypes) {
    if (name == type) line->type = value;
  }
  if (!line->type)
    return scanner_.Error(absl::StrCat("'", Sv(type), "' is none of :invoke, :ok, :fail and :info"));
  return absl::OkStatus();
}

absl::Status Parser::ParseFunction(Line* line) {
  FURROW_ASSIGN_OR_RETURN(const std::string_view name, scanner_.TakeToken());
  if (name == ":txn") line->function = Function::kTxn;
  if (name == ":transfer") line->function = Function::kTransfer;
  if (name == ":read") line->function = Function::kReadAll;
  return absl::OkStatus();
}

absl::Status Parser::ParseProcess(Line* line) {
  line->has_process = true;
  if (scanner_.Peek() == ':') return scanner_.SkipForm();
  FURROW_ASSIGN_OR_RETURN(const int64_t process, scanner_.TakeInt());
  if (process < 0 || process > std::numeric_limits<uint32_t>::max()) {
    return scanner_.Error(absl::StrCat("process ", process, " is not a number of 32 bits"));
  }
  line->process = static_cast<uint32_t>(process);
  return absl::OkStatus();
}

absl::Status Parser::ParseField(std::string_view field, Line* line) {
  if (field == ":type") return ParseType(line);
  if (field == ":f") return ParseFunction(line);
  if (field == ":process") return ParseProcess(line);
  // What others than clients did (a nemesis) has values of its own.
  if (field == ":value" && !(line->has_process && !line->process)) return ParseValue(line);
  if (field == ":time") {
    FURROW_ASSIGN_OR_RETURN(line->time, scanner_.TakeInt());
    return absl::OkStatus();
  }
  return scanner_.SkipForm();
}

absl::Status Parser::ParseLine(Line* line) {
  FURROW_RETURN_IF_ERROR(scanner_.SkipTags());
  line->number = scanner_.line();
  FURROW_RETURN_IF_ERROR(scanner_.Take('{'));
  while (!scanner_.TryTake('}')) {
    FURROW_ASSIGN_OR_RETURN(const std::string_view field, scanner_.TakeToken());
    FURROW_RETURN_IF_ERROR(ParseField(field, line));
  }
  return absl::OkStatus();
}

void Parser::SetOps(Operation* op, const std::vector<MicroOp>& ops) {
  op->ops_begin = history_.micro_ops.size();
  op->ops_size = static_cast<uint32_t>(ops.size());
  for (MicroOp micro : ops) {
    if (micro.result == ReadResult::kNil && op->outcome != Outcome::kOk) micro.result = ReadResult::kNone;
    history_.micro_ops.push_back(micro);
  }
}

absl::Status Parser::Accept(Line line) {
  if (!line.type) return ErrorAt(line.number, ":type is missing");
  if (!line.has_process) return ErrorAt(line.number, ":process is missing");
  if (!line.process) return absl::OkStatus();
  if (!line.function) return ErrorAt(line.number, ":f is missing, or none of :txn, :transfer and :read");
  (line.time ? timed_ : untimed_) = true;
  if (timed_ && untimed_) return ErrorAt(line.number, ":time stands in some lines but not in all");
  const Nanos time = line.time.value_or(events_);
  if (time < last_time_) return ErrorAt(line.number, "its :time is earlier than the line's before");
  last_time_ = time;
  const uint32_t index = events_++;
  auto it = pending_.find(*line.process);
  if (*line.type == LineType::kInvoke) {
    if (it != pending_.end()) {
      return ErrorAt(line.number,
                     absl::StrCat("process ", *line.process, " invokes while its last operation is open"));
    }
    pending_[*line.process] = {static_cast<uint32_t>(history_.operations.size()), std::move(line.ops)};
    Operation op;
    op.invoke_ns = time;
    op.process = *line.process;
    op.invoke_index = index;
    op.function = *line.function;
    history_.operations.push_back(op);
    return absl::OkStatus();
  }
  if (it == pending_.end()) {
    return ErrorAt(line.number, absl::StrCat("process ", *line.process, " completes what it never invoked"));
  }
  Operation& op = history_.operations[it->second.operation];
  if (op.function != *line.function) return ErrorAt(line.number, ":f is not that of its invocation");
  op.complete_ns = time;
  op.complete_index = index;
  op.outcome = *line.type == LineType::kOk     ? Outcome::kOk
               : *line.type == LineType::kFail ? Outcome::kFail
                                               : Outcome::kUnknown;
  SetOps(&op, line.has_value ? line.ops : it->second.ops);
  pending_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<History> Parser::Run() {
  while (scanner_.Peek() != 0) {
    Line line;
    FURROW_RETURN_IF_ERROR(ParseLine(&line));
    FURROW_RETURN_IF_ERROR(Accept(std::move(line)));
  }
  for (auto& [process, pending] : pending_) SetOps(&history_.operations[pending.operation], pending.ops);
  return std::move(history_);
}

}  // namespace

absl::StatusOr<History> ParseEdn(std::string_view text) { return Parser(text).Run(); }

absl::StatusOr<History> ReadHistoryFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat("the file cannot be read: ", std::strerror(errno)));
  std::string text(static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0)), '\0');
  file.seekg(0);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return absl::UnknownError(absl::StrCat("the file cannot be read: ", std::strerror(errno)));
  }
  return ParseEdn(text);
}

}  // namespace furrow::checker
