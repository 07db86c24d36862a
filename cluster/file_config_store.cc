#include "cluster/file_config_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace furrow::cluster {
namespace {

constexpr char kMagic[] = "FURROWCF";
constexpr uint32_t kFormat = 1;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kMaxBytes = 1 << 20;
constexpr char kFile[] = "configuration";
constexpr char kTemporary[] = "configuration.new";
constexpr char kLock[] = "lock";

template <class T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class T>
T Get(const std::string& in, size_t at) {
  T value;
  memcpy(&value, in.data() + at, sizeof(value));
  return value;
}

absl::Status Errno(int error, absl::string_view what, absl::string_view path) {
  absl::string_view remedy = "";
  if (error == EACCES || error == EPERM || error == EROFS) {
    remedy = ": use a directory that this user may write to";
  } else if (error == ENOSPC || error == EDQUOT) {
    remedy = ": make room on that file system";
  }
  return absl::ErrnoToStatus(error, absl::StrCat("config store: cannot ", what, " ", path, remedy));
}

std::string Frame(uint64_t version, const std::string& body) {
  std::string bytes(kMagic, 8);
  Put(&bytes, kFormat);
  Put(&bytes, static_cast<uint32_t>(body.size()));
  Put(&bytes, version);
  Put(&bytes, Hash64(body, Hash64(bytes)));
  return bytes + body;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("config store: there is no ", path));
    return Errno(errno, "open", path);
  }
  absl::Cleanup close_fd = [fd] { close(fd); };
  std::string bytes;
  char buffer[4096];
  while (true) {
    ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(errno, "read", path);
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
    if (bytes.size() > kMaxBytes)
      return absl::DataLossError(absl::StrCat(path, " is too large to be a configuration"));
  }
}

absl::StatusOr<StoredConfiguration> Parse(const std::string& path, const std::string& bytes) {
  auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged (", what,
                     "): restore it from a copy, or start a new cluster in a fresh directory"));
  };
  if (bytes.size() < kHeaderBytes) return damaged("it is too short");
  if (bytes.compare(0, 8, kMagic) != 0) return damaged("it is no configuration file");
  if (uint32_t format = Get<uint32_t>(bytes, 8); format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has format ", format,
                                                      ", and this Furrow knows formats up to ", kFormat,
                                                      ": use the newer Furrow that wrote it"));
  }
  if (Get<uint32_t>(bytes, 12) != bytes.size() - kHeaderBytes) return damaged("its length is wrong");
  StoredConfiguration stored;
  stored.version = Get<uint64_t>(bytes, 16);
  std::string body = bytes.substr(kHeaderBytes);
  if (Get<uint64_t>(bytes, 24) != Hash64(body, Hash64(std::string_view(bytes).substr(0, 24)))) {
    return damaged("its checksum is wrong");
  }
  absl::StatusOr<Configuration> configuration = DecodeConfiguration(body);
  if (!configuration.ok()) return damaged(configuration.status().message());
  stored.configuration = *std::move(configuration);
  return stored;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileConfigStore>> FileConfigStore::Open(Options options) {
  if (mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Errno(errno, "make the directory", options.directory);
  }
  std::unique_ptr<FileConfigStore> store(new FileConfigStore(std::move(options)));
  FURROW_RETURN_IF_ERROR(store->Lock());
  // What a swap that did not end has left: it was never the configuration.
  if (unlink(store->Path(kTemporary).c_str()) != 0 && errno != ENOENT) {
    return Errno(errno, "remove", store->Path(kTemporary));
  }
  absl::StatusOr<StoredConfiguration> stored = store->Read();
  if (!stored.ok() && !absl::IsNotFound(stored.status())) return stored.status();
  const std::string& expected = store->options_.expect_cluster_id;
  if (stored.ok() && !expected.empty() && stored->configuration.cluster_id != expected) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the config store ", store->options_.directory, " belongs to cluster ",
        stored->configuration.cluster_id, ", not to ", expected, ": give that cluster's own directory"));
  }
  return store;
}

FileConfigStore::~FileConfigStore() {
  if (lock_fd_ >= 0) close(lock_fd_);  // which ends the lock
}

absl::Status FileConfigStore::Lock() {
  const std::string path = Path(kLock);
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd_ < 0) return Errno(errno, "write to", options_.directory);
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Errno(errno, "lock", path);
    absl::StatusOr<std::string> holder = ReadFile(path);
    return absl::FailedPreconditionError(
        absl::StrCat("the config store ", options_.directory, " is in use by process ",
                     holder.ok() && !holder->empty() ? absl::StripSuffix(*holder, "\n") : "(unknown)",
                     ": one cluster per directory; stop that process or give another directory"));
  }
  std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock_fd_, 0) != 0 ||
      pwrite(lock_fd_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Errno(errno, "write", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredConfiguration> FileConfigStore::Read() {
  MutexLock lock(&mutex_);
  return ReadLocked();
}

absl::StatusOr<StoredConfiguration> FileConfigStore::ReadLocked() {
  FURROW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(Path(kFile)));
  return Parse(Path(kFile), bytes);
}

absl::Status FileConfigStore::CompareAndSwap(uint64_t expected, const Configuration& next) {
  FURROW_RETURN_IF_ERROR(Validate(next));
  MutexLock lock(&mutex_);
  absl::StatusOr<StoredConfiguration> now = ReadLocked();
  if (!now.ok() && !absl::IsNotFound(now.status())) return now.status();
  const uint64_t version = now.ok() ? now->version : 0;
  if (version != expected) {
    return absl::AbortedError(absl::StrCat("the config store holds version ", version, ", not ", expected));
  }
  return Replace(Frame(version + 1, Encode(next)));
}

absl::Status FileConfigStore::Replace(const std::string& bytes) {
  auto failed = [&](Step step) {
    errno = options_.fail ? options_.fail(step) : 0;
    return errno != 0;
  };
  const std::string temporary = Path(kTemporary);
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Errno(errno, "write", temporary);
  absl::Cleanup undo = [&] {
    close(fd);
    unlink(temporary.c_str());
  };
  for (size_t done = 0; done < bytes.size();) {
    if (failed(Step::kWrite)) return Errno(errno, "write", temporary);
    ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(errno, "write", temporary);
    done += static_cast<size_t>(n);
  }
  if (failed(Step::kSyncFile) || fsync(fd) != 0) return Errno(errno, "sync", temporary);
  if (failed(Step::kRename) || rename(temporary.c_str(), Path(kFile).c_str()) != 0) {
    return Errno(errno, "replace", Path(kFile));
  }
  std::move(undo).Cancel();
  close(fd);
  // From here on the change is visible, but a power cut may still undo it.
  int directory = open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool synced = directory >= 0 && !failed(Step::kSyncDirectory) && fsync(directory) == 0;
  int error = errno;
  if (directory >= 0) close(directory);
  if (synced) return absl::OkStatus();
  return absl::UnknownError(Errno(error, "sync the directory", options_.directory).message());
}

absl::Status FileConfigStore::Destroy() {
  MutexLock lock(&mutex_);
  for (const char* name : {kFile, kTemporary, kLock}) {
    if (unlink(Path(name).c_str()) != 0 && errno != ENOENT) return Errno(errno, "remove", Path(name));
  }
  if (rmdir(options_.directory.c_str()) != 0 && errno != ENOTEMPTY && errno != ENOENT) {
    return Errno(errno, "remove", options_.directory);
  }
  return absl::OkStatus();
}

}  // namespace furrow::cluster
