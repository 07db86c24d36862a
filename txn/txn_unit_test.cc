// The parts of a transaction that need no cluster: records from hostile bytes, the table of lock holders,
// access sets, outcome bits, hot objects.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/random.h"
#include "txn/access_set.h"
#include "txn/hot_objects.h"
#include "txn/lock_table.h"
#include "txn/lock_wait.h"
#include "txn/outcomes.h"
#include "txn/pending_table.h"
#include "txn/records.h"

namespace furrow::txn {
namespace {

std::vector<std::byte> MakeRecord(uint32_t objects, uint16_t regions, uint16_t truncates, uint32_t payload) {
  std::vector<std::byte> bytes(sizeof(LogHeader) + 8 * truncates + Pad8(4 * regions) +
                               objects * EntryBytes(payload));
  LogHeader h{};
  h.type = LogType::kLock;
  h.format = kRecordFormat;
  h.object_count = objects;
  h.region_count = regions;
  h.truncate_count = truncates;
  h.local = 7;
  h.node = 1;
  std::span<std::byte> out(bytes);
  WriteAt(out, 0, h);
  size_t at = sizeof h;
  for (uint16_t i = 0; i < truncates; ++i, at += 8) WriteAt(out, at, uint64_t{100} + i);
  at += Pad8(4 * regions);
  for (uint32_t i = 0; i < objects; ++i) {
    WriteAt(out, at, ObjectEntry{.address = 64 * (i + 1), .expected = 0, .payload = payload, .flags = 0});
    std::memset(bytes.data() + at + sizeof(ObjectEntry), static_cast<int>(i), payload);
    at += EntryBytes(payload);
  }
  return bytes;
}

TEST(LockWaitTest, ReaderLooksCloselyAtFirstAndThenLeavesTheCore) {
  EXPECT_EQ(LookAwayFor(0), 0);
  EXPECT_EQ(LookAwayFor(kLookClosely - 1), 0);
  Nanos waited = kLookClosely;
  int looks = 0;
  for (; waited < 50 * kMillisecond; ++looks) {
    ASSERT_GT(LookAwayFor(waited), 0);
    EXPECT_LE(LookAwayFor(waited),
              std::min(waited, kMillisecond));  // a lock that ends is seen within twice its time
    waited += LookAwayFor(waited);
  }
  EXPECT_LT(looks, 60);
}

TEST(LogRecord, RoundTripKeepsObjectsAndTruncations) {
  std::vector<std::byte> bytes = MakeRecord(5, 3, 2, 13);
  std::optional<LogView> view = LogView::Parse(bytes);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->truncate_id(1), 101u);
  uint32_t i = 0;
  EXPECT_TRUE(view->ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
    EXPECT_EQ(e.address, 64 * (i + 1));
    EXPECT_EQ(payload.size(), 13u);
    EXPECT_EQ(payload[12], std::byte(i));
    ++i;
    return true;
  }));
  EXPECT_EQ(i, 5u);
}

TEST(LogRecord, EveryShorterRecordIsRefused) {
  std::vector<std::byte> bytes = MakeRecord(3, 2, 1, 40);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(LogView::Parse(std::span(bytes).first(n)).has_value()) << n;
  }
  EXPECT_TRUE(LogView::Parse(bytes).has_value());
}

TEST(LogRecord, LocalIdsOf0AreRefused) {
  std::vector<std::byte> bytes = MakeRecord(1, 1, 3, 8);
  const std::span<std::byte> out(bytes);
  ASSERT_TRUE(LogView::Parse(bytes).has_value());
  WriteAt(out, sizeof(LogHeader) + 16, uint64_t{0});
  EXPECT_FALSE(LogView::Parse(bytes).has_value()) << "an id to truncate";
  WriteAt(out, sizeof(LogHeader) + 16, uint64_t{5});
  WriteAt(out, offsetof(LogHeader, local), uint64_t{0});
  for (LogType type : {LogType::kLock, LogType::kCommitBackup, LogType::kCommitPrimary, LogType::kAbort}) {
    WriteAt(out, 0, type);
    EXPECT_FALSE(LogView::Parse(bytes).has_value()) << static_cast<int>(type);
  }
  WriteAt(out, 0, LogType::kTruncate);
  EXPECT_TRUE(LogView::Parse(bytes).has_value());
}

