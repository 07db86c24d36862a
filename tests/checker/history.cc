#include "tests/checker/history.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace furrow::checker {

Key History::NamedKey(std::string_view name) {
  auto [it, is_new] = name_keys_.try_emplace(std::string(name), -static_cast<Key>(names_.size()) - 1);
  if (is_new) names_.emplace_back(name);
  return it->second;
}

std::string History::KeyName(Key key) const {
  if (key >= 0) return absl::StrCat(key);
  const size_t i = static_cast<size_t>(-(key + 1));
  return i < names_.size() ? names_[i] : absl::StrCat("key", key);
}

void History::Add(const History& other) {
  const size_t first_op = micro_ops.size();
  const size_t first_element = elements.size();
  for (Operation op : other.operations) {
    op.ops_begin += first_op;
    operations.push_back(op);
  }
  for (MicroOp op : other.micro_ops) {
    if (op.key < 0) op.key = NamedKey(other.KeyName(op.key));
    op.list_begin += first_element;
    micro_ops.push_back(op);
  }
  elements.insert(elements.end(), other.elements.begin(), other.elements.end());
}

void History::Number() {
  std::stable_sort(operations.begin(), operations.end(),
                   [](const Operation& a, const Operation& b) { return a.invoke_ns < b.invoke_ns; });
  struct Placed {
    Event event;
    bool late = false;  // in the second half of its instant
  };
  std::vector<Placed> placed;
  placed.reserve(operations.size() * 2);
  absl::flat_hash_map<uint32_t, Nanos> last_completion;
  for (uint32_t i = 0; i < operations.size(); ++i) {
    const Operation& op = operations[i];
    auto [it, is_new] = last_completion.try_emplace(op.process, kNever);
    placed.push_back({{op.invoke_ns, i, false}, it->second == op.invoke_ns});
    if (op.complete_ns != kNever) placed.push_back({{op.complete_ns, i, true}, true});
    it->second = op.complete_ns;
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.event.time, a.late, a.event.operation, a.event.completion) <
           std::tie(b.event.time, b.late, b.event.operation, b.event.completion);
  });
  for (uint32_t index = 0; index < placed.size(); ++index) {
    Operation& op = operations[placed[index].event.operation];
    (placed[index].event.completion ? op.complete_index : op.invoke_index) = index;
  }
}

std::vector<Event> EventsByIndex(const History& history) {
  std::vector<Event> events;
  events.reserve(history.operations.size() * 2);
  for (uint32_t i = 0; i < history.operations.size(); ++i) {
    const Operation& op = history.operations[i];
    events.push_back({op.invoke_ns, i, false});
    if (op.complete_ns != kNever) events.push_back({op.complete_ns, i, true});
  }
  std::sort(events.begin(), events.end(), [&](const Event& a, const Event& b) {
    const Operation& x = history.operations[a.operation];
    const Operation& y = history.operations[b.operation];
    return (a.completion ? x.complete_index : x.invoke_index) <
           (b.completion ? y.complete_index : y.invoke_index);
  });
  return events;
}

}  // namespace furrow::checker
