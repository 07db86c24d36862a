// Staging: registered memory for record bodies under construction, with headroom in front of each for its
// record header. Owner thread only.
#ifndef FURROW_RDMA_RING_STAGING_H_
#define FURROW_RDMA_RING_STAGING_H_

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

class Staging {
 public:
  // Bytes in front of a body; more than the record header needs, so that bodies are 64-aligned.
  static constexpr size_t kHeadroom = 64;

  static absl::StatusOr<std::unique_ptr<Staging>> Create(Fabric& fabric, MemoryFile memory);

  // ResourceExhausted: everything is in use (bodies whose WRITEs are under way), or `bytes` is too large.
  absl::StatusOr<std::span<std::byte>> Take(size_t bytes);
  void Give(std::span<std::byte> body);

 private:
  static constexpr size_t kMinShift = 8;  // 256 B .. 4 MB, powers of two
  static constexpr size_t kClasses = 15;
  struct Prefix {
    size_t cls;  // of the buffer, at its start: inside the headroom, in front of the record header
  };
  MemoryFile memory_;
  std::unique_ptr<MemoryRegion> registration_;
  size_t used_ = 0;
  std::array<std::vector<std::byte*>, kClasses> free_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_STAGING_H_
