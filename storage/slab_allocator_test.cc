#include "storage/slab_allocator.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "base/memory_file.h"
#include "base/thread.h"
#include "storage/object.h"
#include "storage/size_class.h"

namespace furrow::storage {
namespace {

constexpr NodeId kPeer(4);

class SlabAllocatorTest : public ::testing::Test {
 protected:
  explicit SlabAllocatorTest(size_t blocks = 4)
      : region_(
            Region::Create(MemoryFile::Anonymous(blocks * kBlockBytes).value(), RegionId(1), ConfigId(1), 7)
                .value()),
        slabs_(*region_) {}

  static SizeClass ClassOf(size_t slot_bytes) { return *ClassForSlotBytes(slot_bytes); }

  bool Cut(size_t slot_bytes) {
    bool under_way;
    auto cut = slabs_.BeginCut(ClassOf(slot_bytes), &under_way);
    if (!cut) return false;
    EXPECT_TRUE(region_->CutBlock(cut->block, cut->slot_bytes, cut->version).ok());
    slabs_.BlockReady(*cut);
    return true;
  }
  std::vector<SlotLease> Lease(size_t slot_bytes, size_t count, NodeId holder = NodeId()) {
    std::vector<SlotLease> leases;
    EXPECT_EQ(slabs_.Lease(ClassOf(slot_bytes), count, &leases, holder), leases.size());
    return leases;
  }
  void Install(Address address, ObjectWord word) {
    std::byte* slot = region_->SlotAt(address.offset());
    ASSERT_NE(slot, nullptr);
    ASSERT_TRUE(TryLock(slot, LoadWord(slot)));
    storage::Install(slot, region_->SlotBytesAt(address.offset()), {}, word, OldVersionPointer());
  }
  void Allocate(const SlotLease& lease, uint64_t ts) {
    Install(lease.address, ObjectWord(Timestamp(ts), true, false));
    slabs_.OnAllocated(lease.address, Timestamp(ts));
  }
  void Free(Address address, uint64_t ts) {
    ObjectWord tombstone(Timestamp(ts), false, false);
    Install(address, tombstone);
    slabs_.OnFreed(address, tombstone);
  }

  std::unique_ptr<Region> region_;
  SlabAllocator slabs_;
};

TEST_F(SlabAllocatorTest, NothingIsLeasedBeforeTheBlockIsReady) {
  EXPECT_TRUE(Lease(128, 1).empty());
  EXPECT_TRUE(slabs_.WantsBlock(ClassOf(128)));
  bool under_way = false;
  auto cut = slabs_.BeginCut(ClassOf(128), &under_way);
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->slot_bytes, 128u);
  EXPECT_EQ(cut->version, 1u);
  EXPECT_TRUE(Lease(128, 1).empty());
  EXPECT_FALSE(slabs_.WantsBlock(ClassOf(128)));
  EXPECT_FALSE(slabs_.BeginCut(ClassOf(128), &under_way).has_value());
  EXPECT_TRUE(under_way);
  ASSERT_TRUE(region_->CutBlock(cut->block, cut->slot_bytes, cut->version).ok());
  slabs_.BlockReady(*cut);
  EXPECT_EQ(Lease(128, 3).size(), 3u);
  EXPECT_FALSE(slabs_.WantsBlock(ClassOf(128)));
}

TEST_F(SlabAllocatorTest, ARefusedCutIsTriedAgainWithAHigherVersion) {
  bool under_way;
  auto cut = slabs_.BeginCut(ClassOf(128), &under_way);
  slabs_.BlockFailed(*cut);
  EXPECT_EQ(slabs_.usage().free_blocks, 3u);
  auto again = slabs_.BeginCut(ClassOf(256), &under_way);
  EXPECT_EQ(again->block, cut->block);
  EXPECT_GT(again->version, cut->version);
}

TEST_F(SlabAllocatorTest, AFullRegionHasNoBlockAndNoCutUnderWay) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Cut(kMaxSlotBytes));
  bool under_way = true;
  EXPECT_FALSE(slabs_.BeginCut(ClassOf(64), &under_way).has_value());
  EXPECT_FALSE(under_way);
  EXPECT_FALSE(slabs_.WantsBlock(ClassOf(64)));
}

TEST_F(SlabAllocatorTest, DeletedMemoryServesOtherSizesOnceTheSafePointHasPassed) {
  std::vector<SlotLease> all;
  while (Cut(1024)) {
    for (const SlotLease& lease : Lease(1024, 1 << 20)) all.push_back(lease);
  }
  EXPECT_EQ(all.size(), 3u * 1024);
  for (const SlotLease& lease : all) Allocate(lease, 10);
  EXPECT_TRUE(Lease(1024, 1).empty());
  EXPECT_FALSE(Cut(64));
  for (const SlotLease& lease : all) Free(lease.address, 20);
  EXPECT_EQ(Lease(1024, 1).size(), 1u);  // its own class at once
  EXPECT_FALSE(Cut(64));

  EXPECT_EQ(slabs_.Reclaim(Timestamp(20)), 0u);  // a snapshot at 20 may still look at the tombstones
  EXPECT_EQ(slabs_.Reclaim(Timestamp(21)), 2u);  // one block holds the lease
  EXPECT_TRUE(Cut(64));
  EXPECT_EQ(Lease(64, 1 << 20).size(), kBlockBytes / 64);
}

