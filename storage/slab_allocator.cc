#include "storage/slab_allocator.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "storage/object.h"
#include "storage/size_class.h"

namespace furrow::storage {

namespace {

// Free slots of a class below which a block is cut ahead: a batch, or a quarter of a block where that is
// less.
size_t LowMark(SizeClass size_class) {
  return std::clamp<size_t>(kBlockBytes / SlotBytes(size_class) / 4, 1, SlabAllocator::kLeaseBatch);
}

}  // namespace

SlabAllocator::SlabAllocator(Region& region) : region_(region) {
  MutexLock lock(&mutex_);
  blocks_.resize(region.blocks());
  classes_.resize(kSizeClasses);
  usage_.blocks = region.blocks() - 1;
  for (uint32_t b = 1; b < region.blocks(); ++b) {
    BlockHeader header = region.ReadBlock(b);
    blocks_[b].version = header.version;
    if (header.slot_bytes == 0) {
      free_blocks_.insert(b);
      ++usage_.free_blocks;
    } else {
      ScanSlab(b);
    }
  }
}

void SlabAllocator::ScanSlab(uint32_t block) {
  const uint32_t start = block * kBlockBytes;
  MakeSlab(block, *ClassForSlotBytes(region_.SlotBytesAt(start)));
  const Block& slab = blocks_[block];
  for (uint32_t slot = 0; slot < slab.slots; ++slot) {
    const uint32_t offset = start + slot * slab.slot_bytes;
    ObjectWord word = LoadWord(region_.base() + offset);
    if (word == ObjectWord()) continue;
    region_.NoteWrite(offset, word.timestamp());
    if (word.allocated()) Move(block, slot, kAllocated);
    blocks_[block].used = true;
  }
}

void SlabAllocator::MakeSlab(uint32_t block, SizeClass size_class) {
  Block& slab = blocks_[block];
  slab.state = BlockState::kSlab;
  slab.used = false;
  slab.size_class = size_class;
  slab.slot_bytes = static_cast<uint32_t>(SlotBytes(size_class));
  slab.slots = kBlockBytes / slab.slot_bytes;
  slab.free = slab.slots;
  slab.leased = 0;
  slab.states.assign(slab.slots, kFree);
  slab.free_slots = FreeBitmap(slab.slots);
  for (uint32_t slot = 0; slot < slab.slots; ++slot) slab.free_slots.Add(slot);
  classes_[size_class.value()].open.insert(block);
  classes_[size_class.value()].free_slots += slab.slots;
  empty_slabs_.insert(block);
  usage_.free_slots += slab.slots;
  usage_.free_slot_bytes += uint64_t{slab.slots} * slab.slot_bytes;
}

void SlabAllocator::Move(uint32_t block, uint32_t slot, SlotState to) {
  Block& slab = blocks_[block];
  Class& list = classes_[slab.size_class.value()];
  const SlotState from = slab.states[slot];
  FURROW_CHECK(from != to);
  const uint64_t bytes = slab.slot_bytes;
  if (from == kFree) {
    slab.free_slots.Remove(slot);
    if (slab.free == slab.slots) empty_slabs_.erase(block);
    if (--slab.free == 0) list.open.erase(block);
    --list.free_slots;
    --usage_.free_slots;
    usage_.free_slot_bytes -= bytes;
    slab.used = true;
  } else if (from == kAllocated) {
    --usage_.allocated_slots;
    usage_.allocated_bytes -= bytes;
  } else if (from >= kFirstHolder) {
    --slab.leased;
    --holders_[from - kFirstHolder].leases;
    --usage_.leased_slots;
    usage_.leased_bytes -= bytes;
  }
  if (to == kFree) {
    slab.free_slots.Add(slot);
    if (slab.free++ == 0) list.open.insert(block);
    if (slab.free == slab.slots) empty_slabs_.insert(block);
    ++list.free_slots;
    ++usage_.free_slots;
    usage_.free_slot_bytes += bytes;
  } else if (to == kAllocated) {
    ++usage_.allocated_slots;
    usage_.allocated_bytes += bytes;
  } else if (to >= kFirstHolder) {
    ++slab.leased;
    ++holders_[to - kFirstHolder].leases;
    ++usage_.leased_slots;
    usage_.leased_bytes += bytes;
  }
  slab.states[slot] = to;
}

uint32_t SlabAllocator::SlotOf(const Block& block, uint32_t offset) const {
  return offset % kBlockBytes / block.slot_bytes;
}

SlabAllocator::Block& SlabAllocator::SlabOf(Address address) {
  FURROW_CHECK(address.region() == region_.id());
  FURROW_CHECK(region_.SlotAt(address.offset()) != nullptr);
  Block& block = blocks_[address.offset() / kBlockBytes];
  FURROW_CHECK(block.state == BlockState::kSlab);
  return block;
}

SlabAllocator::SlotState SlabAllocator::HolderState(NodeId holder) {
  auto [it, added] = holder_states_.try_emplace(holder, SlotState{0});
  if (!added) return it->second;
  // A holder without leases makes room: nodes come and go, and ids are never reused.
  size_t index = 0;
  while (index < holders_.size() && holders_[index].leases != 0) ++index;
  if (index == holders_.size()) {
    FURROW_CHECK(kFirstHolder + index <= std::numeric_limits<SlotState>::max());
    holders_.push_back({holder, 0});
  } else {
    holder_states_.erase(holders_[index].node);
    holders_[index].node = holder;
  }
  const SlotState state = static_cast<SlotState>(kFirstHolder + index);
  holder_states_[holder] = state;
  return state;
}

size_t SlabAllocator::Lease(SizeClass size_class, size_t count, std::vector<SlotLease>* out, NodeId holder) {
  FURROW_CHECK(size_class.value() < kSizeClasses);
  MutexLock lock(&mutex_);
  Class& list = classes_[size_class.value()];
  if (list.open.empty() || count == 0) return 0;
  const SlotState state = HolderState(holder);
  const size_t first = out->size();
  size_t leased = 0;
  for (; leased < count && !list.open.empty(); ++leased) {
    const uint32_t block = *list.open.begin();
    const Block& slab = blocks_[block];
    const uint32_t slot = slab.free_slots.Lowest();
    const uint32_t offset = block * kBlockBytes + slot * slab.slot_bytes;
    __builtin_prefetch(region_.base() + offset);
    out->push_back({Address(region_.id(), offset), ObjectWord(), slab.slot_bytes});
    Move(block, slot, state);
  }
  for (size_t i = first; i < out->size(); ++i) {
    SlotLease& lease = (*out)[i];
    lease.expected = LoadWord(region_.base() + lease.address.offset()).WithLock(false);
  }
  return leased;
}

bool SlabAllocator::Unlease(const SlotLease& lease, NodeId holder) {
  if (lease.address.region() != region_.id()) return false;
  MutexLock lock(&mutex_);
  const std::byte* memory = region_.SlotAt(lease.address.offset());
  const uint32_t block = lease.address.offset() / kBlockBytes;
  auto it = holder_states_.find(holder);
  if (memory == nullptr || it == holder_states_.end() || blocks_[block].state != BlockState::kSlab)
    return false;
  const uint32_t slot = SlotOf(blocks_[block], lease.address.offset());
  if (blocks_[block].states[slot] != it->second) return false;
  // The slot may have been used and leased again since.
  if (LoadWord(memory).WithLock(false) != lease.expected) return false;
  Move(block, slot, kFree);
  return true;
}

size_t SlabAllocator::RevokeLeases(NodeId holder) {
  MutexLock lock(&mutex_);
  auto it = holder_states_.find(holder);
  if (it == holder_states_.end()) return 0;
  const SlotState state = it->second;
  const uint64_t leases = holders_[state - kFirstHolder].leases;
  for (uint32_t b = 1; b < blocks_.size() && holders_[state - kFirstHolder].leases != 0; ++b) {
    for (uint32_t slot = 0; slot < blocks_[b].slots && blocks_[b].leased != 0; ++slot) {
      if (blocks_[b].states[slot] == state) Move(b, slot, kFree);
    }
  }
  FURROW_CHECK(holders_[state - kFirstHolder].leases == 0);
  return leases;
}

std::optional<BlockCut> SlabAllocator::BeginCut(SizeClass size_class, bool* under_way) {
  FURROW_CHECK(size_class.value() < kSizeClasses);
  MutexLock lock(&mutex_);
  Class& list = classes_[size_class.value()];
  *under_way = list.cutting;
  if (list.cutting || free_blocks_.empty()) return std::nullopt;
  const uint32_t index = *free_blocks_.begin();
  free_blocks_.erase(free_blocks_.begin());
  Block& block = blocks_[index];
  block.state = BlockState::kCutting;
  block.size_class = size_class;
  block.slot_bytes = static_cast<uint32_t>(SlotBytes(size_class));
  block.version = std::max(block.version, region_.NewestWrite(index).value()) + 1;
  list.cutting = true;
  --usage_.free_blocks;
  ++usage_.cutting_blocks;
  return BlockCut{region_.id(), index, block.slot_bytes, block.version};
}

void SlabAllocator::BlockReady(const BlockCut& cut) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(cut.region == region_.id() && cut.block < blocks_.size());
  Block& block = blocks_[cut.block];
  FURROW_CHECK(block.state == BlockState::kCutting && block.version == cut.version);
  FURROW_CHECK(region_.ReadBlock(cut.block).version == cut.version);
  classes_[block.size_class.value()].cutting = false;
  --usage_.cutting_blocks;
  MakeSlab(cut.block, block.size_class);
}

