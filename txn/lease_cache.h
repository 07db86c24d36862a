// LeaseCache: slots that this worker may allocate from, by locality group and size class. Owner thread only.
#ifndef FURROW_TXN_LEASE_CACHE_H_
#define FURROW_TXN_LEASE_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "storage/slab_allocator.h"

namespace furrow::txn {

class LeaseCache {
 public:
  static uint64_t Key(RegionId locality, storage::SizeClass size_class) {
    return uint64_t{locality.value()} << 8 | size_class.value();
  }
  // Null pointer: none left.
  bool Take(RegionId locality, storage::SizeClass size_class, storage::SlotLease* lease) {
    auto it = slots_.find(Key(locality, size_class));
    if (it == slots_.end() || it->second.empty()) return false;
    *lease = it->second.back();
    it->second.pop_back();
    return true;
  }
  std::vector<storage::SlotLease>& Slots(RegionId locality, storage::SizeClass size_class) {
    return slots_[Key(locality, size_class)];
  }
  void Give(RegionId locality, storage::SizeClass size_class, const storage::SlotLease& lease) {
    slots_[Key(locality, size_class)].push_back(lease);
  }
  // Empties the cache into `out`, by address: in the same order in every run of a simulation.
  void TakeAll(std::vector<storage::SlotLease>* out) {
    for (auto& [key, slots] : slots_) out->insert(out->end(), slots.begin(), slots.end());
    slots_.clear();
    std::sort(out->begin(), out->end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  }

 private:
  absl::flat_hash_map<uint64_t, std::vector<storage::SlotLease>> slots_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_LEASE_CACHE_H_