TEST_F(SlabAllocatorTest, AWaitingWriterKeepsItsBlockAndAFreeBlockTakesNone) {
  Cut(128);
  SlotLease lease = Lease(128, 1)[0];
  ASSERT_TRUE(slabs_.AddWriter(lease.address));
  Allocate(lease, 10);
  Free(lease.address, 11);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(100)), 0u);
  slabs_.RemoveWriter(lease.address);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(100)), 1u);
  EXPECT_FALSE(slabs_.AddWriter(lease.address));
}

TEST_F(SlabAllocatorTest, AReusedBlockGetsAVersionAboveAllItsWrites) {
  Cut(128);
  std::vector<SlotLease> leases = Lease(128, 2);
  for (const SlotLease& lease : leases) Allocate(lease, 10);
  Free(leases[0].address, 50);
  Free(leases[1].address, 40);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(50)), 0u);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(51)), 1u);
  bool under_way;
  auto cut = slabs_.BeginCut(ClassOf(256), &under_way);
  EXPECT_EQ(cut->block, 1u);
  EXPECT_EQ(cut->version, 51u);
}

TEST_F(SlabAllocatorTest, ABlockCutAheadStaysUntilTheRegionIsFull) {
  Cut(128);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(100)), 0u);
  Cut(64);
  Cut(64);
  EXPECT_EQ(slabs_.Reclaim(Timestamp(100)), 1u);
  EXPECT_TRUE(Cut(256));
}

TEST_F(SlabAllocatorTest, ALeaseNamesTheTombstoneThatItsLockMustFind) {
  Cut(64);
  SlotLease first = Lease(64, 1)[0];
  EXPECT_EQ(first.expected, ObjectWord());
  Allocate(first, 10);
  Free(first.address, 20);
  SlotLease second = Lease(64, 1)[0];
  EXPECT_EQ(second.address, first.address);
  EXPECT_EQ(second.expected, ObjectWord(Timestamp(20), false, false));
}

TEST_F(SlabAllocatorTest, OnlyTheHolderReturnsALeaseAndOnlyOnce) {
  Cut(64);
  SlotLease lease = Lease(64, 1, kPeer)[0];
  EXPECT_FALSE(slabs_.Unlease(lease));
  EXPECT_FALSE(slabs_.Unlease(lease, NodeId(9)));
  SlotLease forged = lease;
  forged.address = Address(RegionId(1), lease.address.offset() + 8);
  EXPECT_FALSE(slabs_.Unlease(forged, kPeer));
  forged.address = Address(RegionId(2), lease.address.offset());
  EXPECT_FALSE(slabs_.Unlease(forged, kPeer));
  forged.address = Address(RegionId(1), 0xffffffc0);
  EXPECT_FALSE(slabs_.Unlease(forged, kPeer));
  EXPECT_TRUE(slabs_.Unlease(lease, kPeer));
  EXPECT_FALSE(slabs_.Unlease(lease, kPeer));
  EXPECT_EQ(slabs_.usage().leased_slots, 0u);
}

TEST_F(SlabAllocatorTest, AUsedLeaseCannotBeReturnedNorALaterLeaseOfItsSlot) {
  Cut(64);
  SlotLease lease = Lease(64, 1, kPeer)[0];
  Allocate(lease, 10);
  EXPECT_FALSE(slabs_.Unlease(lease, kPeer));
  Free(lease.address, 20);
  SlotLease again = Lease(64, 1, kPeer)[0];
  ASSERT_EQ(again.address, lease.address);
  EXPECT_FALSE(slabs_.Unlease(lease, kPeer));
  EXPECT_TRUE(slabs_.Unlease(again, kPeer));
}

TEST_F(SlabAllocatorTest, RevokeTakesBackWhatTheHolderHasLeft) {
  Cut(64);
  Cut(512);
  auto mine = Lease(64, 10);
  auto theirs = Lease(64, 10, kPeer);
  auto large = Lease(512, 5, kPeer);
  Allocate(theirs[3], 10);
  EXPECT_EQ(slabs_.RevokeLeases(kPeer), 14u);
  EXPECT_EQ(slabs_.RevokeLeases(kPeer), 0u);
  EXPECT_EQ(slabs_.RevokeLeases(NodeId(77)), 0u);
  SlabAllocator::Usage usage = slabs_.usage();
  EXPECT_EQ(usage.leased_slots, 10u);
  EXPECT_EQ(usage.allocated_slots, 1u);
  // The slot of a revoked lease is handed out again; its first holder's late allocation stands all the same.
  Allocate(large[0], 20);
  EXPECT_EQ(slabs_.usage().allocated_slots, 2u);
}

