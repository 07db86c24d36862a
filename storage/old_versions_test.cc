#include "storage/old_versions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/memory_file.h"
#include "base/mutation.h"

namespace furrow::storage {
namespace {

constexpr size_t kSlot = 128;

struct alignas(64) Slot {
  std::byte bytes[kSlot] = {};
};

std::vector<std::byte> Payload(uint8_t fill) {
  return std::vector<std::byte>(PayloadCapacity(kSlot), std::byte{fill});
}

// Installs `fill` at `ts` as a primary does, with the old version saved.
void Write(Slot* slot, OldVersionWriter* writer, uint8_t fill, uint64_t ts) {
  ASSERT_TRUE(TryLock(slot->bytes, LoadWord(slot->bytes)));
  OldVersionPointer old = writer->Save(slot->bytes, kSlot, Timestamp(ts));
  Install(slot->bytes, kSlot, Payload(fill), ObjectWord(Timestamp(ts), true, false), old);
}

TEST(OldVersionsTest, AChainLeadsToEveryOlderVersion) {
  MemoryFile memory = MemoryFile::Anonymous(2 * OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(memory);
  OldVersionWriter writer(arena);
  Slot slot;
  for (uint64_t ts = 10; ts < 20; ++ts) Write(&slot, &writer, static_cast<uint8_t>(ts), ts);

  std::vector<std::byte> got(PayloadCapacity(kSlot));
  ObjectHeader header;
  ASSERT_EQ(CopyObject(slot.bytes, got, &header), CopyResult::kObject);
  for (uint64_t ts = 18; ts >= 10; --ts) {
    ASSERT_NE(header.version.ovp(), OldVersionPointer());
    ASSERT_EQ(CopyObject(arena.base() + header.version.ovp().value(), got, &header), CopyResult::kObject);
    EXPECT_EQ(header.word, ObjectWord(Timestamp(ts), true, false));
    EXPECT_EQ(got, Payload(static_cast<uint8_t>(ts)));
  }
  // The first write chains to the fresh slot, which says "not allocated".
  ASSERT_EQ(CopyObject(arena.base() + header.version.ovp().value(), got, &header), CopyResult::kObject);
  EXPECT_EQ(header.word, ObjectWord());
  EXPECT_EQ(header.version.ovp(), OldVersionPointer());
  EXPECT_EQ(writer.saved(), 10u);
}

TEST(OldVersionsTest, AFullArenaEndsHistoryAndASafePointBringsRoomAgain) {
  MemoryFile memory = MemoryFile::Anonymous(2 * OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(memory);
  OldVersionWriter writer(arena);
  Slot slot;
  const size_t room = 2 * (OldVersionArena::kBlockBytes / kSlot) - 1;  // block 0 lacks its first line
  for (size_t i = 0; i < room; ++i) {
    ASSERT_NE(writer.Save(slot.bytes, kSlot, Timestamp(i + 1)), OldVersionPointer()) << i;
  }
  EXPECT_EQ(writer.Save(slot.bytes, kSlot, Timestamp(room + 1)), OldVersionPointer());
  EXPECT_EQ(writer.truncated(), 1u);
  EXPECT_EQ(arena.free_blocks(), 0u);
  EXPECT_EQ(writer.held_blocks(), 2u);

  const uint64_t newest_of_first = OldVersionArena::kBlockBytes / kSlot - 1;
  writer.Collect(Timestamp(newest_of_first));  // not below: a reader at that time may still come
  EXPECT_EQ(writer.Save(slot.bytes, kSlot, Timestamp(room + 1)), OldVersionPointer());
  writer.Collect(Timestamp(newest_of_first + 1));
  EXPECT_EQ(writer.held_blocks(), 1u);
  EXPECT_NE(writer.Save(slot.bytes, kSlot, Timestamp(room + 1)), OldVersionPointer());
}

TEST(OldVersionsTest, ABlockWaitsForItsNewestWriterNotItsLast) {
  MemoryFile memory = MemoryFile::Anonymous(2 * OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(memory);
  OldVersionWriter writer(arena);
  Slot slot;
  writer.Save(slot.bytes, kSlot, Timestamp(100));
  while (writer.held_blocks() < 2) writer.Save(slot.bytes, kSlot, Timestamp(50));
  writer.Collect(Timestamp(100));
  EXPECT_EQ(writer.held_blocks(), 2u);
  writer.Collect(Timestamp(101));
  EXPECT_EQ(writer.held_blocks(), 1u);
}

TEST(OldVersionsTest, TheBlockInUseStartsAgainOnceNobodyNeedsIt) {
  MemoryFile memory = MemoryFile::Anonymous(OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(memory);
  OldVersionWriter writer(arena);
  Slot slot;
  OldVersionPointer first = writer.Save(slot.bytes, kSlot, Timestamp(5));
  EXPECT_NE(writer.Save(slot.bytes, kSlot, Timestamp(6)), first);
  writer.Collect(Timestamp(6));
  EXPECT_NE(writer.Save(slot.bytes, kSlot, Timestamp(7)), first);
  writer.Collect(Timestamp(8));
  EXPECT_EQ(writer.Save(slot.bytes, kSlot, Timestamp(9)), first);
}

TEST(OldVersionsTest, TheLargestSlotFitsIntoAnyBlockButTheFirst) {
  MemoryFile memory = MemoryFile::Anonymous(2 * OldVersionArena::kBlockBytes).value();
  MemoryFile object = MemoryFile::Anonymous(kMaxSlotBytes).value();
  OldVersionArena arena(memory);
  OldVersionWriter writer(arena);
  EXPECT_EQ(writer.Save(object.data(), kMaxSlotBytes, Timestamp(1)),
            OldVersionPointer(OldVersionArena::kBlockBytes));
  EXPECT_EQ(writer.Save(object.data(), kMaxSlotBytes, Timestamp(2)), OldVersionPointer());
  EXPECT_EQ(arena.free_blocks(), 1u);
}

TEST(OldVersionsTest, AWriterThatEndsReturnsItsBlocks) {
  MemoryFile memory = MemoryFile::Anonymous(3 * OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(memory);
  {
    OldVersionWriter writer(arena);
    Slot slot;
    while (writer.held_blocks() < 2) writer.Save(slot.bytes, kSlot, Timestamp(1));
    EXPECT_EQ(arena.free_blocks(), 1u);
  }
  EXPECT_EQ(arena.free_blocks(), 3u);
}

#ifdef FURROW_MUTATIONS
TEST(OldVersionsTest, MutationReuseOldVersionsEarlyOverwritesAVersionThatAReaderNeeds) {
  for (bool mutated : {false, true}) {
    MemoryFile memory = MemoryFile::Anonymous(OldVersionArena::kBlockBytes).value();
    OldVersionArena arena(memory);
    OldVersionWriter writer(arena);
    Slot slot;
    Write(&slot, &writer, 1, 10);
    Write(&slot, &writer, 2, 20);
    OldVersionPointer needed = VersionWord::FromBits(*reinterpret_cast<uint64_t*>(slot.bytes + 8)).ovp();
    SetMutation(mutated ? Mutation::kReuseOldVersionsEarly : Mutation::kNone);
    writer.Collect(Timestamp(15));  // a reader at 15 still needs the version of 10
    SetMutation(Mutation::kNone);
    Write(&slot, &writer, 3, 30);
    Write(&slot, &writer, 4, 40);
    std::vector<std::byte> got(PayloadCapacity(kSlot));
    ObjectHeader header;
    CopyObject(arena.base() + needed.value(), got, &header);
    EXPECT_EQ(header.word == ObjectWord(Timestamp(10), true, false), !mutated);
  }
}
#endif

}  // namespace
}  // namespace furrow::storage