void SlabAllocator::BlockFailed(const BlockCut& cut) {
  MutexLock lock(&mutex_);
  FURROW_CHECK(cut.region == region_.id() && cut.block < blocks_.size());
  Block& block = blocks_[cut.block];
  FURROW_CHECK(block.state == BlockState::kCutting && block.version == cut.version);
  FURROW_CHECK(region_.ReadBlock(cut.block).version < cut.version);
  classes_[block.size_class.value()].cutting = false;
  block.state = BlockState::kFree;
  block.slots = 0;
  free_blocks_.insert(cut.block);
  --usage_.cutting_blocks;
  ++usage_.free_blocks;
}

bool SlabAllocator::WantsBlock(SizeClass size_class) const {
  FURROW_CHECK(size_class.value() < kSizeClasses);
  MutexLock lock(&mutex_);
  const Class& list = classes_[size_class.value()];
  return list.free_slots < LowMark(size_class) && !list.cutting && !free_blocks_.empty();
}

void SlabAllocator::OnAllocated(Address address, Timestamp write) {
  region_.NoteWrite(address.offset(), write);
  MutexLock lock(&mutex_);
  Block& slab = SlabOf(address);
  const uint32_t slot = SlotOf(slab, address.offset());
  FURROW_CHECK(slab.states[slot] != kAllocated);
  // Free is possible, too: the lease was returned while the transaction that used it was still open.
  Move(address.offset() / kBlockBytes, slot, slab.states[slot] == kFreedEarly ? kFree : kAllocated);
}

