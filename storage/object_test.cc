#include "storage/object.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/memory_file.h"
#include "base/mutation.h"
#include "base/random.h"
#include "base/store_point.h"
#include "base/thread.h"

namespace furrow::storage {
namespace {

using Bytes = std::vector<std::byte>;

// Memory for one slot, 64-aligned.
class Slot {
 public:
  explicit Slot(size_t bytes) : memory_(MemoryFile::Anonymous(bytes).value()), bytes_(bytes) {}
  std::byte* data() const { return memory_.data(); }
  size_t size() const { return bytes_; }
  std::span<const std::byte> span(size_t bytes) const { return {memory_.data(), bytes}; }

 private:
  MemoryFile memory_;
  size_t bytes_;
};

Bytes Filled(size_t size, int salt) {
  Bytes payload(size);
  for (size_t i = 0; i < size; ++i) payload[i] = static_cast<std::byte>(i * 7 + salt * 31 + 1);
  return payload;
}

ObjectWord Written(uint64_t ts) { return ObjectWord(Timestamp(ts), /*allocated=*/true, /*locked=*/false); }

void Write(const Slot& slot, const Bytes& payload, uint64_t ts, OldVersionPointer ovp = OldVersionPointer()) {
  ASSERT_TRUE(TryLock(slot.data(), LoadWord(slot.data())));
  Install(slot.data(), slot.size(), payload, Written(ts), ovp);
}

VersionWord Version(const Slot& slot) {
  ObjectHeader header;
  EXPECT_TRUE(CopyHeader(slot.data(), &header));
  return header.version;
}

TEST(ObjectTest, ReadsBackEveryLengthOfPayload) {
  Slot slot(768);
  const size_t capacity = PayloadCapacity(slot.size());
  const Bytes noise = Filled(capacity, 99);
  for (size_t size = 0; size <= capacity; ++size) {
    Write(slot, noise, 2 * size + 1);
    Bytes payload = Filled(size, static_cast<int>(size));
    Write(slot, payload, 2 * size + 2, OldVersionPointer(0x1234'5678'9abc));
    payload.resize(capacity);  // the rest is zero
    Bytes got(capacity + 1, std::byte{0xee});
    ObjectHeader header;
    ASSERT_EQ(CopyObject(slot.data(), std::span(got).first(capacity), &header), CopyResult::kObject);
    EXPECT_EQ(header.word, Written(2 * size + 2));
    EXPECT_EQ(header.version.ovp(), OldVersionPointer(0x1234'5678'9abc));
    ASSERT_TRUE(std::equal(payload.begin(), payload.end(), got.begin())) << size;
    EXPECT_EQ(got[capacity], std::byte{0xee});
  }
}

TEST(ObjectTest, CopiesPrefixesAndNeverWritesBehindThem) {
  Slot slot(768);
  const size_t capacity = PayloadCapacity(slot.size());
  const Bytes payload = Filled(capacity, 1);
  Write(slot, payload, 1);
  for (size_t size = 0; size <= capacity; ++size) {
    for (bool image : {false, true}) {
      Bytes got(capacity + 16, std::byte{0xee});
      std::span<std::byte> dst = std::span(got).first(size);
      ObjectHeader header;
      CopyResult result = image ? StripImage(slot.span(SpanBytes(size)), Written(1), Written(1), dst, &header)
                                : CopyObject(slot.data(), dst, &header);
      ASSERT_EQ(result, CopyResult::kObject);
      ASSERT_TRUE(std::equal(dst.begin(), dst.end(), payload.begin())) << size;
      ASSERT_TRUE(std::all_of(got.begin() + size, got.end(), [](std::byte b) {
        return b == std::byte{0xee};
      })) << size;
    }
  }
}

TEST(ObjectTest, LocksOnceAndOnlyAtTheExpectedWord) {
  Slot slot(64);
  Write(slot, Filled(48, 1), 5);
  EXPECT_FALSE(TryLock(slot.data(), Written(4)));
  EXPECT_FALSE(TryLock(slot.data(), Written(5).WithLock(true)));
  EXPECT_TRUE(TryLock(slot.data(), Written(5)));
  EXPECT_FALSE(TryLock(slot.data(), Written(5)));
  EXPECT_FALSE(TryLock(slot.data(), Written(5).WithLock(true)));
  Unlock(slot.data());
  EXPECT_EQ(LoadWord(slot.data()), Written(5));
  Unlock(slot.data());
  EXPECT_EQ(LoadWord(slot.data()), Written(5));
}

TEST(ObjectTest, ALockedObjectYieldsItsHeaderOnly) {
  Slot slot(256);
  Write(slot, Filled(100, 1), 5, OldVersionPointer(640));
  ASSERT_TRUE(TryLock(slot.data(), Written(5)));
  Bytes got(100);
  ObjectHeader header;
  EXPECT_EQ(CopyObject(slot.data(), got, &header), CopyResult::kHeader);
  EXPECT_EQ(header.word, Written(5).WithLock(true));
  EXPECT_EQ(header.version.ovp(), OldVersionPointer(640));
  header = {};
  ObjectWord word = Written(5).WithLock(true);
  EXPECT_EQ(StripImage(slot.span(128), word, word, got, &header), CopyResult::kHeader);
  EXPECT_EQ(header.version.ovp(), OldVersionPointer(640));
}

TEST(ObjectTest, AnInstallKeepsTheLockOfAnotherHolder) {
  Slot slot(128);
  ASSERT_TRUE(TryLock(slot.data(), ObjectWord()));
  Install(slot.data(), slot.size(), Filled(100, 1), Written(5).WithLock(true), OldVersionPointer());
  EXPECT_EQ(LoadWord(slot.data()), Written(5).WithLock(true));
}

TEST(ObjectTest, AnImageWhoseWordChangedBeforeOrAfterIsTorn) {
  Slot slot(128);
  Write(slot, Filled(100, 1), 5);
  Bytes got(100);
  ObjectHeader header;
  EXPECT_EQ(StripImage(slot.span(128), Written(4), Written(5), got, &header), CopyResult::kTorn);
  EXPECT_EQ(StripImage(slot.span(128), Written(5), Written(6), got, &header), CopyResult::kTorn);
  EXPECT_EQ(StripImage(slot.span(128), Written(6), Written(6), got, &header), CopyResult::kTorn);
  EXPECT_EQ(StripImage(slot.span(128), Written(5), Written(5).WithLock(true), got, &header),
            CopyResult::kTorn);
  EXPECT_EQ(StripImage(slot.span(128), Written(5), Written(5), got, &header), CopyResult::kObject);
}

TEST(ObjectTest, LineVersionsCountUpAndSkipInvalid) {
  Slot slot(192);
  const Bytes payload = Filled(150, 3);
  Bytes got(150);
  ObjectHeader header;
  uint16_t previous = 0;
  for (uint64_t ts = 1; ts <= 0x10002; ++ts) {
    Write(slot, payload, ts);
    uint16_t line = Version(slot).line();
    ASSERT_NE(line, kInvalidLine);
    ASSERT_EQ(line, previous == kInvalidLine - 1 ? 0 : previous + 1);
    previous = line;
    if (ts % 997 == 0 || ts > 0xfff0) {
      ASSERT_EQ(CopyObject(slot.data(), got, &header), CopyResult::kObject);
      ASSERT_EQ(got, payload);
    }
  }
}

TEST(ObjectTest, AClearedSlotReadsAsUnallocated) {
  Slot slot(128);
  Write(slot, Filled(100, 1), 5);
  ClearSlot(slot.data(), slot.size());
  Bytes got(100, std::byte{1});
  ObjectHeader header;
  ASSERT_EQ(CopyObject(slot.data(), got, &header), CopyResult::kObject);
  EXPECT_EQ(header.word, ObjectWord());
  EXPECT_EQ(got, Bytes(100));
}

}  // namespace
}  // namespace furrow::storage
