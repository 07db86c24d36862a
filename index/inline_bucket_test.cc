#include "index/inline_bucket.h"

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace furrow::index {
namespace {

TEST(InlineBucket, HasRoomForRowsOfEverySizeThatItAccepts) {
  for (uint32_t key = 1; key <= 80; ++key) {
    for (uint32_t value = 0; value <= 80; ++value) {
      const InlineGeometry g = InlineGeometry::For(key, value);
      const bool small = InlineGeometry::Room(key) + InlineGeometry::Room(value) <= kMaxInlineRowBytes;
      ASSERT_EQ(g.slots > 0, small) << key << " + " << value;
      if (!small) continue;
      EXPECT_GE(g.slots, kMinInlineSlots);
      EXPECT_GE(g.key_room, key);
      EXPECT_GE(g.value_room, value);
      EXPECT_EQ(g.slot_at(1) % 8, 0u) << "values are aligned";
      EXPECT_GE(g.slots_at(), sizeof(InlineBucketHeader) + 2 * g.slots) << "lengths and slots do not overlap";
      EXPECT_LE(storage::SpanBytes(g.payload_bytes()), 576u);
      InlineGeometry more = g;
      ++more.slots;
      EXPECT_GT(storage::SpanBytes(more.payload_bytes()), storage::SpanBytes(g.payload_bytes()))
          << "an object is full";
    }
  }
}

TEST(InlineBucket, IsSizedForFiveRowsInEightSlots) {
  const InlineGeometry g = InlineGeometry::For(8, 56);
  ASSERT_EQ(g.slots, 8u);
  EXPECT_EQ(g.BucketsFor(0), 1u);
  EXPECT_EQ(g.BucketsFor(5000), 1001u);
  EXPECT_EQ(g.BucketsFor(UINT64_MAX), 1u << 30);
}

TEST(InlineBucket, TellsKeysApartThatDifferInTheirPaddingOnly) {
  const InlineGeometry g = InlineGeometry::For(16, 8);
  std::vector<std::byte> payload(g.payload_bytes());
  const std::string keys[] = {"", std::string(1, '\0'), "a", std::string("a\0", 2), "aaaaaaaab", "aaaaaaaac"};
  for (uint32_t i = 0; i < std::size(keys); ++i) PutInlineRow(payload, g, i, keys[i], std::to_string(i));
  const InlineBucket bucket(payload.data(), g);
  for (int i = 0; i < static_cast<int>(std::size(keys)); ++i) {
    ASSERT_EQ(bucket.Find(InlineKey(keys[i])), i);
    EXPECT_EQ(bucket.value(static_cast<uint32_t>(i)), std::to_string(i));
  }
  EXPECT_EQ(bucket.Find(InlineKey(std::string(2, '\0'))), -1);
  EXPECT_EQ(bucket.Find(InlineKey(std::string(40, 'a'))), -1) << "longer than the slots' keys";
}

TEST(InlineBucket, BehavesLikeAMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const auto max_key = static_cast<uint32_t>(random.Between(1, 40));
    const InlineGeometry g = InlineGeometry::For(max_key, 64 - InlineGeometry::Room(max_key));
    std::vector<std::byte> payload(g.payload_bytes());
    const InlineBucket bucket(payload.data(), g);
    std::map<std::string, std::string> model;
    for (int step = 0; step < 300; ++step) {
      const std::string key(random.Below(max_key + 1), static_cast<char>('a' + random.Below(3)));
      const std::string value(random.Below(g.value_room + 1), static_cast<char>(random.Below(256)));
      const int at = bucket.Find(InlineKey(key));
      ASSERT_EQ(at >= 0, model.contains(key));
      if (at >= 0 && random.OneIn(2)) {
        ClearInlineRow(payload, g, static_cast<uint32_t>(at));
        model.erase(key);
      } else if (at >= 0) {
        PutInlineValue(payload, g, static_cast<uint32_t>(at), value);
        model[key] = value;
      } else if (const int free = bucket.FirstFree(); free >= 0) {
        PutInlineRow(payload, g, static_cast<uint32_t>(free), key, value);
        model[key] = value;
      } else {
        EXPECT_EQ(model.size(), g.slots);
      }
      ASSERT_EQ(bucket.used_slots(), model.size());
      for (const auto& [k, v] : model) {
        const int slot = bucket.Find(InlineKey(k));
        ASSERT_GE(slot, 0) << k;
        EXPECT_TRUE(bucket.Sound(static_cast<uint32_t>(slot)));
        EXPECT_EQ(bucket.key(static_cast<uint32_t>(slot)), k);
        EXPECT_EQ(bucket.value(static_cast<uint32_t>(slot)), v);
      }
    }
    for (const auto& [k, v] : model) {
      ClearInlineRow(payload, g, static_cast<uint32_t>(bucket.Find(InlineKey(k))));
    }
    EXPECT_EQ(payload, std::vector<std::byte>(payload.size())) << "free slots are zero";
  }
}

}  // namespace
}  // namespace furrow::index
