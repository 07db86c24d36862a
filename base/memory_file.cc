#include "base/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow {
namespace {

size_t RoundUpToPage(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Bytes that the file system of `fd` still has to give; SIZE_MAX if it does not say.
size_t FreeBytes(int fd) {
  struct statvfs fs;
  if (fstatvfs(fd, &fs) != 0 || fs.f_blocks == 0) return SIZE_MAX;
  return fs.f_bavail * fs.f_frsize;
}

absl::Status NoRoom(int fd, const std::string& name, size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("memory file ", name, " needs ", bytes, " bytes, but its file system has ", FreeBytes(fd),
                   " free: make the file system larger (mount -o remount,size=...) or the node smaller"));
}

// Gives `fd` `bytes` of allocated pages. Extends, never shrinks.
absl::Status Allocate(int fd, const std::string& name, size_t bytes) {
  int result;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EOPNOTSUPP) {
    errno = posix_fallocate(fd, 0, static_cast<off_t>(bytes));  // writes zeros
    result = errno == 0 ? 0 : -1;
  }
  if (result == 0) return absl::OkStatus();
  if (errno == ENOSPC || errno == ENOMEM || errno == EFBIG) return NoRoom(fd, name, bytes);
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot allocate ", bytes, " bytes for memory file ", name));
}

// Allocates the pages of a new file by writing zeros: hardly slower than fallocate(), which leaves the
// clearing of each page to whoever touches it first.
absl::Status WriteZeros(int fd, const std::string& name, size_t bytes) {
  static constexpr size_t kChunk = 64 << 10;
  static const std::byte zeros[kChunk] = {};
  for (size_t at = 0; at < bytes;) {
    const ssize_t written = pwrite(fd, zeros, std::min(kChunk, bytes - at), static_cast<off_t>(at));
    if (written > 0) {
      at += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      if (written == 0 || errno == ENOSPC || errno == ENOMEM || errno == EFBIG)
        return NoRoom(fd, name, bytes);
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot fill memory file ", name, " with zeros"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Map(int fd, const std::string& name, size_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    if (errno == EACCES || errno == EPERM) {
      return absl::PermissionDeniedError(absl::StrCat("cannot map memory file ", name,
                                                      writable ? " for writing" : " for reading",
                                                      ": the descriptor does not grant that right"));
    }
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", bytes, " bytes of memory file ", name));
  }
  return static_cast<std::byte*>(memory);
}

// Huge pages of a tmpfs file come only when its pages are first touched through an advised mapping. A failure
// here is none: Allocate() afterwards gives small pages or the reason why there are none.
void PopulateWithHugePages(int fd, std::byte* data, size_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return;
  if (madvise(data, bytes, MADV_HUGEPAGE) != 0) return;
#ifdef MADV_POPULATE_WRITE
  (void)madvise(data, bytes, MADV_POPULATE_WRITE);
#endif
}

}  // namespace

absl::StatusOr<MemoryFile> MemoryFile::Open(const std::string& path, size_t bytes, Options options) {
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat("memory file ", path, " of 0 bytes"));
  bytes = RoundUpToPage(bytes);
  MemoryFile file;
  file.path_ = path;
  bool created = true;
  file.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file.fd_ < 0 && errno == EEXIST && !options.must_be_new) {
    created = false;
    file.fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  }
  if (file.fd_ < 0) {
    if (errno == EEXIST)
      return absl::AlreadyExistsError(absl::StrCat("memory file ", path, " exists already"));
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open memory file ", path));
  }
  absl::Cleanup remove = [&] {
    if (created) unlink(path.c_str());
  };
  if (!created) {
    struct stat st;
    if (fstat(file.fd_, &st) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
    if (static_cast<size_t>(st.st_size) != bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat("memory file ", path, " has ", st.st_size, " bytes where ", bytes, " are expected"));
    }
  }
  // Before anything is touched: filling memory to the brim only to find that it is too small can cost other
  // processes.
  if (created && FreeBytes(file.fd_) < bytes) return NoRoom(file.fd_, path, bytes);
  FURROW_ASSIGN_OR_RETURN(std::byte* const data, Map(file.fd_, path, bytes, /*writable=*/true));
  file.SetMapping(data, bytes);
  if (options.huge_pages) PopulateWithHugePages(file.fd_, file.data_, bytes);
  FURROW_RETURN_IF_ERROR(created && !options.huge_pages ? WriteZeros(file.fd_, path, bytes)
                                                        : Allocate(file.fd_, path, bytes));
  std::move(remove).Cancel();
  return file;
}

