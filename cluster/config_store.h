// ConfigStore: keeps the configuration and changes it only by compare-and-swap. It is contacted once per
// change, never on the data path. Implementations: FileConfigStore (one host); later etcd (several hosts).
// Thread-safe. May block.
#ifndef FURROW_CLUSTER_CONFIG_STORE_H_
#define FURROW_CLUSTER_CONFIG_STORE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/configuration.h"

namespace furrow::cluster {

struct StoredConfiguration {
  uint64_t version = 0;  // of the store; grows with each swap
  Configuration configuration;
};

class ConfigStore {
 public:
  virtual ~ConfigStore() = default;
  // NotFound: no configuration was ever stored (its version is 0). DataLoss: what is there is damaged.
  // FailedPrecondition: written by a newer Furrow. Unavailable: cannot be read now.
  virtual absl::StatusOr<StoredConfiguration> Read() = 0;
  // Replaces the configuration if its version is `expected` (0: there is none yet). Aborted: it is another
  // one. Unknown: it may or may not have happened; use Swap(), which settles that.
  virtual absl::Status CompareAndSwap(uint64_t expected, const Configuration& next) = 0;
};

// CompareAndSwap with an unknown result settled by reading. OK: `next` is stored. Aborted: another change
// won. Other errors: nothing has changed, or (Unknown) the store could not be read either.
absl::Status Swap(ConfigStore& store, uint64_t expected, const Configuration& next);

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CONFIG_STORE_H_
