#include "base/ids.h"

#include "absl/strings/str_cat.h"

namespace furrow {

std::string ToString(Address address) {
  return absl::StrCat(address.region().value(), ":0x", absl::Hex(address.offset()));
}

std::string ToString(const TxId& id) {
  return absl::StrCat("c", id.config.value(), ".n", id.node.value(), ".w", id.worker.value(), ".l", id.local);
}

}  // namespace furrow