TEST(LogRecord, DamagedBytesNeverReadOutOfBounds) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const std::vector<std::byte> good = MakeRecord(4, 2, 3, 24);
  for (int round = 0; round < 20000; ++round) {
    // Exactly as large as the record, so that AddressSanitizer sees any step over the end.
    std::vector<std::byte> bytes = good;
    for (int flips = 0; flips < 3; ++flips) bytes[random.Below(bytes.size())] = std::byte(random.Below(256));
    std::optional<LogView> view = LogView::Parse(bytes);
    if (!view.has_value()) continue;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < view->header().truncate_count; ++i) sum += view->truncate_id(i);
    view->ForEachObject([&](const ObjectEntry& e, std::span<const std::byte> payload) {
      for (std::byte b : payload) sum += static_cast<uint64_t>(b);
      return true;
    });
    ASSERT_GE(sum + 1, 1u);
  }
}

struct alignas(64) Slot {
  std::byte bytes[64] = {};
};
const TxId kA{ConfigId(1), NodeId(1), WorkerId(0), 5};
const TxId kB{ConfigId(1), NodeId(2), WorkerId(0), 9};

TEST(LockTable, ASecondTransactionIsRefusedAndToldTheHolder) {
  LockTable table;
  Slot slot;
  Address address(RegionId(1), 64);
  TxId holder;
  ASSERT_TRUE(table.TryLock(address, slot.bytes, storage::ObjectWord(), kA, &holder));
  EXPECT_TRUE(storage::LoadWord(slot.bytes).locked());
  EXPECT_FALSE(table.TryLock(address, slot.bytes, storage::ObjectWord(), kB, &holder));
  EXPECT_EQ(holder, kA);
  table.Unlock(address, slot.bytes, kA);
  EXPECT_FALSE(storage::LoadWord(slot.bytes).locked());
  EXPECT_EQ(table.size(), 0u);
}

TEST(LockTable, ATransactionRemovesOnlyItself) {
  LockTable table;
  Slot slot;
  Address address(RegionId(1), 64);
  TxId holder;
  ASSERT_TRUE(table.TryLock(address, slot.bytes, storage::ObjectWord(), kA, &holder));
  table.Unlock(address, slot.bytes, kB);
  EXPECT_TRUE(storage::LoadWord(slot.bytes).locked());
  EXPECT_EQ(table.Holder(address), kA);
}

TEST(LockTable, AChangedObjectIsRefusedWithoutAHolder) {
  LockTable table;
  Slot slot;
  TxId holder = kB;
  EXPECT_FALSE(table.TryLock(Address(RegionId(1), 64), slot.bytes,
                             storage::ObjectWord(Timestamp(3), true, false), kA, &holder));
  EXPECT_TRUE(holder.is_null());
}

TEST(AccessSet, FindsWhatWasAddedAtEverySize) {
  AccessSet set;
  std::vector<Access*> added;
  for (uint32_t i = 1; i <= 1000; ++i) {
    Address address(RegionId(i % 7 + 1), 64 * i);
    EXPECT_EQ(set.Find(address), nullptr);
    added.push_back(&set.Add(address));
    for (uint32_t j = 0; j < i; j += 1 + i / 10) EXPECT_EQ(set.Find(added[j]->address), added[j]);
  }
  set.Clear();
  EXPECT_EQ(set.size(), 0u);
  EXPECT_EQ(set.Find(Address(RegionId(2), 64)), nullptr);
}

TEST(OutcomeBits, RemembersExactlyTheLast65536) {
  OutcomeBits bits;
  for (uint64_t local = 1; local <= 200000; ++local) {
    if (local % 3 == 0) {
      bits.SetCommitted(local);
    } else {
      bits.Advance(local);
    }
  }
  EXPECT_EQ(bits.Find(200000 - 65536), RememberedOutcome::kExpired);
  for (uint64_t local = 200001 - 65536; local <= 200000; ++local) {
    ASSERT_EQ(bits.Find(local),
              local % 3 == 0 ? RememberedOutcome::kCommitted : RememberedOutcome::kNotCommittedHere)
        << local;
  }
  EXPECT_EQ(bits.Find(200001), RememberedOutcome::kNotCommittedHere);
}

