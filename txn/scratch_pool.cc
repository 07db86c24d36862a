#include "txn/scratch_pool.h"

#include "base/status_macros.h"

namespace furrow::txn {

absl::Status ScratchPool::Start(rdma::Fabric& fabric, MemoryFile memory) {
  memory_ = std::move(memory);
  FURROW_ASSIGN_OR_RETURN(registration_, fabric.Register(memory_, rdma::Access::kNone));
  return absl::OkStatus();
}

size_t ScratchPool::ClassOf(size_t bytes) {
  size_t cls = 0;
  while ((size_t{1} << (kMinShift + cls)) < bytes) ++cls;
  return cls;
}

std::span<std::byte> ScratchPool::Take(size_t bytes) {
  size_t cls = ClassOf(bytes);
  if (cls >= kClasses) return {};
  size_t size = size_t{1} << (kMinShift + cls);
  if (!free_[cls].empty()) {
    std::byte* p = free_[cls].back();
    free_[cls].pop_back();
    return {p, size};
  }
  if (used_ + size > memory_.size()) return {};
  std::byte* p = memory_.data() + used_;
  used_ += size;
  return {p, size};
}

void ScratchPool::Give(std::span<std::byte> buffer) {
  free_[ClassOf(buffer.size())].push_back(buffer.data());
}

}  // namespace furrow::txn
