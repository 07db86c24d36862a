// ScratchPool: registered buffers into which READs place their bytes. Owner thread only.
#ifndef FURROW_TXN_SCRATCH_POOL_H_
#define FURROW_TXN_SCRATCH_POOL_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/memory_file.h"
#include "rdma/fabric.h"

namespace furrow::txn {

class ScratchPool {
 public:
  // Power-of-two buffers from 256 B to 1 MB, carved from `memory` and recycled by size.
  absl::Status Start(rdma::Fabric& fabric, MemoryFile memory);

  // Empty: all is in use (the caller waits and tries again). bytes <= kMaxBytes.
  std::span<std::byte> Take(size_t bytes);
  void Give(std::span<std::byte> buffer);
  static constexpr size_t kMaxBytes = (size_t{1} << 20) + 4096;

 private:
  static constexpr size_t kMinShift = 8;
  static constexpr size_t kClasses = 14;  // 256 B .. 2 MB
  static size_t ClassOf(size_t bytes);
  MemoryFile memory_;
  std::unique_ptr<rdma::MemoryRegion> registration_;
  size_t used_ = 0;
  std::array<std::vector<std::byte*>, kClasses> free_;
};

// A buffer that goes back when it dies.
class ScratchBuffer {
 public:
  ScratchBuffer(ScratchPool& pool, size_t bytes) : pool_(pool), bytes_(pool.Take(bytes)) {}
  ~ScratchBuffer() {
    if (!bytes_.empty()) pool_.Give(bytes_);
  }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  ScratchPool& pool_;
  std::span<std::byte> bytes_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_SCRATCH_POOL_H_