TEST(HotObjects, TheHottestSurvivesAStreamOfOthers) {
  HotObjects hot;
  Address hottest(RegionId(1), 64);
  for (uint32_t i = 0; i < 10000; ++i) {
    hot.Count({.reason = AbortReason::kLockConflict, .address = Address(RegionId(2), 64 * (i % 500 + 1))});
    if (i % 4 == 0)
      hot.Count({.reason = AbortReason::kLockConflict, .address = hottest, .object = "warehouse 1"});
  }
  std::vector<HotObjects::Entry> top = hot.Top(1);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top[0].address, hottest);
  EXPECT_EQ(top[0].name, "warehouse 1");
}

// The table against a map: a moving window of ids, some of which stay behind for long.
TEST(PendingTable, BehavesAsAMapWhateverStaysBehind) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    PendingTable<uint64_t> table;
    std::map<uint64_t, uint64_t> model;
    uint64_t low = 1;
    uint64_t next = 1;
    const uint64_t window = uint64_t{1} << random.Below(16);
    const bool stuck = random.OneIn(2);
    for (int step = 0; step < 30000; ++step) {
      switch (random.Below(4)) {
        case 0:
        case 1: {
          next += random.Below(4);
          table.Insert(next) = model[next] = seed + next;
          break;
        }
        case 2: {
          const uint64_t local = low + random.Below(window);
          if (stuck && local % 1024 == 7) break;
          table.Erase(local);
          model.erase(local);
          break;
        }
        case 3: {
          if (stuck || next < low + window) break;
          const uint64_t to = next - random.Below(window);
          std::vector<uint64_t> ids;
          table.IdsBetween(low, to, &ids);
          std::vector<uint64_t> expected;
          for (auto it = model.lower_bound(low); it != model.lower_bound(to); ++it)
            expected.push_back(it->first);
          ASSERT_EQ(ids, expected);
          for (uint64_t local : ids) {
            table.Erase(local);
            model.erase(local);
          }
          low = std::max(low, to);
          break;
        }
      }
      const uint64_t asked = low + random.Below(next - low + 2);
      const auto it = model.find(asked);
      const uint64_t* found = table.Find(asked);
      ASSERT_EQ(found == nullptr, it == model.end());
      if (found != nullptr) ASSERT_EQ(*found, it->second);
      ASSERT_EQ(table.size(), model.size());
    }
    std::vector<uint64_t> all;
    table.IdsBetween(1, UINT64_MAX, &all);
    ASSERT_EQ(all.size(), model.size());
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  }
}

TEST(PendingTable, NothingIsFoundUnder0) {
  PendingTable<uint64_t> table;
  EXPECT_EQ(table.Find(0), nullptr);
  table.Erase(0);
  EXPECT_EQ(table.size(), 0u);
  table.Insert(64) = 5;
  table.Erase(64);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_EQ(table.Insert(128), 0u) << "a fresh value in a place that was used";
}

TEST(PendingTable, OneThatStaysForEverDoesNotMakeItGrowForEver) {
  PendingTable<uint64_t> table;
  table.Insert(5) = 55;
  for (uint64_t local = 6; local < 200000; ++local) {
    table.Insert(local) = local;
    if (local >= 96) table.Erase(local - 90);
  }
  EXPECT_EQ(table.size(), 91u);
  ASSERT_NE(table.Find(5), nullptr);
  EXPECT_EQ(*table.Find(5), 55u);
  std::vector<uint64_t> ids;
  table.IdsBetween(1, 200000 - 80, &ids);
  EXPECT_EQ(ids.size(), 11u);
  EXPECT_EQ(ids.front(), 5u);
}

}  // namespace
}  // namespace furrow::txn
