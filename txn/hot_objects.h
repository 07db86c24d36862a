// HotObjects: the objects on which transactions collide most, by the space-saving algorithm (Metwally et al.,
// 2005): at most kMaxTracked are counted; a new one takes the place, and the count, of the least. A count is
// too high by at most the count that was taken over. Owner thread only.
#ifndef FURROW_TXN_HOT_OBJECTS_H_
#define FURROW_TXN_HOT_OBJECTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "txn/result.h"

namespace furrow::txn {

class HotObjects {
 public:
  static constexpr size_t kMaxTracked = 64;
  struct Entry {
    Address address;
    uint64_t count = 0;
    AbortReason last_reason = AbortReason::kNone;
    std::string name;  // empty until a conflict has told it
  };

  void Count(const Conflict& conflict) {
    if (conflict.address.is_null()) return;
    Entry* least = nullptr;
    for (Entry& entry : entries_) {
      if (entry.address == conflict.address) return Add(entry, conflict);
      if (least == nullptr || entry.count < least->count) least = &entry;
    }
    if (entries_.size() < kMaxTracked) {
      least = &entries_.emplace_back();
    }
    least->address = conflict.address;
    least->name.clear();
    Add(*least, conflict);
  }
  // Most conflicts first.
  std::vector<Entry> Top(size_t n) const {
    std::vector<Entry> top = entries_;
    std::sort(top.begin(), top.end(), [](const Entry& a, const Entry& b) { return a.count > b.count; });
    if (top.size() > n) top.resize(n);
    return top;
  }

 private:
  static void Add(Entry& entry, const Conflict& conflict) {
    ++entry.count;
    entry.last_reason = conflict.reason;
    if (!conflict.object.empty()) entry.name = conflict.object;
  }
  std::vector<Entry> entries_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_HOT_OBJECTS_H_