absl::StatusOr<MemoryFile> MemoryFile::Anonymous(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("anonymous memory file of 0 bytes");
  bytes = RoundUpToPage(bytes);
  MemoryFile file;
  file.fd_ = memfd_create("furrow", MFD_CLOEXEC);
  if (file.fd_ < 0) return absl::ErrnoToStatus(errno, "cannot create an anonymous memory file");
  FURROW_RETURN_IF_ERROR(Allocate(file.fd_, "(anonymous)", bytes));
  FURROW_ASSIGN_OR_RETURN(std::byte* const data, Map(file.fd_, "(anonymous)", bytes, /*writable=*/true));
  file.SetMapping(data, bytes);
  return file;
}

absl::StatusOr<MemoryFile> MemoryFile::MapDescriptor(int fd, size_t bytes, bool writable) {
  if (bytes == 0) return absl::InvalidArgumentError("mapping of 0 bytes of a peer's memory file");
  bytes = RoundUpToPage(bytes);
  struct stat st;
  if (fstat(fd, &st) != 0) return absl::ErrnoToStatus(errno, "cannot stat a peer's memory file");
  if (static_cast<uint64_t>(st.st_size) < bytes) {
    // Touching a page behind the end of the file would raise SIGBUS.
    return absl::FailedPreconditionError(
        absl::StrCat("a peer's memory file has ", st.st_size, " bytes where ", bytes, " are expected"));
  }
  MemoryFile file;
  FURROW_ASSIGN_OR_RETURN(std::byte* const data, Map(fd, "of a peer", bytes, writable));
  file.SetMapping(data, bytes);
  return file;
}

MemoryFile::Mapping::~Mapping() { munmap(data, bytes); }

void MemoryFile::SetMapping(std::byte* data, size_t bytes) {
  mapping_ = std::make_shared<const Mapping>(data, bytes);
  data_ = data;
  size_ = bytes;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : mapping_(std::move(other.mapping_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      path_(std::exchange(other.path_, {})) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  if (this != &other) {
    MemoryFile old(std::move(*this));
    mapping_ = std::move(other.mapping_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<int> MemoryFile::ReadOnlyDescriptor() const {
  if (fd_ < 0) return absl::FailedPreconditionError("this memory file owns no descriptor to derive one from");
  // dup() would share the right to write; opening anew through /proc does not, and works without a name.
  int fd = open(absl::StrCat("/proc/self/fd/", fd_).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot open memory file ", path_, " read-only through /proc"));
  }
  return fd;
}

absl::Status MemoryFile::Unlink() {
  if (path_.empty()) return absl::OkStatus();
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove memory file ", path_));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> MemoryFile::HugePageBytes() const {
  std::unique_ptr<FILE, int (*)(FILE*)> smaps(std::fopen("/proc/self/smaps", "re"), &std::fclose);
  if (smaps == nullptr) return absl::ErrnoToStatus(errno, "cannot read /proc/self/smaps");
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data_);
  bool ours = false;
  size_t huge = 0;
  char line[512];
  while (std::fgets(line, sizeof(line), smaps.get()) != nullptr) {
    uintptr_t low, high;
    size_t kb;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2) {
      ours = low >= begin && high <= begin + size_;
    } else if (ours && (std::sscanf(line, "ShmemPmdMapped: %zu kB", &kb) == 1 ||
                        std::sscanf(line, "FilePmdMapped: %zu kB", &kb) == 1 ||
                        std::sscanf(line, "AnonHugePages: %zu kB", &kb) == 1)) {
      huge += kb * 1024;
    }
  }
  return huge;
}

absl::StatusOr<size_t> MemoryFile::HugePageBytesOfProcess() {
  std::unique_ptr<FILE, int (*)(FILE*)> smaps(std::fopen("/proc/self/smaps_rollup", "re"), &std::fclose);
  if (smaps == nullptr) return absl::ErrnoToStatus(errno, "cannot read /proc/self/smaps_rollup");
  size_t huge = 0;
  char line[512];
  while (std::fgets(line, sizeof(line), smaps.get()) != nullptr) {
    size_t kb;
    if (std::sscanf(line, "ShmemPmdMapped: %zu kB", &kb) == 1 ||
        std::sscanf(line, "FilePmdMapped: %zu kB", &kb) == 1) {
      huge += kb * 1024;
    }
  }
  return huge;
}

}  // namespace furrow
