#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/checker/edn.h"

namespace furrow::checker {
namespace {

bool IsKeyword(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.' || c == '/' || c == '*' || c == '+' || c == '!' ||
                       c == '?';
    if (!plain) return false;
  }
  return true;
}

void WriteKey(const History& history, Key key, std::string* out) {
  const std::string name = history.KeyName(key);
  if (key >= 0) {
    out->append(name);
  } else if (IsKeyword(name)) {
    absl::StrAppend(out, ":", name);
  } else {
    absl::StrAppend(out, "\"", name, "\"");
  }
}

void WriteMicroOp(const History& history, const MicroOp& op, bool with_result, std::string* out) {
  static constexpr const char* kNames[] = {":append", ":w", ":inc", ":r"};
  absl::StrAppend(out, "[", kNames[static_cast<int>(op.kind)], " ");
  WriteKey(history, op.key, out);
  if (op.kind != OpKind::kRead) {
    absl::StrAppend(out, " ", op.value, "]");
  } else if (with_result && op.result == ReadResult::kValue) {
    absl::StrAppend(out, " ", op.value, "]");
  } else if (with_result && op.result == ReadResult::kList) {
    out->append(" [");
    const char* blank = "";
    for (int64_t element : history.List(op)) {
      absl::StrAppend(out, blank, element);
      blank = " ";
    }
    out->append("]]");
  } else {
    out->append(" nil]");
  }
}

void WriteValue(const History& history, const Operation& op, bool with_results, std::string* out) {
  const auto ops = history.Ops(op);
  if (op.function == Function::kTransfer) {
    if (ops.size() != 2) {  // it ended before it said what it would move
      out->append("nil");
      return;
    }
    out->append("{:from ");
    WriteKey(history, ops[0].key, out);
    out->append(" :to ");
    WriteKey(history, ops[1].key, out);
    absl::StrAppend(out, " :amount ", ops[1].value, "}");
    return;
  }
  if (op.function == Function::kReadAll && !with_results) {
    out->append("nil");
    return;
  }
  const bool is_map = op.function == Function::kReadAll;
  out->push_back(is_map ? '{' : '[');
  const char* blank = "";
  for (const MicroOp& micro : ops) {
    out->append(blank);
    blank = " ";
    if (!is_map) {
      WriteMicroOp(history, micro, with_results, out);
      continue;
    }
    WriteKey(history, micro.key, out);
    absl::StrAppend(out, " ", micro.value);
  }
  out->push_back(is_map ? '}' : ']');
}

}  // namespace

std::string WriteEdn(const History& history) {
  static constexpr const char* kTypes[] = {":ok", ":fail", ":info"};
  static constexpr const char* kFunctions[] = {":txn", ":transfer", ":read"};
  std::string out;
  size_t index = 0;
  for (const Event& event : EventsByIndex(history)) {
    const Operation& op = history.operations[event.operation];
    absl::StrAppend(&out, "{:index ", index++, " :type ",
                    event.completion ? kTypes[static_cast<int>(op.outcome)] : ":invoke", " :process ",
                    op.process, " :f ", kFunctions[static_cast<int>(op.function)], " :value ");
    WriteValue(history, op, event.completion, &out);
    absl::StrAppend(&out, " :time ", event.time, "}\n");
  }
  return out;
}

absl::Status WriteHistoryFile(const History& history, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << WriteEdn(history);
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat(path, " cannot be written: ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace furrow::checker
