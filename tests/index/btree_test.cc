// One tree, seen by nodes with caches of their own.
#include "index/btree.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;

constexpr uint32_t kId = 77;
constexpr RegionId kRegion{1};

std::string Number(uint64_t n) {
  std::string key(8, '\0');
  for (size_t i = 0; i < 8; ++i) key[i] = static_cast<char>(n >> (56 - 8 * i));
  return key;
}

RowPointer Value(uint64_t n) { return RowPointer::FromBits(n + 1); }

class BtreeTest : public testing::Test {
 protected:
  // The tree with its nodes' caches; a cache of 0 bytes has room for eight nodes.
  void Make(uint64_t seed, uint32_t max_key_bytes, std::vector<size_t> cache_bytes = {1 << 20}) {
    cluster_ = std::make_unique<IndexCluster>(seed);
    Address root;
    cluster_->RunOn(0, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult made = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
        auto created = co_await Btree::CreateIn(tx, kId, 0, kRegion, max_key_bytes);
        if (created.ok()) root = *created;
        co_return created.status();
      });
      IndexCluster::Check(made.status);
    });
    for (uint32_t n = 0; n < 3; ++n) {
      caches_.push_back(std::make_unique<InnerCache>(cache_bytes[n % cache_bytes.size()]));
      trees_.emplace_back(kId, 0, root, kRegion, max_key_bytes, *caches_.back());
    }
  }

  absl::Status Do(uint32_t node, std::function<Task<absl::Status>(Transaction&, const Btree&)> body) {
    absl::Status status;
    cluster_->RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      status = (co_await worker.Run([&](Transaction& tx) { return body(tx, trees_[node]); })).status;
    });
    return status;
  }
  void Insert(uint32_t node, const std::vector<std::string>& keys) {
    IndexCluster::Check(Do(node, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
      for (const std::string& key : keys) {
        const absl::Status status = co_await tree.Insert(tx, key, Value(key.size()));
        if (!status.ok()) co_return status;
      }
      co_return absl::OkStatus();
    }));
  }
  void Remove(uint32_t node, const std::vector<std::string>& keys) {
    IndexCluster::Check(Do(node, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
      for (const std::string& key : keys) {
        const absl::Status status = co_await tree.Remove(tx, key);
        if (!status.ok()) co_return status;
      }
      co_return absl::OkStatus();
    }));
  }
  Btree::Shape Verify(uint32_t node) {
    Btree::Shape shape;
    IndexCluster::Check(Do(node, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
      auto verified = co_await tree.Verify(tx);
      if (verified.ok()) shape = *verified;
      co_return verified.status();
    }));
    return shape;
  }
  uint64_t AllocatedSlots() {
    IndexCluster::Check(cluster_->sim().DrainAndCompare());
    return cluster_->sim().node(0).allocator.usage().allocated_slots;
  }

  std::unique_ptr<IndexCluster> cluster_;
  std::vector<std::unique_ptr<InnerCache>> caches_;
  std::vector<Btree> trees_;
};

Task<absl::StatusOr<bool>> Contains(Transaction& tx, const Btree& tree, std::string key) {
  auto leaf = co_await tree.FindLeaf(tx, {Target::Kind::kKey, key});
  if (!leaf.ok()) co_return leaf.status();
  const int i = leaf->node.LowerBound(key);
  co_return i < leaf->node.count() && leaf->node.key(i) == key;
}

