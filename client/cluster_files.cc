#include "client/cluster_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace furrow::client {
namespace {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  std::string text(64 << 10, '\0');
  ssize_t n = read(fd, text.data(), text.size());
  if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace

absl::Status WriteClusterFile(const std::string& directory, const ClusterFile& file) {
  std::string text = absl::StrCat("cluster=", file.cluster_id, "\n");
  for (const std::string& address : file.addresses) absl::StrAppend(&text, "address=", address, "\n");
  const std::string path = directory + "/cluster";
  const std::string temporary = path + ".new";
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", temporary));
  const ssize_t written = write(fd, text.data(), text.size());
  // A short write says no reason: what is left of the disk did not take it all.
  int error = written < 0 ? errno : ENOSPC;
  close(fd);
  if (written != static_cast<ssize_t>(text.size())) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", temporary));
  }
  if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  error = errno;
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat("cannot replace ", path));
}

absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& directory) {
  absl::StatusOr<std::string> text = ReadSmallFile(directory + "/cluster");
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat("there is no running cluster in ", directory,
                     ": it has no file \"cluster\"; start one "
                     "with deploy/local-cluster up --dir ",  // lint-allow(library-flags): a whole command
                     directory, ", or name another directory"));
  }
  FURROW_RETURN_IF_ERROR(text.status());
  ClusterFile file;
  bool damaged = false;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "cluster=")) file.cluster_id = std::string(line);
    if (absl::ConsumePrefix(&line, "address=")) {
      damaged = damaged || !IsAddress(std::string(line));
      file.addresses.emplace_back(line);
    }
  }
  if (damaged || file.cluster_id.empty() || file.addresses.empty()) {
    return absl::DataLossError(
        absl::StrCat(directory, "/cluster is damaged: give the address of a member instead"));
  }
  return file;
}

bool IsAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  return colon != std::string::npos && colon > 0 && absl::SimpleAtoi(text.substr(colon + 1), &port) &&
         port > 0 && port <= 65535;
}

OwnedDirectory::~OwnedDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<OwnedDirectory> OwnedDirectory::Make(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST)
      return absl::AlreadyExistsError(absl::StrCat("the directory ", path, " exists already"));
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", path));
  }
  OwnedDirectory directory;
  directory.path_ = path;
  return directory;
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  unlink(path_.c_str());
  close(fd_);
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  // The holder removes the file when it lets go: a lock on a file that has no name any more excludes nobody.
  for (int attempt = 0; attempt < 100; ++attempt) {
    FURROW_ASSIGN_OR_RETURN(FileLock lock, TakeOnce(path));
    struct stat named;
    struct stat locked;
    if (fstat(lock.fd_, &locked) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
    if (stat(path.c_str(), &named) == 0 && named.st_ino == locked.st_ino && named.st_dev == locked.st_dev) {
      return lock;
    }
    close(std::exchange(lock.fd_, -1));
  }
  return absl::UnavailableError(absl::StrCat("others take and leave ", path, " all the time: try again"));
}

absl::StatusOr<FileLock> FileLock::TakeOnce(const std::string& path) {
  FileLock lock;
  lock.path_ = path;
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    absl::Cleanup close_fd = [fd] { close(fd); };
    if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    absl::StatusOr<std::string> holder = ReadSmallFile(path);
    return absl::FailedPreconditionError(
        absl::StrCat("the directory of ", path, " is in use by process ",
                     holder.ok() ? holder->substr(0, holder->find('\n')) : "(unknown)",
                     ": one node per directory; stop that process or name another directory with "
                     "MemberOptions::directory"));
  }
  lock.fd_ = fd;
  std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return lock;
}

absl::Status FileLock::Note(const std::string& line) {
  const std::string text = line + "\n";
  const off_t end = lseek(fd_, 0, SEEK_END);
  if (end >= 0 && pwrite(fd_, text.data(), text.size(), end) == static_cast<ssize_t>(text.size()))
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
}

absl::Status MakePrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", path));
  }
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  if (!S_ISDIR(st.st_mode)) return absl::FailedPreconditionError(absl::StrCat(path, " is no directory"));
  if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the directory ", path,
                     " is open to others, and sockets must not be: name one that is yours alone (mode 700)"));
  }
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path, const std::string& option) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no directory ", path, ": make it, or name another one with ", option));
  }
  std::string probe = path + "/.furrow-XXXXXX";
  int fd = mkostemp(probe.data(), O_CLOEXEC);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write to the directory ", path, " (", strerror(errno),
                     "): name one that this user may write to with ", option));
  }
  close(fd);
  unlink(probe.c_str());
  return absl::OkStatus();
}

std::string DefaultSocketDirectory() {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') {
    struct stat st;
    if (stat(runtime, &st) == 0 && st.st_uid == geteuid()) return absl::StrCat(runtime, "/furrow");
  }
  return absl::StrCat("/tmp/furrow-", geteuid());
}

absl::StatusOr<uint64_t> FreeBytes(const std::string& path) {
  struct statvfs fs;
  if (statvfs(path.c_str(), &fs) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  return uint64_t{fs.f_bavail} * fs.f_frsize;
}

std::string ClockDomain() {
  absl::StatusOr<std::string> boot = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  char space[128];
  ssize_t n = readlink("/proc/self/ns/time", space, sizeof(space));
  if (!boot.ok() || n <= 0) return "";
  return absl::StrCat(absl::StripSuffix(*boot, "\n"), " ", absl::string_view(space, static_cast<size_t>(n)));
}

uint64_t HugePageBytes() {
  absl::StatusOr<std::string> rollup = ReadSmallFile("/proc/self/smaps_rollup");
  if (!rollup.ok()) return 0;
  for (absl::string_view line : absl::StrSplit(*rollup, '\n')) {
    uint64_t kilobytes = 0;
    if (absl::ConsumePrefix(&line, "ShmemPmdMapped:") && absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtoi(line, &kilobytes)) {
      return kilobytes << 10;
    }
  }
  return 0;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " bytes") : absl::StrFormat("%.4g %s", value, kUnits[unit]);
}

}  // namespace furrow::client
