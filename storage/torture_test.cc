// Real threads: writers install, readers copy at the same time. Every accepted payload must be what one
// install wrote. Bounded by the writers' iterations; ThreadSanitizer looks at the memory orders.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/memory_file.h"
#include "base/random.h"
#include "base/thread.h"
#include "storage/object.h"
#include "storage/old_versions.h"
#include "storage/region.h"

namespace furrow::storage {
namespace {

#if defined(__SANITIZE_THREAD__) || (defined(__has_feature) && __has_feature(thread_sanitizer))
constexpr uint64_t kInstalls = 4'000;
constexpr int kCuts = 6;
constexpr uint32_t kRegions = 4;
#else
constexpr uint64_t kInstalls = 30'000;
constexpr int kCuts = 30;
constexpr uint32_t kRegions = 16;
#endif

constexpr size_t kSlots = 4;
constexpr size_t kSlotBytes[kSlots] = {64, 128, 384, 704};
constexpr size_t kStride = 704;

// What version `ts` of slot `s` holds: every word is the same.
uint64_t Pattern(size_t s, uint64_t ts) { return (ts * kSlots + s) * 0x9e3779b97f4a7c15; }

// The newest version of slot `s` at `now`, when version `ts` goes to slot ts % kSlots.
uint64_t NewestAt(size_t s, uint64_t now) { return now < s ? 0 : now - (now - s) % kSlots; }

std::vector<std::byte> Payload(size_t s, uint64_t ts) {
  std::vector<std::byte> payload(PayloadCapacity(kSlotBytes[s]) / 8 * 8);
  const uint64_t word = Pattern(s, ts);
  for (size_t i = 0; i < payload.size(); i += 8) std::memcpy(payload.data() + i, &word, 8);
  return payload;
}

class Torture : public ::testing::Test {
 protected:
  // Versions 1, 2, ... go round the slots; with old versions when there is a writer for them.
  void WriteAll(OldVersionWriter* old_versions) {
    Write(old_versions);
    done_.store(true, std::memory_order_release);
  }
  void Write(OldVersionWriter* old_versions) {
    for (uint64_t ts = 1; ts <= kInstalls; ++ts) {
      const size_t s = ts % kSlots;
      ASSERT_TRUE(TryLock(slot(s), LoadWord(slot(s))));
      OldVersionPointer ovp;
      if (old_versions != nullptr) {
        old_versions->Collect(Timestamp(SafePoint()));
        ovp = old_versions->Save(slot(s), kSlotBytes[s], Timestamp(ts));
      }
      Install(slot(s), kSlotBytes[s], Payload(s, ts), ObjectWord(Timestamp(ts), true, false), ovp);
      now_.store(ts, std::memory_order_release);
    }
  }
  bool done() const { return done_.load(std::memory_order_acquire); }
  uint64_t SafePoint() const {
    uint64_t oldest = now_.load(std::memory_order_acquire);
    for (const auto& r : reading_) oldest = std::min(oldest, r.load(std::memory_order_acquire));
    return oldest;
  }
  std::byte* slot(size_t s) const { return memory_.data() + s * kStride; }

  static void ExpectWhole(size_t s, uint64_t ts, const std::vector<std::byte>& got) {
    if (ts == 0) return;  // not written yet
    std::vector<std::byte> expected = Payload(s, ts);
    expected.resize(got.size());
    ASSERT_TRUE(expected == got) << "slot " << s << " version " << ts;
  }