TEST_F(SlabAllocatorTest, HoldersComeAndGoWithoutEnd) {
  Cut(64);
  for (uint32_t node = 1; node < 70'000; ++node) {
    auto lease = Lease(64, 1, NodeId(node));
    ASSERT_EQ(lease.size(), 1u);
    ASSERT_TRUE(slabs_.Unlease(lease[0], NodeId(node)));
  }
}

TEST_F(SlabAllocatorTest, AFreeMayOvertakeItsAllocation) {
  Cut(64);
  SlotLease lease = Lease(64, 1)[0];
  Install(lease.address, ObjectWord(Timestamp(10), true, false));
  Free(lease.address, 20);
  EXPECT_EQ(slabs_.usage().allocated_slots, 0u);
  EXPECT_NE(Lease(64, 1)[0].address, lease.address);  // not before the allocation is known
  slabs_.OnAllocated(lease.address, Timestamp(10));
  EXPECT_EQ(slabs_.usage().allocated_slots, 0u);
  EXPECT_EQ(Lease(64, 1)[0].address, lease.address);
}

TEST_F(SlabAllocatorTest, UsageIsExact) {
  Cut(384);
  auto leases = Lease(384, 4);
  Allocate(leases[0], 10);
  Allocate(leases[1], 10);
  Free(leases[0].address, 20);
  const uint64_t slots = kBlockBytes / 384;
  SlabAllocator::Usage usage = slabs_.usage();
  EXPECT_EQ(usage.blocks, 3u);
  EXPECT_EQ(usage.free_blocks, 2u);
  EXPECT_EQ(usage.allocated_slots, 1u);
  EXPECT_EQ(usage.allocated_bytes, 384u);
  EXPECT_EQ(usage.leased_slots, 2u);
  EXPECT_EQ(usage.leased_bytes, 768u);
  EXPECT_EQ(usage.free_slots, slots - 3);
  EXPECT_EQ(usage.free_slot_bytes, (slots - 3) * 384);
}

TEST_F(SlabAllocatorTest, ANewPrimaryFindsEverySlotByScanning) {
  Cut(384);
  Cut(64);
  auto leases = Lease(384, 5);
  for (const SlotLease& lease : leases) Allocate(lease, 10);
  Free(leases[2].address, 20);
  SlabAllocator successor(*region_);
  SlabAllocator::Usage usage = successor.usage();
  EXPECT_EQ(usage.allocated_slots, 4u);
  EXPECT_EQ(usage.leased_slots, 0u);
  EXPECT_EQ(usage.free_blocks, 1u);
  EXPECT_EQ(usage.free_slots, kBlockBytes / 384 - 4 + kBlockBytes / 64);
  std::vector<SlotLease> got;
  successor.Lease(ClassOf(384), 1, &got);
  EXPECT_EQ(got[0].address, leases[2].address);
  EXPECT_EQ(got[0].expected, ObjectWord(Timestamp(20), false, false));
  EXPECT_TRUE(successor.Unlease(got[0]));
  for (size_t i : {0, 1, 3, 4}) successor.OnFreed(leases[i].address, ObjectWord(Timestamp(30), false, false));
  EXPECT_EQ(successor.Reclaim(Timestamp(30)), 0u);
  EXPECT_EQ(successor.Reclaim(Timestamp(31)), 1u);
}

TEST_F(SlabAllocatorTest, ManyThreadsNeverShareASlot) {
  Cut(64);
  Cut(64);
  constexpr int kThreads = 4;
  std::vector<std::vector<SlotLease>> held(kThreads);
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(ThreadOptions{}, [this, t, &held] {
        for (int round = 0; round < 200; ++round) {
          slabs_.Lease(ClassOf(64), 20, &held[t], NodeId(t + 1));
          for (int i = 0; i < 10 && !held[t].empty(); ++i) {
            EXPECT_TRUE(slabs_.Unlease(held[t].back(), NodeId(t + 1)));
            held[t].pop_back();
          }
          slabs_.Reclaim(Timestamp(1));
        }
      });
    }
  }
  std::set<Address> seen;
  size_t count = 0;
  for (const auto& leases : held) {
    count += leases.size();
    for (const SlotLease& lease : leases) EXPECT_TRUE(seen.insert(lease.address).second);
  }
  EXPECT_EQ(slabs_.usage().leased_slots, count);
}

using SlabAllocatorDeathTest = SlabAllocatorTest;

TEST_F(SlabAllocatorDeathTest, FreeingOrAllocatingTwiceIsFatal) {
  Cut(64);
  SlotLease lease = Lease(64, 1)[0];
  slabs_.OnAllocated(lease.address, Timestamp(1));
  EXPECT_DEATH(slabs_.OnAllocated(lease.address, Timestamp(2)), "check failed");
  slabs_.OnFreed(lease.address, ObjectWord(Timestamp(3), false, false));
  EXPECT_DEATH(slabs_.OnFreed(lease.address, ObjectWord(Timestamp(4), false, false)), "check failed");
  EXPECT_DEATH(slabs_.OnAllocated(Address(RegionId(1), 3 * kBlockBytes), Timestamp(2)), "check failed");
}

}  // namespace
}  // namespace furrow::storage
