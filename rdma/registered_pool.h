// RegisteredPool: buffers of registered memory, for READ targets and for record bodies. Owner thread only.
//
// Buffers are powers of two from 256 B. Those that come back are kept by size and handed out again; when a
// size runs out, all that is free is put together again and cut anew, so that a burst of small buffers does
// not take the room of large ones for good.
#ifndef FURROW_RDMA_REGISTERED_POOL_H_
#define FURROW_RDMA_REGISTERED_POOL_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/memory_file.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

class RegisteredPool {
 public:
  static constexpr size_t kMinBytes = 256;
  static constexpr size_t kMaxBytes = size_t{2} << 20;

  absl::Status Start(Fabric& fabric, MemoryFile memory);

  // At least `bytes`, 64-aligned; its size is what Give() wants back. Empty: more than kMaxBytes, or not that
  // much is free in one piece now.
  std::span<std::byte> Take(size_t bytes);
  void Give(std::span<std::byte> buffer);
  size_t bytes() const { return memory_.size(); }

 private:
  static constexpr size_t kClasses = 14;  // 256 B .. 2 MB
  static size_t ClassOf(size_t bytes);
  std::byte* Carve(size_t bytes);
  void Merge();

  MemoryFile memory_;
  std::unique_ptr<MemoryRegion> registration_;
  std::array<std::vector<std::byte*>, kClasses> free_;
  std::vector<std::pair<std::byte*, size_t>> runs_;  // free and not cut, by address after Merge()
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_REGISTERED_POOL_H_
