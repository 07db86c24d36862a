#include "base/prefaulter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <vector>

namespace furrow {
namespace {

constexpr size_t kBytes = size_t{8} << 20;
constexpr size_t kPage = 4096;
constexpr long kFew = 64;  // of 2,048 pages

// Page faults of this thread while it writes to each page; not those of a sanitizer's shadow of them.
__attribute__((no_sanitize("address", "thread"))) long FaultsOfTouching(const MemoryFile& file) {
  rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  for (size_t at = 0; at < file.size(); at += kPage) {
    reinterpret_cast<volatile std::byte*>(file.data())[at] = std::byte{1};
  }
  getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(PrefaulterTest, PagesThatWereMappedAheadDoNotFault) {
  auto cold = MemoryFile::Anonymous(kBytes);
  auto warm = MemoryFile::Anonymous(kBytes);
  ASSERT_TRUE(cold.ok() && warm.ok());
  warm->data()[kBytes / 2] = std::byte{7};
  Prefaulter prefaulter;
  prefaulter.Add(*warm);
  prefaulter.WaitUntilIdle();
  EXPECT_EQ(warm->data()[kBytes / 2], std::byte{7});
  EXPECT_EQ(warm->data()[kBytes - 1], std::byte{0});
  if (madvise(cold->data(), kPage, MADV_POPULATE_READ) != 0 && errno == EINVAL) {
    GTEST_SKIP() << "this kernel cannot map pages ahead";
  }
  // A few are the program's own, and a sanitizer's.
  EXPECT_LE(FaultsOfTouching(*warm), kFew);
  EXPECT_GT(FaultsOfTouching(*cold), 4 * kFew);
}

TEST(PrefaulterTest, FilesMayDieBeforeTheirTurnAndAreNotHeld) {
  std::weak_ptr<const MemoryFile::Mapping> gone;
  Prefaulter prefaulter;
  for (int i = 0; i < 50; ++i) {
    auto file = MemoryFile::Anonymous(kBytes);
    ASSERT_TRUE(file.ok());
    prefaulter.Add(*file);
    gone = file->mapping();
  }
  prefaulter.Add(MemoryFile());
  prefaulter.WaitUntilIdle();
  EXPECT_TRUE(gone.expired());
}

TEST(PrefaulterTest, EndsWithWorkLeft) {
  std::vector<MemoryFile> files;
  Prefaulter prefaulter;
  for (int i = 0; i < 50; ++i) {
    auto file = MemoryFile::Anonymous(kBytes);
    ASSERT_TRUE(file.ok());
    prefaulter.Add(*file);
    files.push_back(*std::move(file));
  }
}

}  // namespace
}  // namespace furrow
