#include "storage/region.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory_file.h"

namespace furrow::storage {
namespace {

constexpr uint64_t kCluster = 77;
constexpr ConfigId kConfig(3);

MemoryFile Memory(size_t blocks) { return MemoryFile::Anonymous(blocks * kBlockBytes).value(); }

std::unique_ptr<Region> NewRegion(size_t blocks, uint32_t id = 5) {
  return Region::Create(Memory(blocks), RegionId(id), kConfig, kCluster).value();
}

// A second mapping of the region's memory, as a restarted process has it.
MemoryFile Again(const Region& region) {
  return MemoryFile::MapDescriptor(region.file().fd(), region.bytes(), /*writable=*/true).value();
}

TEST(RegionTest, FreshRegionHasFreeBlocksOnly) {
  auto region = NewRegion(4);
  EXPECT_EQ(region->blocks(), 4u);
  for (uint32_t b = 0; b < 4; ++b) {
    EXPECT_EQ(region->ReadBlock(b).version, 0u);
    EXPECT_EQ(region->SlotBytesAt(b * kBlockBytes), 0u);
    EXPECT_EQ(region->SlotAt(b * kBlockBytes), nullptr);
    EXPECT_FALSE(region->AddWriter(b * kBlockBytes));
  }
}

TEST(RegionTest, RefusesSizesThatDoNotFit) {
  for (size_t bytes : {size_t{kBlockBytes}, size_t{2 * kBlockBytes + 4096}}) {
    auto region = Region::Create(MemoryFile::Anonymous(bytes).value(), RegionId(1), kConfig, kCluster);
    EXPECT_EQ(region.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RegionTest, SlotAtTakesSlotStartsOnly) {
  auto region = NewRegion(3);
  for (size_t i = 0; i < kSizeClasses; ++i) {
    uint32_t slot_bytes = static_cast<uint32_t>(SlotBytes(SizeClass(static_cast<uint8_t>(i))));
    ASSERT_TRUE(region->CutBlock(2, slot_bytes, i + 1).ok());
    uint32_t slots = kBlockBytes / slot_bytes;
    EXPECT_EQ(region->ReadBlock(2).slots, slots);
    for (uint32_t in_block = 0; in_block < kBlockBytes; in_block += 32) {
      uint32_t offset = 2 * kBlockBytes + in_block;
      bool is_slot = in_block % slot_bytes == 0 && in_block / slot_bytes < slots;
      ASSERT_EQ(region->SlotAt(offset), is_slot ? region->base() + offset : nullptr)
          << slot_bytes << " at " << in_block;
    }
    EXPECT_EQ(region->SlotBytesAt(2 * kBlockBytes + 17), slot_bytes);
  }
  EXPECT_EQ(region->SlotAt(2 * kBlockBytes + 1), nullptr);
  EXPECT_EQ(region->SlotAt(0), nullptr);
  EXPECT_EQ(region->SlotAt(3 * kBlockBytes), nullptr);  // just past the end
  EXPECT_EQ(region->SlotAt(0xffffffc0), nullptr);
  EXPECT_EQ(region->SlotBytesAt(0xffffffc0), 0u);
}

TEST(RegionTest, CutBlockZeroesAndOnlyGoesForward) {
  auto region = NewRegion(2);
  ASSERT_TRUE(region->CutBlock(1, 128, 7).ok());
  std::memset(region->base() + kBlockBytes, 0x5a, kBlockBytes);
  EXPECT_EQ(region->CutBlock(1, 192, 7).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(region->CutBlock(1, 192, 6).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(region->SlotBytesAt(kBlockBytes), 128u);
  ASSERT_TRUE(region->CutBlock(1, 192, 8).ok());
  for (size_t i = 0; i < kBlockBytes; ++i) {
    ASSERT_EQ(region->base()[kBlockBytes + i], std::byte{0}) << i;
  }
  EXPECT_EQ(region->ReadBlock(1).version, 8u);
  ASSERT_TRUE(region->CutBlock(1, 0, 9).ok());
  EXPECT_EQ(region->SlotAt(kBlockBytes), nullptr);
}

TEST(RegionTest, CutBlockRefusesBadInputOfAPeer) {
  auto region = NewRegion(2);
  EXPECT_EQ(region->CutBlock(0, 64, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(region->CutBlock(2, 64, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(region->CutBlock(1, 65, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(region->CutBlock(1, 1088, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(region->CutBlock(1, 2 << 20, 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RegionTest, ABlockWithWritersIsNotCutAndAClosedOneTakesNone) {
  auto region = NewRegion(2);
  const uint32_t slot = kBlockBytes + 64;
  ASSERT_TRUE(region->CutBlock(1, 64, 1).ok());
  ASSERT_TRUE(region->AddWriter(slot));
  ASSERT_TRUE(region->AddWriter(slot));
  EXPECT_EQ(region->CutBlock(1, 128, 2).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(region->CloseBlock(1));
  region->RemoveWriter(slot);
  EXPECT_EQ(region->Writers(slot), 1u);
  region->RemoveWriter(slot);
  EXPECT_TRUE(region->CloseBlock(1));
  EXPECT_FALSE(region->AddWriter(slot));
  EXPECT_TRUE(region->CloseBlock(1));  // closed already
  ASSERT_TRUE(region->CutBlock(1, 128, 2).ok());
  EXPECT_TRUE(region->AddWriter(slot));
  EXPECT_FALSE(region->AddWriter(2 * kBlockBytes));
}

TEST(RegionTest, RemembersTheNewestWriteOfABlockUntilItIsCut) {
  auto region = NewRegion(2);
  ASSERT_TRUE(region->CutBlock(1, 64, 1).ok());
  region->NoteWrite(kBlockBytes, Timestamp(10));
  region->NoteWrite(kBlockBytes + 64, Timestamp(9));
  EXPECT_EQ(region->NewestWrite(1), Timestamp(10));
  ASSERT_TRUE(region->CutBlock(1, 64, 2).ok());
  EXPECT_EQ(region->NewestWrite(1), Timestamp());
}

TEST(RegionTest, AttachFindsWhatCreateAndCutLeft) {
  auto region = NewRegion(4);
  ASSERT_TRUE(region->CutBlock(2, 384, 5).ok());
  auto attached = Region::Attach(Again(*region), RegionId(5), kCluster);
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ((*attached)->SlotBytesAt(2 * kBlockBytes), 384u);
  EXPECT_EQ((*attached)->ReadBlock(2).version, 5u);
  EXPECT_EQ((*attached)->SlotBytesAt(kBlockBytes), 0u);
  EXPECT_TRUE((*attached)->AddWriter(2 * kBlockBytes));
  EXPECT_FALSE((*attached)->AddWriter(kBlockBytes));
}

TEST(RegionTest, AttachRefusesWhatIsNotThisRegionOfThisCluster) {
  auto region = NewRegion(2);
  EXPECT_EQ(Region::Attach(Again(*region), RegionId(6), kCluster).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Region::Attach(Again(*region), RegionId(5), kCluster + 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Region::Attach(Memory(2), RegionId(5), kCluster).status().code(), absl::StatusCode::kDataLoss);
  reinterpret_cast<RegionHeader*>(region->base())->format = kRegionFormat + 1;
  EXPECT_EQ(Region::Attach(Again(*region), RegionId(5), kCluster).status().code(),
            absl::StatusCode::kFailedPrecondition);
  reinterpret_cast<RegionHeader*>(region->base())->format = kRegionFormat;
  ASSERT_TRUE(region->CutBlock(1, 128, 1).ok());
  auto* block = reinterpret_cast<BlockHeader*>(region->base() + kRegionHeaderBytes + sizeof(BlockHeader));
  block->slots += 1;
  EXPECT_EQ(Region::Attach(Again(*region), RegionId(5), kCluster).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(LocalRegionsTest, FindsAddedRegionsInOrder) {
  LocalRegions regions;
  EXPECT_EQ(regions.Find(RegionId(1)), nullptr);
  for (uint32_t id : {9000u, 7u, 4096u}) ASSERT_TRUE(regions.Add(NewRegion(2, id)).ok());
  EXPECT_EQ(regions.count(), 3u);
  EXPECT_EQ(regions.Find(RegionId(4096))->id(), RegionId(4096));
  EXPECT_EQ(regions.Find(RegionId(8)), nullptr);
  EXPECT_EQ(regions.Find(RegionId(0xffffffff)), nullptr);
  std::vector<uint32_t> ids;
  regions.ForEach([&](Region& region) { ids.push_back(region.id().value()); });
  EXPECT_EQ(ids, (std::vector<uint32_t>{7, 4096, 9000}));
}

TEST(LocalRegionsTest, RefusesASecondReplicaAndImpossibleIds) {
  LocalRegions regions;
  ASSERT_TRUE(regions.Add(NewRegion(2, 7)).ok());
  EXPECT_EQ(regions.Add(NewRegion(2, 7)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(regions.Add(NewRegion(2, 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(regions.Add(NewRegion(2, 0xffffffff)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(regions.count(), 1u);
}

}  // namespace
}  // namespace furrow::storage
