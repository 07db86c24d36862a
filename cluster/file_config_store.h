// FileConfigStore: the config store of a cluster on one host. One file, replaced as a whole: written beside,
// fsynced, renamed over, directory fsynced. A lock file keeps a second writer away, also in another process.
//
// Layout of the file `configuration` (little-endian):
//   off  size  field     meaning
//   0    8     magic     "FURROWCF"
//   8    4     format    1; a newer one is refused with a sentence
//   12   4     length    bytes of the body
//   16   8     version   of the store; grows with each swap
//   24   8     checksum  XXH3 of bytes 0..23 and the body
//   32   len   body      message Configuration of proto/cluster.proto
#ifndef FURROW_CLUSTER_FILE_CONFIG_STORE_H_
#define FURROW_CLUSTER_FILE_CONFIG_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "cluster/config_store.h"

namespace furrow::cluster {

class FileConfigStore final : public ConfigStore {
 public:
  // The steps of a swap that a test can make fail.
  enum class Step { kWrite, kSyncFile, kRename, kSyncDirectory };
  struct Options {
    std::string directory;          // made if it is not there (its parent must be)
    std::string expect_cluster_id;  // if not empty: what is stored must belong to this cluster
    // For tests: an errno that the step ends with (0: none). A step that fails so has not taken place.
    std::function<int(Step)> fail;
  };
  // FailedPrecondition: another process has the store open, or it belongs to another cluster, or its format
  // is newer. PermissionDenied: the directory cannot be written. DataLoss: the file is damaged.
  static absl::StatusOr<std::unique_ptr<FileConfigStore>> Open(Options options);
  ~FileConfigStore() override;

  absl::StatusOr<StoredConfiguration> Read() override;
  absl::Status CompareAndSwap(uint64_t expected, const Configuration& next) override;
  // Removes the stored configuration and the directory, if nothing else is in there: the cluster has ended.
  absl::Status Destroy();

 private:
  explicit FileConfigStore(Options options) : options_(std::move(options)) {}
  absl::Status Lock();
  absl::Status Replace(const std::string& bytes);
  absl::StatusOr<StoredConfiguration> ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Path(const char* name) const { return options_.directory + "/" + name; }

  const Options options_;
  int lock_fd_ = -1;
  Mutex mutex_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_FILE_CONFIG_STORE_H_
