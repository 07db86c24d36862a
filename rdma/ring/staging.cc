#include "rdma/ring/staging.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "rdma/ring/ring.h"

namespace furrow::rdma {

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(Fabric& fabric, MemoryFile memory) {
  auto staging = std::make_unique<Staging>();
  staging->memory_ = std::move(memory);
  FURROW_ASSIGN_OR_RETURN(staging->registration_, fabric.Register(staging->memory_, Access::kNone));
  return staging;
}

absl::StatusOr<std::span<std::byte>> Staging::Take(size_t bytes) {
  static_assert(kHeadroom >= sizeof(Prefix) + sizeof(RecordHeader));
  const size_t padded = (bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
  const size_t need = kHeadroom + padded;
  size_t cls = 0;
  while (cls < kClasses && (size_t{1} << (kMinShift + cls)) < need) ++cls;
  std::byte* buffer = nullptr;
  size_t size = size_t{1} << (kMinShift + cls);
  if (cls < kClasses && free_[cls].empty() && used_ + size <= memory_.size()) {
    buffer = memory_.data() + used_;
    used_ += size;
  }
  for (size_t larger = cls; buffer == nullptr && larger < kClasses; ++larger) {
    if (free_[larger].empty()) continue;
    buffer = free_[larger].back();
    free_[larger].pop_back();
    cls = larger;
  }
  if (buffer == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room to stage a record of ", bytes, " bytes; staging_bytes is ", memory_.size()));
  }
  const Prefix prefix{cls};
  std::memcpy(buffer, &prefix, sizeof prefix);
  std::byte* body = buffer + kHeadroom;
  std::memset(body + bytes, 0, padded - bytes);
  return std::span<std::byte>(body, bytes);
}

void Staging::Give(std::span<std::byte> body) {
  std::byte* buffer = body.data() - kHeadroom;
  Prefix prefix;
  std::memcpy(&prefix, buffer, sizeof prefix);
  FURROW_CHECK(prefix.cls < kClasses);
  free_[prefix.cls].push_back(buffer);
}

}  // namespace furrow::rdma
