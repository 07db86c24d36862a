#include "rdma/ring/staging.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rdma/ring/ring.h"

namespace furrow::rdma {
namespace {

// At the start of a buffer, inside the headroom and in front of the record header.
struct Prefix {
  size_t bytes;  // of the buffer
};

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(Fabric& fabric, MemoryFile small, MemoryFile large) {
  auto staging = std::make_unique<Staging>();
  FURROW_RETURN_IF_ERROR(staging->small_.Start(fabric, std::move(small)));
  FURROW_RETURN_IF_ERROR(staging->large_.Start(fabric, std::move(large)));
  return staging;
}

absl::StatusOr<std::span<std::byte>> Staging::Take(size_t bytes) {
  static_assert(kHeadroom >= sizeof(Prefix) + sizeof(RecordHeader));
  const size_t padded = (bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
  RegisteredPool& pool = padded <= kSmallBody ? small_ : large_;
  std::span<std::byte> buffer = pool.Take(kHeadroom + padded);
  if (buffer.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("no room to stage a record of ", bytes, " bytes in the ",
                                                     pool.bytes(), " bytes that staging_bytes gives it"));
  }
  const Prefix prefix{buffer.size()};
  std::memcpy(buffer.data(), &prefix, sizeof prefix);
  std::byte* body = buffer.data() + kHeadroom;
  std::memset(body + bytes, 0, padded - bytes);
  return std::span<std::byte>(body, bytes);
}

void Staging::Give(std::span<std::byte> body) {
  std::byte* buffer = body.data() - kHeadroom;
  Prefix prefix;
  std::memcpy(&prefix, buffer, sizeof prefix);
  const size_t padded = (body.size() + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
  (padded <= kSmallBody ? small_ : large_).Give({buffer, prefix.bytes});
}

}  // namespace furrow::rdma
