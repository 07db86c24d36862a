#include "cluster/config_store.h"

#include "absl/strings/str_cat.h"

namespace furrow::cluster {

absl::Status Swap(ConfigStore& store, uint64_t expected, const Configuration& next) {
  absl::Status swapped = store.CompareAndSwap(expected, next);
  if (!absl::IsUnknown(swapped)) return swapped;
  absl::StatusOr<StoredConfiguration> now = store.Read();
  if (!now.ok()) {
    if (absl::IsNotFound(now.status()) && expected == 0) {
      return absl::UnavailableError(absl::StrCat("the configuration was not stored: ", swapped.message()));
    }
    return absl::UnknownError(absl::StrCat("whether configuration ", next.id.value(),
                                           " was stored is unknown (", swapped.message(),
                                           "), and the store cannot be read: ", now.status().message()));
  }
  if (now->version == expected) {
    return absl::UnavailableError(absl::StrCat("the configuration was not stored: ", swapped.message()));
  }
  if (Encode(now->configuration) == Encode(next)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("configuration ", now->configuration.id.value(), " was stored by another"));
}

}  // namespace furrow::cluster