// FaRMv2 reports this bug of its predecessor (section 5.3): insert a key, a split moves it, the cached inner
// nodes are evicted, and the same transaction does not find its own key.
TEST_F(BtreeTest, FindsItsOwnInsertsWhenSplitsMoveThemAndInnerNodesAreEvicted) {
  Make(1, 60, {0});
  Random random(1);
  std::vector<std::string> before;
  for (int i = 0; i < 200; ++i) before.push_back("old" + std::to_string(random.Next()));
  Insert(1, before);
  std::vector<std::string> own;
  IndexCluster::Check(Do(1, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
    own.clear();
    for (int i = 0; i < 150; ++i) {
      own.push_back("o" + std::string(1, static_cast<char>('k' + i % 3)) + std::to_string(random.Next()));
      const absl::Status status = co_await tree.Insert(tx, own.back(), Value(1));
      if (!status.ok()) co_return status;
      if (random.OneIn(3)) {  // evicts whatever is there
        for (uint32_t n = 1; n < 20; ++n)
          caches_[1]->Put(Address(RegionId(999), 64 * n), std::vector<std::byte>(64));
      }
      for (const std::vector<std::string>* keys : {&own, &before}) {
        const std::string& key = (*keys)[random.Below(keys->size())];
        const absl::StatusOr<bool> found = co_await Contains(tx, tree, key);
        if (!found.ok()) co_return found.status();
        EXPECT_TRUE(*found) << "after " << i << " inserts";
      }
    }
    const auto shape = co_await tree.Verify(tx);
    if (!shape.ok()) co_return shape.status();
    EXPECT_EQ(shape->entries, 350u);
    co_return absl::OkStatus();
  }));
  EXPECT_EQ(Verify(2).entries, 350u);
}

TEST_F(BtreeTest, FindsItsOwnInsertsWithAWarmCacheThatKnowsNothingOfItsSplits) {
  Make(2, 16);
  std::vector<std::string> even;
  for (uint64_t n = 0; n < 400; n += 2) even.push_back(Number(n));
  Insert(0, even);
  Verify(0);
  IndexCluster::Check(Do(0, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
    for (uint64_t n = 1; n < 400; n += 2) {
      const absl::Status status = co_await tree.Insert(tx, Number(n), Value(n));
      if (!status.ok()) co_return status;
      for (const uint64_t other : {n, n - 1, uint64_t{1}}) {
        const absl::StatusOr<bool> found = co_await Contains(tx, tree, Number(other));
        if (!found.ok()) co_return found.status();
        EXPECT_TRUE(*found) << other;
      }
    }
    co_return absl::OkStatus();
  }));
  EXPECT_EQ(Verify(1).entries, 400u);
}

TEST_F(BtreeTest, StaleCachesOfOtherNodesNeverLoseOrInventKeys) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    caches_.clear();
    trees_.clear();
    Make(seed, 100);
    Random random(seed);
    std::set<std::string> model;
    for (int round = 0; round < 25 && !HasFailure(); ++round) {
      const auto writer = static_cast<uint32_t>(random.Below(3));
      std::vector<std::string> changed;
      const bool fill = round % 8 < 5;
      for (int i = 0; i < 40; ++i) {
        const std::string key =
            std::string(60, 'p') + std::to_string(random.Below(300)) + std::string(20, 's');
        if (model.contains(key) != fill && std::find(changed.begin(), changed.end(), key) == changed.end()) {
          changed.push_back(key);
        }
      }
      if (fill) {
        Insert(writer, changed);
        model.insert(changed.begin(), changed.end());
      } else {
        // A range, so that leaves become empty and are freed.
        const auto from = model.lower_bound(changed.empty() ? "" : changed[0]);
        changed.assign(from, std::next(from, std::min<ptrdiff_t>(60, std::distance(from, model.end()))));
        Remove(writer, changed);
        for (const std::string& key : changed) model.erase(key);
      }
      const auto reader = static_cast<uint32_t>(random.Below(3));
      IndexCluster::Check(Do(reader, [&](Transaction& tx, const Btree& tree) -> Task<absl::Status> {
        for (int n = 0; n < 300; ++n) {
          const std::string key = std::string(60, 'p') + std::to_string(n) + std::string(20, 's');
          const absl::StatusOr<bool> found = co_await Contains(tx, tree, key);
          if (!found.ok()) co_return found.status();
          EXPECT_EQ(*found, model.contains(key)) << key;
        }
        co_return absl::OkStatus();
      }));
      EXPECT_EQ(Verify(reader).entries, model.size());
    }
    EXPECT_GT(caches_[0]->used_bytes() + caches_[1]->used_bytes() + caches_[2]->used_bytes(), 0u);
  }
}

