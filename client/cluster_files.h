// The files by which a cluster on this host is found: DIR/cluster (its id and the addresses of its storage
// members, rewritten at each change of configuration) and DIR/secret; and the directories that a member makes
// for its sockets and memory.
#ifndef FURROW_CLIENT_CLUSTER_FILES_H_
#define FURROW_CLIENT_CLUSTER_FILES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace furrow::client {

// DIR/cluster. Text: one "key=value" a line.
struct ClusterFile {
  std::string cluster_id;
  std::vector<std::string> addresses;  // control addresses, the manager's first
};
absl::Status WriteClusterFile(const std::string& directory, const ClusterFile& file);
// DataLoss: what is there is no such file.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& directory);
// host:port, where a member may be reached.
bool IsAddress(const std::string& text);

// A directory of this process's, removed with all that is in it when this dies.
class OwnedDirectory {
 public:
  OwnedDirectory() = default;
  OwnedDirectory(OwnedDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  OwnedDirectory& operator=(OwnedDirectory&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~OwnedDirectory();
  // Makes `path` (0700). AlreadyExists: it is there already.
  static absl::StatusOr<OwnedDirectory> Make(const std::string& path);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A lock file held by this process; it is removed with this.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~FileLock();
  // FailedPrecondition: another process holds it; the message names that.
  static absl::StatusOr<FileLock> Take(const std::string& path);
  // Adds a line to the file, for who cleans up if this process is killed; the first one is its pid.
  absl::Status Note(const std::string& line);

 private:
  static absl::StatusOr<FileLock> TakeOnce(const std::string& path);
  int fd_ = -1;
  std::string path_;
};

// Makes `path` (0700) if it is not there. PermissionDenied if others may look into it.
absl::Status MakePrivateDirectory(const std::string& path);
// FailedPrecondition unless files can be made in `path`.
absl::Status CheckWritable(const std::string& path, const std::string& option);
// $XDG_RUNTIME_DIR/furrow, or /tmp/furrow-UID where there is none.
std::string DefaultSocketDirectory();
// Bytes free in the file system of `path`.
absl::StatusOr<uint64_t> FreeBytes(const std::string& path);
// Boot id and time namespace: equal for processes that share CLOCK_MONOTONIC. Empty if unknown.
std::string ClockDomain();
// Bytes of this process's memory files that the kernel maps with huge pages now; 0 if it does not say.
uint64_t HugePageBytes();
// "64 MB", "1.5 GB": for people.
std::string FormatBytes(uint64_t bytes);

}  // namespace furrow::client

#endif  // FURROW_CLIENT_CLUSTER_FILES_H_
