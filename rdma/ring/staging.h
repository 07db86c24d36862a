// Staging: registered memory for record bodies under construction, with headroom in front of each for its
// record header. Owner thread only.
//
// Small bodies (answers, COMMIT-PRIMARY, ABORT, TRUNCATE) have memory of their own: what ends transactions
// does not wait for room that transactions hold.
#ifndef FURROW_RDMA_RING_STAGING_H_
#define FURROW_RDMA_RING_STAGING_H_

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "rdma/fabric.h"
#include "rdma/registered_pool.h"

namespace furrow::rdma {

class Staging {
 public:
  // Bytes in front of a body; more than the record header needs, so that bodies are 64-aligned.
  static constexpr size_t kHeadroom = 64;
  static constexpr size_t kSmallBody = RegisteredPool::kMinBytes - kHeadroom;

  static absl::StatusOr<std::unique_ptr<Staging>> Create(Fabric& fabric, MemoryFile small, MemoryFile large);

  // ResourceExhausted: everything is in use (bodies whose WRITEs are under way), or `bytes` is too large for
  // any record.
  absl::StatusOr<std::span<std::byte>> Take(size_t bytes);
  void Give(std::span<std::byte> body);

 private:
  RegisteredPool small_;
  RegisteredPool large_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_STAGING_H_
