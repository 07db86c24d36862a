#include "base/memory_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace furrow {
namespace {

using ::testing::HasSubstr;

class MemoryFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat("/dev/shm/furrow-memory-file-test-", absl::Hex(EntropySeed()));
    ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  }
  void TearDown() override {
    unlink(Path().c_str());
    EXPECT_EQ(rmdir(directory_.c_str()), 0) << "something was left behind in " << directory_;
  }
  std::string Path() const { return directory_ + "/file"; }
  std::string directory_;
};

TEST_F(MemoryFileTest, NewFileIsZeroPrivateAndRoundedUpToPages) {
  auto file = MemoryFile::Open(Path(), 5000, {});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 8192u);
  EXPECT_EQ(file->path(), Path());
  for (std::byte b : file->bytes()) ASSERT_EQ(b, std::byte{0});
  struct stat st;
  ASSERT_EQ(stat(Path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(st.st_size, 8192);
  EXPECT_GE(st.st_blocks * 512, 8192) << "every page is allocated";
}

TEST_F(MemoryFileTest, ContentOutlivesTheMapping) {
  {
    auto file = MemoryFile::Open(Path(), 4096, {});
    ASSERT_TRUE(file.ok()) << file.status();
    std::memcpy(file->data(), "furrow", 6);
  }
  auto again = MemoryFile::Open(Path(), 4096, {.must_be_new = false});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(std::memcmp(again->data(), "furrow", 6), 0);
  EXPECT_TRUE(again->Unlink().ok());
  EXPECT_NE(access(Path().c_str(), F_OK), 0);
  EXPECT_EQ(std::memcmp(again->data(), "furrow", 6), 0) << "the mapping stays";
}

TEST_F(MemoryFileTest, ExistingFileIsRefusedWhereANewOneIsWanted) {
  ASSERT_TRUE(MemoryFile::Open(Path(), 4096, {}).ok());
  auto again = MemoryFile::Open(Path(), 4096, {});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists) << again.status();
  EXPECT_EQ(access(Path().c_str(), F_OK), 0) << "the existing file is kept";
}

TEST_F(MemoryFileTest, ExistingFileOfAnotherSizeIsRefused) {
  ASSERT_TRUE(MemoryFile::Open(Path(), 4096, {}).ok());
  auto again = MemoryFile::Open(Path(), 8192, {.must_be_new = false});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition) << again.status();
}

TEST_F(MemoryFileTest, FullFileSystemIsResourceExhaustedAndLeavesNoFile) {
  struct statvfs fs;
  ASSERT_EQ(statvfs("/dev/shm", &fs), 0);
  for (bool huge : {false, true}) {
    auto file = MemoryFile::Open(Path(), fs.f_blocks * fs.f_frsize + (1 << 20), {.huge_pages = huge});
    EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted) << file.status();
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(Path()));
    EXPECT_NE(access(Path().c_str(), F_OK), 0);
  }
}

TEST_F(MemoryFileTest, MissingDirectoryIsAnErrorThatNamesThePath) {
  auto file = MemoryFile::Open(directory_ + "/no/such/file", 4096, {});
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/no/such/file"));
}

TEST_F(MemoryFileTest, HugePagesAreAWishThatNeverFails) {
  auto file = MemoryFile::Open(Path(), 4 << 20, {.huge_pages = true});
  ASSERT_TRUE(file.ok()) << file.status();
  std::memset(file->data(), 1, file->size());
  auto huge = file->HugePageBytes();
  ASSERT_TRUE(huge.ok()) << huge.status();
  EXPECT_LE(*huge, file->size());
}

TEST_F(MemoryFileTest, ReadOnlyDescriptorCannotBeMappedWritable) {
  auto anonymous = MemoryFile::Anonymous(4096);
  auto named = MemoryFile::Open(Path(), 4096, {});
  ASSERT_TRUE(anonymous.ok() && named.ok());
  ASSERT_TRUE(named->Unlink().ok());  // also without a name
  for (MemoryFile* file : {&*anonymous, &*named}) {
    auto fd = file->ReadOnlyDescriptor();
    ASSERT_TRUE(fd.ok()) << fd.status();
    auto writable = MemoryFile::MapDescriptor(*fd, 4096, /*writable=*/true);
    EXPECT_EQ(writable.status().code(), absl::StatusCode::kPermissionDenied) << writable.status();
    auto readable = MemoryFile::MapDescriptor(*fd, 4096, /*writable=*/false);
    ASSERT_TRUE(readable.ok()) << readable.status();
    file->data()[17] = std::byte{42};
    EXPECT_EQ(readable->data()[17], std::byte{42}) << "both map the same bytes";
    EXPECT_NE(mprotect(readable->data(), 4096, PROT_READ | PROT_WRITE), 0) << "nor made writable afterwards";
    EXPECT_LT(write(*fd, "x", 1), 0);
    close(*fd);
  }
}

TEST_F(MemoryFileTest, MappingMoreThanTheFileHoldsIsRefused) {
  auto file = MemoryFile::Anonymous(4096);
  ASSERT_TRUE(file.ok());
  auto mapped = MemoryFile::MapDescriptor(file->fd(), 8192, /*writable=*/true);
  EXPECT_EQ(mapped.status().code(), absl::StatusCode::kFailedPrecondition) << mapped.status();
}

TEST_F(MemoryFileTest, MoveHandsTheMappingOver) {
  auto file = MemoryFile::Anonymous(4096);
  ASSERT_TRUE(file.ok());
  std::byte* data = file->data();
  const int fd = file->fd();
  MemoryFile moved(*std::move(file));
  EXPECT_EQ(moved.data(), data);
  MemoryFile target;
  target = std::move(moved);
  EXPECT_EQ(target.data(), data);
  EXPECT_EQ(target.fd(), fd);
  target = MemoryFile();
  EXPECT_LT(fcntl(fd, F_GETFD), 0) << "closed with its last owner";
}

TEST_F(MemoryFileTest, ZeroBytesAreRefused) {
  EXPECT_EQ(MemoryFile::Open(Path(), 0, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MemoryFile::Anonymous(0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace furrow
