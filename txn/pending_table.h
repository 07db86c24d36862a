// PendingTable: what a participant keeps per transaction of one coordinator thread, by local id. Local ids
// grow by one, and truncation follows closely, so a table indexed by the low bits of the id finds an entry
// with one look, and what lies below a bound without looking at the rest. Owner thread only.
#ifndef FURROW_TXN_PENDING_TABLE_H_
#define FURROW_TXN_PENDING_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace furrow::txn {

// Local ids are above 0: nothing is ever found under 0, which may be asked for (peers' bytes name ids).
// References to values stay valid until the next Insert() or Erase().
template <class Value>
class PendingTable {
 public:
  // Two ids that share a place make the table grow to at most this many places; what still finds its place
  // taken goes into a hash map. That takes a transaction which stays pending (its outcome is unknown) while
  // 16,384 newer ones of its thread come.
  static constexpr size_t kMaxPlaces = 16384;

  size_t size() const { return size_ + crowded_.size(); }

  // Null: there is none.
  Value* Find(uint64_t local) {
    const size_t place = local & (ids_.size() - 1);
    if (ids_[place] == local) [[likely]]
      return local == kFree ? nullptr : &values_[place];
    if (crowded_.empty()) [[likely]]
      return nullptr;
    auto it = crowded_.find(local);
    return it == crowded_.end() ? nullptr : &it->second;
  }

  // The value of `local`, a fresh one if there is none.
  Value& Insert(uint64_t local) {
    FURROW_CHECK(local != kFree);
    if (Value* known = Find(local); known != nullptr) return *known;
    size_t place = local & (ids_.size() - 1);
    while (ids_[place] != kFree && ids_.size() < kMaxPlaces) {
      Grow();
      place = local & (ids_.size() - 1);
    }
    if (ids_[place] != kFree) return crowded_[local];
    ids_[place] = local;
    ++size_;
    return values_[place];
  }

  void Erase(uint64_t local) {
    if (local == kFree) return;
    const size_t place = local & (ids_.size() - 1);
    if (ids_[place] == local) {
      ids_[place] = kFree;
      values_[place] = Value();
      --size_;
    } else {
      crowded_.erase(local);
    }
  }

  // Appends the ids in [from, to) that are here, in ascending order. The cost is that of the range, or of the
  // whole table if that is smaller.
  void IdsBetween(uint64_t from, uint64_t to, std::vector<uint64_t>* out) const {
    if (size() == 0 || from >= to) return;
    const size_t first = out->size();
    if (to - from <= ids_.size()) {
      for (uint64_t local = from; local < to; ++local) {
        if (local != kFree && ids_[local & (ids_.size() - 1)] == local) out->push_back(local);
      }
      if (crowded_.empty()) return;
    } else {
      for (uint64_t local : ids_) {
        if (local != kFree && local >= from && local < to) out->push_back(local);
      }
    }
    for (const auto& [local, value] : crowded_) {
      if (local >= from && local < to) out->push_back(local);
    }
    std::sort(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
  }

 private:
  static constexpr uint64_t kFree = 0;
  static constexpr size_t kFirstPlaces = 64;

  void Grow() {
    std::vector<uint64_t> ids(2 * ids_.size(), kFree);
    std::vector<Value> values(ids.size());
    // No two share a place: they have had different ones by fewer bits.
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == kFree) continue;
      const size_t place = ids_[i] & (ids.size() - 1);
      ids[place] = ids_[i];
      values[place] = std::move(values_[i]);
    }
    ids_ = std::move(ids);
    values_ = std::move(values);
  }

  // The id at each place; apart from the values, so that a range of ids is a few lines.
  std::vector<uint64_t> ids_ = std::vector<uint64_t>(kFirstPlaces, kFree);
  std::vector<Value> values_ = std::vector<Value>(kFirstPlaces);
  size_t size_ = 0;
  absl::flat_hash_map<uint64_t, Value> crowded_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_PENDING_TABLE_H_