  static constexpr int kReaders = 2;
  MemoryFile memory_ = MemoryFile::Anonymous(kSlots * kStride).value();
  std::atomic<uint64_t> now_{0};
  std::atomic<bool> done_{false};
  std::atomic<uint64_t> reading_[kReaders] = {};  // a time not above that of the snapshot in use
};

TEST_F(Torture, CopiesAreWhole) {
  std::atomic<uint64_t> accepted{0};
  {
    std::vector<Thread> threads;
    for (int r = 0; r < kReaders; ++r) {
      threads.emplace_back(ThreadOptions{}, [&, r] {
        for (uint64_t i = 0; !done() || i < kSlots; ++i) {
          const size_t s = (i + r) % kSlots;
          std::vector<std::byte> got(PayloadCapacity(kSlotBytes[s]));
          ObjectHeader header;
          if (CopyObject(slot(s), got, &header) != CopyResult::kObject) continue;
          ExpectWhole(s, header.word.timestamp().value(), got);
          accepted.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    threads.emplace_back(ThreadOptions{}, [&] { WriteAll(nullptr); });
  }
  EXPECT_GT(accepted.load(), 0u);
}

// As a READ in 8-byte pieces in random order between two READs of word 0, which shared memory makes easy to
// stage.
TEST_F(Torture, ImagesOfPiecesInAnyOrderAreWholeOrRejected) {
  std::atomic<uint64_t> accepted{0};
  {
    std::vector<Thread> threads;
    for (int r = 0; r < kReaders; ++r) {
      threads.emplace_back(ThreadOptions{}, [&, r] {
        Random random(r + 1);
        for (uint64_t i = 0; !done() || i < kSlots; ++i) {
          const size_t s = i % kSlots;
          std::vector<size_t> order(kSlotBytes[s] / 8);
          std::iota(order.begin(), order.end(), 0);
          for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.Below(k)]);
          std::vector<uint64_t> image(order.size());
          ObjectWord before = LoadWord(slot(s));
          for (size_t word : order) image[word] = LoadWord(slot(s) + 8 * word).bits();
          ObjectWord after = LoadWord(slot(s));
          std::vector<std::byte> got(PayloadCapacity(kSlotBytes[s]));
          ObjectHeader header;
          if (StripImage(std::as_bytes(std::span(image)), before, after, got, &header) != CopyResult::kObject)
            continue;
          ExpectWhole(s, header.word.timestamp().value(), got);
          accepted.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    threads.emplace_back(ThreadOptions{}, [&] { WriteAll(nullptr); });
  }
  EXPECT_GT(accepted.load(), 0u);
}

// Snapshot reads through the chains while blocks of old versions are collected and used again.
TEST_F(Torture, SnapshotsFindTheVersionOfTheirTime) {
  MemoryFile old_memory = MemoryFile::Anonymous(4 * OldVersionArena::kBlockBytes).value();
  OldVersionArena arena(old_memory);
  OldVersionWriter old_versions(arena);
  std::atomic<uint64_t> found{0}, old{0}, too_old{0};
  {
    std::vector<Thread> threads;
    for (int r = 0; r < kReaders; ++r) {
      threads.emplace_back(ThreadOptions{}, [&, r] {
        bool last = false;
        do {
          last = done();
          const uint64_t snapshot = now_.load(std::memory_order_acquire);
          reading_[r].store(snapshot, std::memory_order_release);
          for (size_t s = 0; s < kSlots; ++s) {
            const std::byte* at = slot(s);
            std::vector<std::byte> got(PayloadCapacity(kSlotBytes[s]));
            while (true) {
              ObjectHeader header;
              CopyResult result = CopyObject(at, got, &header);
              if (result == CopyResult::kTorn) continue;
              const uint64_t ts = header.word.timestamp().value();
              if (ts > snapshot) {
                if (header.version.ovp() == OldVersionPointer()) {
                  too_old.fetch_add(1, std::memory_order_relaxed);
                  break;
                }
                at = arena.base() + header.version.ovp().value();
                old.fetch_add(1, std::memory_order_relaxed);
                continue;
              }
              if (result != CopyResult::kObject)
                continue;  // locked: its next version may be of this snapshot
              ASSERT_EQ(ts, NewestAt(s, snapshot)) << "slot " << s << " at " << snapshot;
              ExpectWhole(s, ts, got);
              found.fetch_add(1, std::memory_order_relaxed);
              break;
            }
          }
        } while (!last);
        reading_[r].store(kInstalls, std::memory_order_release);
      });
    }
    threads.emplace_back(ThreadOptions{}, [&] { WriteAll(&old_versions); });
  }
  EXPECT_GT(found.load(), 0u);
  if (old_versions.truncated() == 0) {
    EXPECT_EQ(too_old.load(), 0u);
  }
  RecordProperty("old_versions_read", static_cast<int>(old.load()));
}

// While a transaction writes in a block, the block keeps its slots.
TEST(RegionTorture, WritersAndCutsExcludeEachOther) {
  auto region =
      Region::Create(MemoryFile::Anonymous(2 * kBlockBytes).value(), RegionId(1), ConfigId(1), 7).value();
  std::atomic<bool> done{false};
  const uint32_t offset = kBlockBytes + 3 * 128;  // a slot of every cut below
  {
    std::vector<Thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back(ThreadOptions{}, [&] {
        while (!done.load(std::memory_order_acquire)) {
          if (!region->AddWriter(offset)) continue;
          std::byte* slot = region->SlotAt(offset);
          EXPECT_NE(slot, nullptr);
          const uint32_t slot_bytes = region->SlotBytesAt(offset);
          const ObjectWord word = LoadWord(slot);
          if (TryLock(slot, word)) {
            Install(slot, slot_bytes, {}, ObjectWord(word.timestamp().Next(), true, false),
                    OldVersionPointer());
          }
          EXPECT_EQ(region->SlotBytesAt(offset), slot_bytes);
          region->RemoveWriter(offset);
        }
      });
    }
    threads.emplace_back(ThreadOptions{}, [&] {
      constexpr uint32_t kSizes[] = {64, 128, 192, 384};
      for (uint64_t version = 1; version <= kCuts;) {
        absl::Status status = region->CutBlock(1, kSizes[version % 4], version);
        if (status.ok()) {
          ++version;
        } else {
          EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
        }
      }
      done.store(true, std::memory_order_release);
    });
  }
  EXPECT_EQ(region->ReadBlock(1).version, static_cast<uint64_t>(kCuts));
}

TEST(RegionTorture, RegionsAreFoundWhileOthersAreAdded) {
  LocalRegions regions;
  {
    std::vector<Thread> threads;
    for (uint32_t half = 0; half < 2; ++half) {
      threads.emplace_back(ThreadOptions{}, [&, half] {
        for (uint32_t i = half; i < kRegions; i += 2) {
          ASSERT_TRUE(regions
                          .Add(Region::Create(MemoryFile::Anonymous(2 * kBlockBytes).value(),
                                              RegionId(4090 + i), ConfigId(1), 7)
                                   .value())
                          .ok());
        }
      });
    }
    threads.emplace_back(ThreadOptions{}, [&] {
      for (uint32_t next = 0; next < kRegions;) {
        Region* region = regions.Find(RegionId(4090 + next));
        if (region == nullptr) continue;
        EXPECT_EQ(region->id(), RegionId(4090 + next));
        EXPECT_EQ(region->blocks(), 2u);
        ++next;
      }
    });
  }
  EXPECT_EQ(regions.count(), kRegions);
}

}  // namespace
}  // namespace furrow::storage