void SlabAllocator::OnFreed(Address address, ObjectWord tombstone) {
  FURROW_CHECK(!tombstone.allocated());
  region_.NoteWrite(address.offset(), tombstone.timestamp());
  MutexLock lock(&mutex_);
  Block& slab = SlabOf(address);
  const uint32_t slot = SlotOf(slab, address.offset());
  const SlotState state = slab.states[slot];
  FURROW_CHECK(state == kAllocated || state >= kFirstHolder);
  Move(address.offset() / kBlockBytes, slot, state == kAllocated ? kFree : kFreedEarly);
}

size_t SlabAllocator::Reclaim(Timestamp safe_point) {
  MutexLock lock(&mutex_);
  size_t reclaimed = 0;
  for (auto it = empty_slabs_.begin(); it != empty_slabs_.end();) {
    const uint32_t index = *it;
    Block& slab = blocks_[index];
    const bool wanted = slab.used || free_blocks_.empty();
    if (!wanted || region_.NewestWrite(index) >= safe_point || !region_.CloseBlock(index)) {
      ++it;
      continue;
    }
    it = empty_slabs_.erase(it);
    Class& list = classes_[slab.size_class.value()];
    list.open.erase(index);
    list.free_slots -= slab.slots;
    usage_.free_slots -= slab.slots;
    usage_.free_slot_bytes -= uint64_t{slab.slots} * slab.slot_bytes;
    const uint64_t version = slab.version;
    slab = Block();
    slab.version = version;
    free_blocks_.insert(index);
    ++usage_.free_blocks;
    ++reclaimed;
  }
  return reclaimed;
}

SlabAllocator::Usage SlabAllocator::usage() const {
  MutexLock lock(&mutex_);
  return usage_;
}

}  // namespace furrow::storage
