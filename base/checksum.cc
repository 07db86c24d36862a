#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace furrow {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace furrow
