// Random sequences of every operation of the allocator against a model that knows the state of each slot.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "base/random.h"
#include "storage/object.h"
#include "storage/size_class.h"
#include "storage/slab_allocator.h"

namespace furrow::storage {
namespace {

constexpr size_t kBlocks = 6;
#if defined(__SANITIZE_THREAD__) || (defined(__has_feature) && __has_feature(thread_sanitizer))
constexpr uint64_t kSeeds = 1;
#else
constexpr uint64_t kSeeds = 10;
#endif
constexpr size_t kSizes[] = {8192, 65536, 262144, 1048576};

class Model {
 public:
  explicit Model(uint64_t seed)
      : random_(seed),
        memory_(MemoryFile::Anonymous(kBlocks * kBlockBytes).value()),
        region_(Region::Create(MemoryFile::MapDescriptor(memory_.fd(), memory_.size(), true).value(),
                               RegionId(1), ConfigId(1), 7)
                    .value()),
        slabs_(std::make_unique<SlabAllocator>(*region_)) {}

  void Step() {
    switch (random_.Below(12)) {
      case 0:
      case 1:
      case 2:
        return LeaseSome();
      case 3:
        return UnleaseOne();
      case 4:
      case 5:
      case 6:
        return AllocateOne();
      case 7:
      case 8:
        return FreeOne();
      case 9:
        return random_.OneIn(2) ? BeginCut() : EndCut();
      case 10:
        return Reclaim();
      case 11:
        return random_.OneIn(20) ? Restart() : Revoke();
    }
  }

  // The allocator's account is the model's, and together the slots are all there.
  void Check() {
    SlabAllocator::Usage usage = slabs_->usage();
    ASSERT_EQ(usage.leased_slots, leased_.size());
    ASSERT_EQ(usage.allocated_slots, allocated_.size());
    uint64_t bytes = usage.allocated_bytes + usage.leased_bytes + usage.free_slot_bytes;
    uint64_t blocks = kBlocks - 1 - usage.free_blocks - usage.cutting_blocks;
    ASSERT_EQ(bytes, blocks * kBlockBytes);  // the sizes divide a block
    ASSERT_EQ(usage.cutting_blocks, cuts_.size());
  }

  // Frees everything: all memory is there again, for the largest size.
  void Drain() {
    while (!cuts_.empty()) EndCut();
    while (!leased_.empty()) UnleaseOne();
    while (!allocated_.empty()) FreeOne();
    size_t large = 0;
    for (bool more = true; more;) {
      slabs_->Reclaim(Timestamp(++now_));
      bool under_way;
      std::optional<BlockCut> cut = slabs_->BeginCut(*ClassForSlotBytes(kMaxSlotBytes), &under_way);
      more = cut.has_value();
      if (more) {
        ASSERT_TRUE(region_->CutBlock(cut->block, cut->slot_bytes, cut->version).ok());
        slabs_->BlockReady(*cut);
      }
      std::vector<SlotLease> got;
      large += slabs_->Lease(*ClassForSlotBytes(kMaxSlotBytes), kBlocks, &got);
    }
    ASSERT_EQ(large, kBlocks - 1);
  }

 private:
  struct Held {
    SlotLease lease;
    NodeId holder;
  };

  SizeClass AnyClass() { return *ClassForSlotBytes(kSizes[random_.Below(std::size(kSizes))]); }
  template <class Map>
  typename Map::iterator Any(Map& map) {
    return std::next(map.begin(), static_cast<long>(random_.Below(map.size())));
  }
  void Install(Address address, bool allocated) {
    std::byte* slot = region_->SlotAt(address.offset());
    ASSERT_NE(slot, nullptr);
    ASSERT_TRUE(TryLock(slot, LoadWord(slot)));
    storage::Install(slot, kLineBytes, {},  // the header is what counts

                     ObjectWord(Timestamp(++now_), allocated, false), OldVersionPointer());
  }

