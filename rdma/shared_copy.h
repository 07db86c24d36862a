// Copies to and from memory that another thread or process reads or writes at the same time. Shared memory is
// touched in aligned 8-byte words, each one release store or acquire load (plain moves on x86); a byte at a
// time only at ends that are not aligned. The private side is touched with plain accesses and may have any
// alignment.
#ifndef FURROW_RDMA_SHARED_COPY_H_
#define FURROW_RDMA_SHARED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace furrow::rdma {

inline uint64_t LoadWord(const std::byte* shared) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(shared), __ATOMIC_ACQUIRE);
}
inline void StoreWord(std::byte* shared, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(shared), value, __ATOMIC_RELEASE);
}

namespace internal {

inline bool WordAligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 7) == 0; }

inline void LoadBytes(std::byte* to, const std::byte* shared, size_t bytes) {
  const auto* bytes_in = reinterpret_cast<const uint8_t*>(shared);
  for (size_t i = 0; i < bytes; ++i) to[i] = std::byte{__atomic_load_n(bytes_in + i, __ATOMIC_ACQUIRE)};
}
inline void StoreBytes(std::byte* shared, const std::byte* from, size_t bytes) {
  auto* bytes_out = reinterpret_cast<uint8_t*>(shared);
  for (size_t i = 0; i < bytes; ++i)
    __atomic_store_n(bytes_out + i, std::to_integer<uint8_t>(from[i]), __ATOMIC_RELEASE);
}
inline void MoveWordIn(std::byte* to, const std::byte* shared) {
  const uint64_t word = LoadWord(shared);
  std::memcpy(to, &word, 8);
}
inline void MoveWordOut(std::byte* shared, const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, 8);
  StoreWord(shared, word);
}

// Bytes before the first aligned word of `shared`, at most `bytes`.
inline size_t UnalignedHead(const std::byte* shared, size_t bytes) {
  const size_t head = -reinterpret_cast<uintptr_t>(shared) & 7;
  return head < bytes ? head : bytes;
}

}  // namespace internal

// Reads `bytes` of shared memory, lowest address first.
inline void CopyFromShared(std::byte* to, const std::byte* shared, size_t bytes) {
  if (!internal::WordAligned(shared)) [[unlikely]] {
    const size_t head = internal::UnalignedHead(shared, bytes);
    internal::LoadBytes(to, shared, head);
    to += head, shared += head, bytes -= head;
  }
  for (; bytes >= 64; to += 64, shared += 64, bytes -= 64) {
    internal::MoveWordIn(to, shared);
    internal::MoveWordIn(to + 8, shared + 8);
    internal::MoveWordIn(to + 16, shared + 16);
    internal::MoveWordIn(to + 24, shared + 24);
    internal::MoveWordIn(to + 32, shared + 32);
    internal::MoveWordIn(to + 40, shared + 40);
    internal::MoveWordIn(to + 48, shared + 48);
    internal::MoveWordIn(to + 56, shared + 56);
  }
  for (; bytes >= 8; to += 8, shared += 8, bytes -= 8) internal::MoveWordIn(to, shared);
  internal::LoadBytes(to, shared, bytes);
}

// Writes `bytes` of shared memory. The first word is stored last: a reader that acquires it sees the rest.
inline void CopyToShared(std::byte* shared, const std::byte* from, size_t bytes) {
  if (!internal::WordAligned(shared)) [[unlikely]] {
    const size_t head = internal::UnalignedHead(shared, bytes);
    internal::StoreBytes(shared, from, head);
    shared += head, from += head, bytes -= head;
  }
  if (bytes < 8) {
    internal::StoreBytes(shared, from, bytes);
    return;
  }
  std::byte* const first_shared = shared;
  const std::byte* const first_from = from;
  shared += 8, from += 8, bytes -= 8;
  for (; bytes >= 64; shared += 64, from += 64, bytes -= 64) {
    internal::MoveWordOut(shared, from);
    internal::MoveWordOut(shared + 8, from + 8);
    internal::MoveWordOut(shared + 16, from + 16);
    internal::MoveWordOut(shared + 24, from + 24);
    internal::MoveWordOut(shared + 32, from + 32);
    internal::MoveWordOut(shared + 40, from + 40);
    internal::MoveWordOut(shared + 48, from + 48);
    internal::MoveWordOut(shared + 56, from + 56);
  }
  for (; bytes >= 8; shared += 8, from += 8, bytes -= 8) internal::MoveWordOut(shared, from);
  internal::StoreBytes(shared, from, bytes);
  internal::MoveWordOut(first_shared, first_from);
}

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHARED_COPY_H_
