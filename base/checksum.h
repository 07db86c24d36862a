// Checksums: XXH3, 64 bits. For corruption and for keyed stale-byte detection (rings); not against an
// attacker who knows the seed. The value of the same bytes and seed is the same on every machine and part of
// file and wire formats.
#ifndef FURROW_BASE_CHECKSUM_H_
#define FURROW_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace furrow {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t Hash64(std::string_view bytes, uint64_t seed = 0) {
  return Hash64(std::as_bytes(std::span(bytes.data(), bytes.size())), seed);
}

}  // namespace furrow

#endif  // FURROW_BASE_CHECKSUM_H_
