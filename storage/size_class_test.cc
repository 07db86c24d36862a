#include "storage/size_class.h"

#include <gtest/gtest.h>

#include "storage/object.h"

namespace furrow::storage {
namespace {

TEST(SizeClassTest, ClassesGrowByALineUpTo1KiBThenByAnEighthUpTo1MiB) {
  size_t previous = 0;
  for (size_t i = 0; i < kSizeClasses; ++i) {
    size_t bytes = SlotBytes(SizeClass(static_cast<uint8_t>(i)));
    EXPECT_EQ(bytes % kLineBytes, 0u);
    size_t step = bytes - previous;
    if (bytes <= 1024) {
      EXPECT_EQ(step, kLineBytes);
    } else {
      EXPECT_LE(step, previous / 8) << bytes;
      EXPECT_GT(step, previous / 17) << bytes;
    }
    previous = bytes;
  }
  EXPECT_EQ(previous, kMaxSlotBytes);
}

TEST(SizeClassTest, ClassForPayloadIsTheSmallestThatHoldsIt) {
  for (size_t i = 0; i < kSizeClasses; ++i) {
    SizeClass c(static_cast<uint8_t>(i));
    size_t capacity = PayloadCapacity(SlotBytes(c));
    EXPECT_EQ(ClassForPayload(capacity), c);
    EXPECT_EQ(ClassForPayload(capacity - 1), c);
    if (capacity < MaxPayload()) {
      EXPECT_EQ(ClassForPayload(capacity + 1).value(), i + 1);
    }
  }
  EXPECT_EQ(ClassForPayload(0), SizeClass(0));
}

TEST(SizeClassTest, OnlySizesOfAClassAreSlotSizes) {
  size_t found = 0;
  for (size_t bytes = 0; bytes <= kMaxSlotBytes + kLineBytes; bytes += kLineBytes / 2) {
    if (auto c = ClassForSlotBytes(bytes)) {
      EXPECT_EQ(SlotBytes(*c), bytes);
      ++found;
    }
  }
  EXPECT_EQ(found, kSizeClasses);
}

TEST(ObjectLayoutTest, SpanHoldsThePayloadAndNoLineMore) {
  for (size_t payload = 0; payload <= 2000; ++payload) {
    size_t span = SpanBytes(payload);
    EXPECT_GE(PayloadCapacity(span), payload);
    if (span > kLineBytes) {
      EXPECT_LT(PayloadCapacity(span - kLineBytes), payload);
    }
  }
}

}  // namespace
}  // namespace furrow::storage
