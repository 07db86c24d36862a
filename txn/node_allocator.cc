#include "txn/node_allocator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace furrow::txn {
namespace {

constexpr Nanos kShortestRefusalNs = 1 * kSecond;
constexpr Nanos kLongestRefusalNs = 64 * kSecond;

}  // namespace

void NodeAllocator::AddRegion(storage::Region& region, RegionId locality) {
  MutexLock lock(&mutex_);
  std::unique_ptr<storage::SlabAllocator>& slab = slabs_[region.id()];
  if (slab != nullptr) return;
  slab = std::make_unique<storage::SlabAllocator>(region);
  region.set_serving(true);
  Group& group = groups_[locality];
  group.slabs.push_back(slab.get());
  group.regions.push_back(region.id());
}

std::vector<storage::SlabAllocator*> NodeAllocator::Slabs(RegionId locality) const {
  MutexLock lock(&mutex_);
  auto it = groups_.find(locality);
  return it == groups_.end() ? std::vector<storage::SlabAllocator*>() : it->second.slabs;
}

size_t NodeAllocator::Lease(RegionId locality, storage::SizeClass size_class, size_t count, NodeId holder,
                            std::vector<storage::SlotLease>* out) {
  size_t leased = 0;
  for (storage::SlabAllocator* slab : Slabs(locality)) {
    if (leased == count) break;
    leased += slab->Lease(size_class, count - leased, out, holder);
  }
  return leased;
}

void NodeAllocator::Unlease(const storage::SlotLease& lease, NodeId holder) {
  if (storage::SlabAllocator* slab = Find(lease.address.region()); slab != nullptr)
    slab->Unlease(lease, holder);
}

size_t NodeAllocator::RevokeLeases(NodeId holder) {
  MutexLock lock(&mutex_);
  size_t revoked = 0;
  for (auto& [id, slab] : slabs_) revoked += slab->RevokeLeases(holder);
  return revoked;
}

std::optional<storage::BlockCut> NodeAllocator::BeginCut(RegionId locality, storage::SizeClass size_class,
                                                         bool* under_way) {
  bool any = false;
  std::optional<storage::BlockCut> cut;
  for (storage::SlabAllocator* slab : Slabs(locality)) {
    bool here = false;
    cut = slab->BeginCut(size_class, &here);
    if (cut.has_value()) break;
    any = any || here;
  }
  *under_way = any;
  return cut;
}

bool NodeAllocator::WantsBlock(RegionId locality, storage::SizeClass size_class) const {
  // The newest region that can still be cut decides; a full one never wants a block.
  for (storage::SlabAllocator* slab : Slabs(locality)) {
    if (slab->WantsBlock(size_class)) return true;
  }
  return false;
}

void NodeAllocator::BlockReady(const storage::BlockCut& cut) {
  storage::SlabAllocator* slab = Find(cut.region);
  FURROW_CHECK(slab != nullptr);
  slab->BlockReady(cut);
}

void NodeAllocator::BlockFailed(const storage::BlockCut& cut) {
  storage::SlabAllocator* slab = Find(cut.region);
  FURROW_CHECK(slab != nullptr);
  slab->BlockFailed(cut);
}

RegionId NodeAllocator::NewestRegion(RegionId locality) const {
  MutexLock lock(&mutex_);
  auto it = groups_.find(locality);
  return it == groups_.end() ? RegionId() : it->second.regions.back();
}

bool NodeAllocator::IsLow(const Group& group, uint64_t* free_blocks) {
  *free_blocks = 0;
  for (const storage::SlabAllocator* slab : group.slabs) *free_blocks += slab->usage().free_blocks;
  return *free_blocks < std::max<uint64_t>(1, group.slabs.back()->usage().blocks / 4);
}

bool NodeAllocator::RunsLow(RegionId locality) const {
  MutexLock lock(&mutex_);
  auto it = groups_.find(locality);
  uint64_t free_blocks = 0;
  return it != groups_.end() && IsLow(it->second, &free_blocks);
}

std::optional<NodeAllocator::Growth> NodeAllocator::BeginGrowth(Nanos now) {
  MutexLock lock(&mutex_);
  if (growing_) return std::nullopt;
  std::optional<Growth> lowest;
  uint64_t fewest = 0;
  for (const auto& [locality, group] : groups_) {
    uint64_t free_blocks = 0;
    if (now < group.refused_until || !IsLow(group, &free_blocks)) continue;
    if (lowest.has_value() && std::pair(fewest, lowest->locality) < std::pair(free_blocks, locality))
      continue;
    lowest = Growth{locality, group.regions.back()};
    fewest = free_blocks;
  }
  growing_ = lowest.has_value();
  return lowest;
}

void NodeAllocator::EndGrowth(const Growth& growth, bool grown, Nanos now) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(growing_);
  growing_ = false;
  Group& group = groups_[growth.locality];
  group.refused_for = grown ? 0 : std::clamp(2 * group.refused_for, kShortestRefusalNs, kLongestRefusalNs);
  group.refused_until = now + group.refused_for;
}

storage::SlabAllocator* NodeAllocator::Find(RegionId region) const {
  MutexLock lock(&mutex_);
  auto it = slabs_.find(region);
  return it == slabs_.end() ? nullptr : it->second.get();
}

size_t NodeAllocator::Reclaim(Timestamp safe_point) {
  std::vector<storage::SlabAllocator*> all;
  {
    MutexLock lock(&mutex_);
    for (auto& [id, slab] : slabs_) all.push_back(slab.get());
  }
  size_t freed = 0;
  for (storage::SlabAllocator* slab : all) freed += slab->Reclaim(safe_point);
  return freed;
}

storage::SlabAllocator::Usage NodeAllocator::usage() const {
  storage::SlabAllocator::Usage sum;
  MutexLock lock(&mutex_);
  for (auto& [id, slab] : slabs_) {
    storage::SlabAllocator::Usage u = slab->usage();
    sum.blocks += u.blocks;
    sum.free_blocks += u.free_blocks;
    sum.cutting_blocks += u.cutting_blocks;
    sum.allocated_slots += u.allocated_slots;
    sum.allocated_bytes += u.allocated_bytes;
    sum.leased_slots += u.leased_slots;
    sum.leased_bytes += u.leased_bytes;
    sum.free_slots += u.free_slots;
    sum.free_slot_bytes += u.free_slot_bytes;
  }
  return sum;
}

}  // namespace furrow::txn
