#include "index/btree_node.h"

#include <map>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"

namespace furrow::index {
namespace {

constexpr uint32_t kIndex = 7;
constexpr uint32_t kPartition = 3;

class Buffer {
 public:
  explicit Buffer(NodeBytes sizes, int level = 0) : sizes_(sizes), bytes_(sizes.of(level)) {}
  NodeEditor edit() { return NodeEditor(bytes_); }
  NodeView view() const { return NodeView(bytes_, sizes_); }

 private:
  NodeBytes sizes_;
  std::vector<std::byte> bytes_;
};

std::string RandomKey(Random& random, size_t max) {
  std::string key(random.Below(max) + 1, '\0');
  for (char& c : key)
    c = static_cast<char>(random.Below(4) * 80);  // with bytes above 127: they sort as unsigned
  return key;
}

TEST(BtreeNode, SizesGrowWithTheLongestKey) {
  EXPECT_EQ(NodeBytes::For(8).leaf, 482u);
  EXPECT_EQ(NodeBytes::For(32).inner, 978u);
  const NodeBytes large = NodeBytes::For(1024);
  EXPECT_GE(large.leaf, 24u + 2 * 1024 + 6 * (1024 + 12));
  EXPECT_GE(large.inner, 24u + 2 * 1024 + 8 * (1024 + 12));
}

TEST(BtreeNode, BehavesLikeASortedMap) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Buffer node(NodeBytes::For(20));
    ASSERT_TRUE(node.edit().Build(kIndex, kPartition, 0, {true, "\x01"}, {true, "\xff\xff"}, {}));
    std::map<std::string, uint64_t> model;
    for (int step = 0; step < 400; ++step) {
      const std::string key = RandomKey(random, 20);
      const NodeView view = node.view();
      const int i = view.LowerBound(key);
      ASSERT_EQ(i, std::distance(model.begin(), model.lower_bound(key)));
      const bool there = i < view.count() && view.key(i) == key;
      ASSERT_EQ(there, model.contains(key));
      if (there && random.OneIn(2)) {
        node.edit().Remove(i);
        model.erase(key);
      } else if (there) {
        node.edit().SetValue(i, static_cast<uint64_t>(step));
        model[key] = static_cast<uint64_t>(step);
      } else if (node.edit().Insert(i, key, static_cast<uint64_t>(step))) {
        model[key] = static_cast<uint64_t>(step);
      } else {
        std::vector<NodeEntry> entries;
        for (const auto& [k, v] : model) entries.push_back({k, v});
        entries.push_back({key, 0});
        ASSERT_GT(NodeBytesNeeded(view.low(), view.high(), entries), 482u) << "there was room";
      }
      ASSERT_TRUE(node.view().IsNodeOf(kIndex, kPartition));
      ASSERT_EQ(node.view().count(), static_cast<int>(model.size()));
    }
    int i = 0;
    for (const auto& [key, value] : model) {
      EXPECT_EQ(node.view().key(i), key);
      EXPECT_EQ(node.view().value(i++), value);
    }
    EXPECT_EQ(node.view().low().key, "\x01");
    EXPECT_EQ(node.view().high().key, "\xff\xff");
  }
}

TEST(BtreeNode, CoversItsRangeAndNoMore) {
  Buffer node(NodeBytes::For(8));
  ASSERT_TRUE(node.edit().Build(kIndex, kPartition, 0, {true, "d"}, {true, "m"}, {}));
  const NodeView view = node.view();
  const auto covers = [&](Target::Kind kind, std::string_view key) { return view.Covers({kind, key}); };
  EXPECT_TRUE(covers(Target::Kind::kKey, "d"));
  EXPECT_TRUE(covers(Target::Kind::kKey, "lz"));
  EXPECT_FALSE(covers(Target::Kind::kKey, "m"));
  EXPECT_FALSE(covers(Target::Kind::kKey, "cz"));
  EXPECT_TRUE(covers(Target::Kind::kBefore, "m"));
  EXPECT_FALSE(covers(Target::Kind::kBefore, "d"));
  EXPECT_FALSE(covers(Target::Kind::kBefore, "m0"));
  EXPECT_TRUE(covers(Target::Kind::kPrefix, "d"));
  EXPECT_FALSE(covers(Target::Kind::kPrefix, "m"));
  EXPECT_FALSE(covers(Target::Kind::kPrefix, "c"));
  EXPECT_FALSE(covers(Target::Kind::kLast, ""));
  ASSERT_TRUE(node.edit().Build(kIndex, kPartition, 0, {}, {}, {}));
  EXPECT_TRUE(node.view().Covers({Target::Kind::kKey, ""}));
  EXPECT_TRUE(node.view().Covers({Target::Kind::kLast, ""}));
  EXPECT_TRUE(node.view().Covers({Target::Kind::kBefore, ""}));
}

