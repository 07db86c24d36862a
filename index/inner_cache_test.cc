#include "index/inner_cache.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread.h"
#include "gtest/gtest.h"

namespace furrow::index {
namespace {

Address At(uint32_t n) { return Address(RegionId(1), n * 64); }

std::vector<std::byte> Bytes(size_t size, uint8_t fill) {
  return std::vector<std::byte>(size, std::byte{fill});
}

TEST(InnerCache, FindsTheNewestCopyUntilItIsErased) {
  InnerCache cache(1 << 20);
  cache.Put(At(1), Bytes(100, 1));
  cache.Put(At(1), Bytes(50, 2));
  {
    const InnerCache::Guard guard(cache);
    EXPECT_EQ(cache.Find(At(1), guard).size(), 50u);
    EXPECT_EQ(cache.Find(At(1), guard)[0], std::byte{2});
    EXPECT_TRUE(cache.Find(At(2), guard).empty());
  }
  EXPECT_EQ(cache.used_bytes(), 50u);
  cache.Erase(At(1));
  const InnerCache::Guard guard(cache);
  EXPECT_TRUE(cache.Find(At(1), guard).empty());
  EXPECT_EQ(cache.used_bytes(), 0u);
}

TEST(InnerCache, StaysWithinItsMemory) {
  constexpr size_t kBytes = 64 << 10;
  InnerCache cache(kBytes);
  for (uint32_t i = 1; i < 10'000; ++i) {
    cache.Put(At(i), Bytes(InnerCache::kTypicalCopyBytes, 1));
    ASSERT_LE(cache.used_bytes(), kBytes);
  }
  EXPECT_GT(cache.used_bytes(), kBytes / 2);
}

TEST(InnerCache, KeepsACopyWhileAGuardIsHeld) {
  InnerCache cache(1 << 16);
  cache.Put(At(1), Bytes(1000, 7));
  const InnerCache::Guard guard(cache);
  const std::span<const std::byte> copy = cache.Find(At(1), guard);
  for (int i = 0; i < 100; ++i) cache.Put(At(1), Bytes(1000, 8));  // many collections
  for (const std::byte b : copy) ASSERT_EQ(b, std::byte{7});
}

// Under ThreadSanitizer and AddressSanitizer this shows that no copy is freed under a reader.
TEST(InnerCache, ReadersSeeWholeCopiesWhileWritersReplaceThem) {
  InnerCache cache(32 << 10);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0};
  std::vector<Thread> readers;
  for (uint64_t r = 0; r < 2; ++r) {
    readers.emplace_back(ThreadOptions{.name = "reader"}, [&, r] {
      Random random(r);
      while (!stop.load(std::memory_order_relaxed)) {
        const InnerCache::Guard guard(cache);
        const std::span<const std::byte> copy =
            cache.Find(At(static_cast<uint32_t>(random.Below(64)) + 1), guard);
        for (const std::byte b : copy) ASSERT_EQ(b, copy[0]);
        if (!copy.empty()) found.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  Random random(99);
  for (int i = 0; i < 50'000 || found.load() < 1000; ++i) {
    const Address at = At(static_cast<uint32_t>(random.Below(64)) + 1);
    if (random.OneIn(8)) {
      cache.Erase(at);
    } else {
      cache.Put(at, Bytes(200 + random.Below(100), static_cast<uint8_t>(random.Next())));
    }
  }
  stop.store(true);
}

}  // namespace
}  // namespace furrow::index