  void LeaseSome() {
    SizeClass size_class = AnyClass();
    NodeId holder(static_cast<uint32_t>(random_.Below(3)));
    std::vector<SlotLease> got;
    size_t count = slabs_->Lease(size_class, random_.Below(6), &got, holder);
    ASSERT_EQ(count, got.size());
    for (const SlotLease& lease : got) {
      ASSERT_EQ(lease.slot_bytes, SlotBytes(size_class));
      ASSERT_EQ(region_->SlotBytesAt(lease.address.offset()), lease.slot_bytes);
      ASSERT_EQ(LoadWord(region_->SlotAt(lease.address.offset())), lease.expected);
      ASSERT_FALSE(lease.expected.allocated());
      ASSERT_FALSE(allocated_.contains(lease.address));
      ASSERT_TRUE(leased_.emplace(lease.address, Held{lease, holder}).second);
    }
  }
  void UnleaseOne() {
    if (leased_.empty()) return;
    auto it = Any(leased_);
    ASSERT_TRUE(slabs_->Unlease(it->second.lease, it->second.holder));
    ASSERT_FALSE(slabs_->Unlease(it->second.lease, it->second.holder));
    leased_.erase(it);
  }
  void AllocateOne() {
    if (leased_.empty()) return;
    auto it = Any(leased_);
    ASSERT_TRUE(slabs_->AddWriter(it->first));
    Install(it->first, true);
    slabs_->OnAllocated(it->first, Timestamp(now_));
    slabs_->RemoveWriter(it->first);
    allocated_[it->first] = now_;
    leased_.erase(it);
  }
  void FreeOne() {
    if (allocated_.empty()) return;
    auto it = Any(allocated_);
    ASSERT_TRUE(slabs_->AddWriter(it->first));
    Install(it->first, false);
    slabs_->OnFreed(it->first, ObjectWord(Timestamp(now_), false, false));
    slabs_->RemoveWriter(it->first);
    allocated_.erase(it);
  }
  void BeginCut() {
    bool under_way;
    if (auto cut = slabs_->BeginCut(AnyClass(), &under_way)) cuts_.push_back(*cut);
  }
  void EndCut() {
    if (cuts_.empty()) return;
    size_t i = random_.Below(cuts_.size());
    BlockCut cut = cuts_[i];
    cuts_.erase(cuts_.begin() + static_cast<long>(i));
    if (random_.OneIn(4)) return slabs_->BlockFailed(cut);
    ASSERT_TRUE(region_->CutBlock(cut.block, cut.slot_bytes, cut.version).ok());
    slabs_->BlockReady(cut);
  }
  void Reclaim() {
    uint32_t before = slabs_->usage().free_blocks;
    size_t reclaimed = slabs_->Reclaim(Timestamp(random_.OneIn(3) ? now_ / 2 : now_ + 1));
    ASSERT_EQ(slabs_->usage().free_blocks, before + reclaimed);
    for (const auto& [address, held] : leased_) ASSERT_TRUE(slabs_->AddWriter(address)) << ToString(address);
    for (const auto& [address, held] : leased_) slabs_->RemoveWriter(address);
  }
  void Revoke() {
    NodeId holder(static_cast<uint32_t>(random_.Below(3)));
    size_t expected = std::erase_if(leased_, [&](const auto& e) { return e.second.holder == holder; });
    ASSERT_EQ(slabs_->RevokeLeases(holder), expected);
  }
  void Restart() {
    while (!cuts_.empty()) EndCut();
    leased_.clear();
    slabs_.reset();
    // Closed blocks were free, their headers say slab: a restart takes them as emptied slabs, open again.
    int fd = memory_.fd();
    region_ =
        Region::Attach(MemoryFile::MapDescriptor(fd, memory_.size(), true).value(), RegionId(1), 7).value();
    slabs_ = std::make_unique<SlabAllocator>(*region_);
  }

  Random random_;
  uint64_t now_ = 0;
  MemoryFile memory_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<SlabAllocator> slabs_;
  std::map<Address, Held> leased_;
  std::map<Address, uint64_t> allocated_;
  std::vector<BlockCut> cuts_;
};

TEST(SlabAllocatorPropertyTest, RandomSequencesAgreeWithTheModel) {
  const char* given = std::getenv("FURROW_SEED");
  const uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 0) : 1;
  for (uint64_t seed = first; seed < first + (given != nullptr ? 1 : kSeeds); ++seed) {
    SCOPED_TRACE("run again with FURROW_SEED=" + std::to_string(seed));
    Model model(seed);
    for (int step = 0; step < 1500; ++step) {
      ASSERT_NO_FATAL_FAILURE(model.Step()) << "step " << step;
      ASSERT_NO_FATAL_FAILURE(model.Check()) << "step " << step;
    }
    ASSERT_NO_FATAL_FAILURE(model.Drain());
  }
}

}  // namespace
}  // namespace furrow::storage
