#include "bench/harness/slots.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "storage/object.h"

namespace furrow::bench {
namespace {

using storage::ObjectWord;

constexpr size_t kSlot = 192;

struct alignas(64) Slot {
  std::byte bytes[kSlot] = {};
  std::span<const std::byte> span() const { return bytes; }
};

// Installs `text` as the object's `writes`-th version.
Slot Make(std::string text, int writes, uint64_t timestamp, bool allocated = true, uint64_t ovp = 0) {
  Slot slot;
  storage::ClearSlot(slot.bytes, kSlot);
  for (int i = 0; i < writes; ++i) {
    storage::Install(slot.bytes, kSlot, std::as_bytes(std::span(text)),
                     ObjectWord(Timestamp(timestamp), allocated, false), storage::OldVersionPointer(ovp));
  }
  return slot;
}

TEST(CompareSlotsTest, LineVersionsAndOldVersionsMayDiffer) {
  EXPECT_EQ(CompareSlots(Make(std::string(150, 'a'), 3, 77, true, 640).span(),
                         Make(std::string(150, 'a'), 1, 77).span()),
            "");
}

TEST(CompareSlotsTest, TimestampsAndAllocatedBitsMustBeEqual) {
  const Slot slot = Make("x", 1, 77);
  EXPECT_NE(CompareSlots(slot.span(), Make("x", 1, 78).span()), "");
  EXPECT_NE(CompareSlots(slot.span(), Make("x", 1, 77, false).span()), "");
  EXPECT_EQ(CompareSlots(Make("x", 1, 77, false).span(), Make("y", 1, 77, false).span()), "")
      << "nobody reads a free slot";
}

TEST(CompareSlotsTest, EveryByteOfThePayloadCounts) {
  const size_t capacity = storage::PayloadCapacity(kSlot);
  const std::string text(capacity, 'a');
  for (size_t i = 0; i < capacity; ++i) {
    std::string other = text;
    other[i] = 'b';
    EXPECT_NE(CompareSlots(Make(text, 1, 77).span(), Make(other, 1, 77).span()), "") << "byte " << i;
  }
}

TEST(CompareSlotsTest, LocksAreDifferences) {
  Slot slot = Make("x", 1, 77);
  ASSERT_TRUE(storage::TryLock(slot.bytes, ObjectWord(Timestamp(77), true, false)));
  EXPECT_EQ(CompareSlots(slot.span(), Make("x", 1, 77).span()), "locked at the primary");
  EXPECT_EQ(CompareSlots(Make("x", 1, 77).span(), slot.span()), "locked at the backup");
}

TEST(StripSlotTest, GivesThePayloadOfAllocatedObjects) {
  const std::string text(storage::PayloadCapacity(kSlot), 'z');
  std::vector<std::byte> payload;
  ASSERT_TRUE(StripSlot(Make(text, 2, 77).span(), &payload));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(payload.data()), payload.size()), text);
  EXPECT_FALSE(StripSlot(Make(text, 2, 77, false).span(), &payload));
}

}  // namespace
}  // namespace furrow::bench
