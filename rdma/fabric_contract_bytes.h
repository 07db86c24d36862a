// Bytes of the contract suite's requests.
#ifndef FURROW_RDMA_FABRIC_CONTRACT_BYTES_H_
#define FURROW_RDMA_FABRIC_CONTRACT_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace furrow::rdma {

inline void Fill(std::span<std::byte> bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((seed * 131 + i * 7 + i / 251) & 0xff);
}
inline bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
inline bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
// Memory that a peer writes is read as the fabric's contract allows: by words.
inline uint64_t LoadShared(std::span<std::byte> bytes) {
  return __atomic_load_n(reinterpret_cast<uint64_t*>(bytes.data()), __ATOMIC_ACQUIRE);
}

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_FABRIC_CONTRACT_BYTES_H_