TEST(BtreeNode, NamesItself) {
  Buffer node(NodeBytes::For(8));
  ASSERT_TRUE(node.edit().Build(kIndex, kPartition, 0, {}, {}, {}));
  EXPECT_TRUE(node.view().IsNodeOf(kIndex, kPartition));
  EXPECT_FALSE(node.view().IsNodeOf(kIndex + 1, kPartition));
  EXPECT_FALSE(node.view().IsNodeOf(kIndex, kPartition + 1));
}

TEST(BtreeNode, ReadsBytesThatAreNoNodeWithoutHarm) {
  Random random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(482);
    for (auto& b : bytes) b = static_cast<std::byte>(random.OneIn(3) ? random.Next() : 0);
    NodeHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.index = kIndex;
    header.partition = kPartition;
    header.level = static_cast<uint8_t>(random.Below(2));
    header.count = static_cast<uint16_t>(random.Below(40));
    header.heap = static_cast<uint16_t>(random.Below(482));
    header.low_bytes = static_cast<uint16_t>(random.Below(200));
    header.high_bytes = static_cast<uint16_t>(random.Below(200));
    std::memcpy(bytes.data(), &header, sizeof(header));
    const NodeView view(bytes, NodeBytes::For(8));
    if (!view.IsNodeOf(kIndex, kPartition)) continue;
    size_t sum =
        view.low().key.size() + view.high().key.size() + (view.Covers({Target::Kind::kKey, "x"}) ? 1 : 0);
    for (int i = 0; i < view.count(); ++i) sum += view.key(i).size() + view.value(i) % 2;
    sum += static_cast<size_t>(view.LowerBound("x"));
    EXPECT_LT(sum, 1u << 20);
  }
}

std::vector<NodeEntry> Entries(const std::vector<std::string>& keys) {
  std::vector<NodeEntry> entries;
  for (const std::string& key : keys) entries.push_back({key, 1});
  return entries;
}

TEST(SplitPoint, FillsNodesUnderAscendingAndDescendingInserts) {
  const std::vector<std::string> keys = {"a", "b", "c", "d", "e", "f"};
  const auto entries = Entries(keys);
  EXPECT_EQ(SplitPoint(entries, 5, 0, false, true), 5) << "at the right end of the tree";
  EXPECT_EQ(SplitPoint(entries, 0, 0, true, false), 1) << "at the left end of the tree";
  EXPECT_EQ(SplitPoint(entries, 3, 9, false, false), 4) << "in a run, before other keys";
  EXPECT_EQ(SplitPoint(entries, 5, 9, false, false), 5) << "in a run, at the end";
  EXPECT_EQ(SplitPoint(entries, 3, 0, false, false), 3) << "the middle";
  EXPECT_EQ(SplitPoint(entries, 1, 0, false, false), 3) << "the middle";
}

TEST(SplitPoint, HalvesBytesRatherThanEntries) {
  const std::vector<std::string> keys = {std::string(100, 'a'), "b", "c", "d", "e", "f"};
  EXPECT_EQ(SplitPoint(Entries(keys), 3, 0, false, false), 1);
}

TEST(Separator, IsTheShortestThatSeparates) {
  EXPECT_EQ(Separator("apple", "apricot"), "apr");
  EXPECT_EQ(Separator("a", "ab"), "ab");
  EXPECT_EQ(Separator("abc", "b"), "b");
  EXPECT_EQ(Separator("", "z9"), "z");
}

}  // namespace
}  // namespace furrow::index