TEST_F(BtreeTest, GrowsAndShrinksThroughManyLevels) {
  Make(4, 200);
  Random random(4);
  std::set<std::string> model;
  int deepest = 0;
  for (int round = 0; round < 24 && !HasFailure(); ++round) {
    std::vector<std::string> keys;
    if (round < 12) {
      while (keys.size() < 50) {
        const std::string key = std::string(150, 'z') + std::to_string(random.Next());
        keys.push_back(key);
        model.insert(key);
      }
      Insert(0, keys);
    } else {
      while (keys.size() < 50 && !model.empty()) {
        auto it = random.OneIn(2) ? model.begin() : std::prev(model.end());
        if (random.OneIn(2))
          it = std::next(model.begin(), static_cast<ptrdiff_t>(random.Below(model.size())));
        keys.push_back(*it);
        model.erase(it);
      }
      Remove(round % 3, keys);
    }
    const Btree::Shape shape = Verify((round + 1) % 3);
    EXPECT_EQ(shape.entries, model.size());
    deepest = std::max(deepest, shape.levels);
  }
  EXPECT_GE(deepest, 4);
  const Btree::Shape shape = Verify(2);
  EXPECT_EQ(shape.leaves, 1u);
  EXPECT_EQ(shape.levels, 1);
}

TEST_F(BtreeTest, AscendingInsertsFillTheirLeaves) {
  Make(5, 9);
  // Two sequences, one in the middle of the tree and one at its end.
  for (uint64_t n = 0; n < 1000; n += 20) {
    std::vector<std::string> keys;
    for (uint64_t i = n; i < n + 20; ++i) {
      keys.push_back("a" + Number(i));
      keys.push_back("b" + Number(i));
    }
    std::sort(keys.begin(), keys.end());
    Insert(0, keys);
  }
  const Btree::Shape shape = Verify(1);
  EXPECT_EQ(shape.entries, 2000u);
  // 21 bytes an entry in some 440 bytes of a leaf.
  EXPECT_LT(shape.leaves, 2000 / 20 * 11 / 10) << "leaves are not full";
}

TEST_F(BtreeTest, AQueueKeepsNoEmptyLeaves) {
  Make(6, 8);
  for (uint64_t n = 0; n < 2000; n += 50) {
    std::vector<std::string> in;
    std::vector<std::string> out;
    for (uint64_t i = n; i < n + 50; ++i) {
      in.push_back(Number(i));
      if (i >= 100) out.push_back(Number(i - 100));
    }
    Insert(0, in);
    Remove(1, out);
  }
  const Btree::Shape shape = Verify(2);
  EXPECT_EQ(shape.entries, 100u);
  EXPECT_LE(shape.leaves, 9u);
  EXPECT_LE(shape.levels, 2);
}

TEST_F(BtreeTest, WhatWasFilledAndEmptiedLeavesNoObjectBehind) {
  Make(7, 8);
  const uint64_t before = AllocatedSlots();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> keys;
    for (uint64_t n = 0; n < 600; ++n) keys.push_back(Number(n * 7919 % 600));
    for (size_t i = 0; i < keys.size(); i += 100) {
      Insert(0, std::vector<std::string>(keys.begin() + static_cast<ptrdiff_t>(i),
                                         keys.begin() + static_cast<ptrdiff_t>(i) + 100));
    }
    EXPECT_GT(AllocatedSlots(), before + 20);
    for (size_t i = 0; i < keys.size(); i += 100) {
      Remove(1, std::vector<std::string>(keys.begin() + static_cast<ptrdiff_t>(i),
                                         keys.begin() + static_cast<ptrdiff_t>(i) + 100));
    }
    EXPECT_EQ(AllocatedSlots(), before);
  }
}

}  // namespace
}  // namespace furrow::index
