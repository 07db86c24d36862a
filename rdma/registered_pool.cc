#include "rdma/registered_pool.h"

#include <algorithm>

#include "base/status_macros.h"

namespace furrow::rdma {

absl::Status RegisteredPool::Start(Fabric& fabric, MemoryFile memory) {
  memory_ = std::move(memory);
  FURROW_ASSIGN_OR_RETURN(registration_, fabric.Register(memory_, Access::kNone));
  runs_.emplace_back(memory_.data(), memory_.size() / kMinBytes * kMinBytes);
  return absl::OkStatus();
}

size_t RegisteredPool::ClassOf(size_t bytes) {
  size_t cls = 0;
  while ((kMinBytes << cls) < bytes) ++cls;
  return cls;
}

std::byte* RegisteredPool::Carve(size_t bytes) {
  for (auto& [at, left] : runs_) {
    if (left < bytes) continue;
    std::byte* buffer = at;
    at += bytes;
    left -= bytes;
    return buffer;
  }
  return nullptr;
}

void RegisteredPool::Merge() {
  for (size_t cls = 0; cls < kClasses; ++cls) {
    for (std::byte* buffer : free_[cls]) runs_.emplace_back(buffer, kMinBytes << cls);
    free_[cls].clear();
  }
  std::sort(runs_.begin(), runs_.end());
  size_t kept = 0;
  for (const auto& run : runs_) {
    if (run.second == 0) continue;
    if (kept > 0 && runs_[kept - 1].first + runs_[kept - 1].second == run.first) {
      runs_[kept - 1].second += run.second;
    } else {
      runs_[kept++] = run;
    }
  }
  runs_.resize(kept);
}

std::span<std::byte> RegisteredPool::Take(size_t bytes) {
  if (bytes > kMaxBytes) return {};
  const size_t cls = ClassOf(bytes);
  const size_t size = kMinBytes << cls;
  if (!free_[cls].empty()) {
    std::byte* buffer = free_[cls].back();
    free_[cls].pop_back();
    return {buffer, size};
  }
  std::byte* buffer = Carve(size);
  if (buffer == nullptr) {
    Merge();
    buffer = Carve(size);
  }
  return buffer == nullptr ? std::span<std::byte>() : std::span<std::byte>(buffer, size);
}

void RegisteredPool::Give(std::span<std::byte> buffer) {
  free_[ClassOf(buffer.size())].push_back(buffer.data());
}

}  // namespace furrow::rdma
