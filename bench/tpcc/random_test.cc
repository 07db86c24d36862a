#include "bench/tpcc/random.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "bench/tpcc/schema.h"
#include "gtest/gtest.h"

namespace furrow::bench::tpcc {
namespace {

constexpr uint64_t kSeed = 20261130;

TEST(NurandTest, StaysInRangeAndIsNotUniform) {
  const NurandConstants constants = NurandConstants::FromSeed(kSeed);
  TpccRandom random(kSeed, constants);
  std::vector<uint32_t> counts(3001);
  constexpr int kDraws = 300'000;
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t c = random.CustomerId(3000);
    ASSERT_TRUE(c >= 1 && c <= 3000);
    ++counts[c];
  }
  std::sort(counts.rbegin(), counts.rend());
  uint64_t top = 0;
  for (int i = 0; i < 300; ++i) top += counts[i];
  // Uniform would give a tenth to the 300 most frequent of 3,000; the bitwise or gives them about half.
  EXPECT_GT(top, kDraws * 3 / 10) << "seed " << kSeed;
  EXPECT_GT(counts[2999] + counts[0], 0u);
}

TEST(NurandTest, ConstantShiftsTheDistribution) {
  // NURand(A, x, y) with C is that of C = 0, rotated by C.
  NurandConstants zero;
  NurandConstants shifted;
  shifted.item = 777;
  TpccRandom a(kSeed, zero);
  TpccRandom b(kSeed, shifted);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ((a.ItemId(100'000) - 1 + 777) % 100'000 + 1, b.ItemId(100'000));
}

TEST(NurandTest, ConstantsOfLoadAndRunDifferAsDemanded) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const NurandConstants c = NurandConstants::FromSeed(seed);
    const int delta = std::abs(static_cast<int>(c.last_load) - static_cast<int>(c.last_run));
    EXPECT_TRUE(delta >= 65 && delta <= 119 && delta != 96 && delta != 112) << "seed " << seed;
    EXPECT_TRUE(c.last_load <= 255 && c.last_run <= 255 && c.customer <= 1023 && c.item <= 8191);
  }
  EXPECT_FALSE(NurandConstants::ValidDelta(0, 96));
  EXPECT_FALSE(NurandConstants::ValidDelta(112, 0));
  EXPECT_FALSE(NurandConstants::ValidDelta(10, 74));
  EXPECT_TRUE(NurandConstants::ValidDelta(10, 75));
}

TEST(LastNameTest, IsMadeOfThreeSyllables) {
  Text<16> name;
  LastName(371, name.span());
  EXPECT_EQ(name.view(), "PRICALLYOUGHT");  // the example of clause 4.3.2.3
  LastName(40, name.span());
  EXPECT_EQ(name.view(), "BARPRESBAR");
  LastName(777, name.span());
  EXPECT_EQ(name.view(), "CALLYCALLYCALLY");
}

TEST(StringsTest, HaveTheirLengthsAndAlphabets) {
  TpccRandom random(kSeed, {});
  bool shortest = false;
  bool longest = false;
  for (int i = 0; i < 2000; ++i) {
    Text<20> text;
    std::fill(text.chars, text.chars + 20, '?');
    const size_t length = random.AString(text.span(), 10);
    ASSERT_TRUE(length >= 10 && length <= 20);
    ASSERT_EQ(text.view().size(), length);
    ASSERT_TRUE(
        std::all_of(text.view().begin(), text.view().end(), [](unsigned char c) { return std::isalnum(c); }));
    shortest |= length == 10;
    longest |= length == 20;
    Text<9> zip;
    random.Zip(zip.span());
    ASSERT_EQ(zip.view().substr(4), "11111");
    ASSERT_TRUE(std::all_of(zip.chars, zip.chars + 9, [](unsigned char c) { return std::isdigit(c); }));
  }
  EXPECT_TRUE(shortest && longest) << "seed " << kSeed;
}

TEST(StringsTest, OneTenthOfDataIsOriginal) {
  TpccRandom random(kSeed, {});
  int original = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    Text<50> data;
    random.Data(data.span());
    ASSERT_TRUE(data.view().size() >= 26 && data.view().size() <= 50);
    original += data.view().find("ORIGINAL") != std::string_view::npos;
  }
  EXPECT_NEAR(original, kDraws / 10, 250) << "seed " << kSeed;
}

TEST(PermutationTest, HoldsEachNumberOnce) {
  Random random(kSeed);
  std::vector<uint32_t> values = Permutation(3000, random);
  ASSERT_EQ(values.size(), 3000u);
  EXPECT_NE(values[0] + values[1] * 3000, 1 + 2 * 3000u);
  std::sort(values.begin(), values.end());
  for (uint32_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i + 1);
}

TEST(SchemaTest, KeysSortAsTheirNumbers) {
  const OrderLineKey keys[] = {{1, 1, 1, 1}, {1, 1, 1, 15}, {1, 1, 255, 1}, {1, 1, 256, 1},
                               {1, 2, 1, 1}, {2, 1, 1, 1},  {256, 1, 1, 1}, {0x01000000, 1, 1, 1}};
  for (size_t i = 1; i < std::size(keys); ++i) {
    EXPECT_LT(ViewOf(keys[i - 1]), ViewOf(keys[i])) << i;
  }
  EXPECT_EQ(keys[3].o, 256u);
}

TEST(SchemaTest, TextPadsWithZeroes) {
  Text<4> text;
  text.Set("abcdef");
  EXPECT_EQ(text.view(), "abcd");
  text.Set("a");
  EXPECT_EQ(text.view(), "a");
  EXPECT_EQ(text.chars[3], '\0');
}

}  // namespace
}  // namespace furrow::bench::tpcc
