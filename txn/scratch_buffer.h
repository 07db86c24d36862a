// ScratchBuffer: registered memory into which READs place their bytes; goes back when it dies.
#ifndef FURROW_TXN_SCRATCH_BUFFER_H_
#define FURROW_TXN_SCRATCH_BUFFER_H_

#include <cstddef>
#include <span>

#include "rdma/registered_pool.h"

namespace furrow::txn {

class ScratchBuffer {
 public:
  // empty(): not that much is free now; what is under way will give some back.
  ScratchBuffer(rdma::RegisteredPool& pool, size_t bytes) : pool_(pool), bytes_(pool.Take(bytes)) {}
  ~ScratchBuffer() {
    if (!bytes_.empty()) pool_.Give(bytes_);
  }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  rdma::RegisteredPool& pool_;
  std::span<std::byte> bytes_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_SCRATCH_BUFFER_H_
