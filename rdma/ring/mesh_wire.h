// What two meshes tell each other when a connection opens, in the private data of request and answer.
//   off  size  field                              both in little-endian
//   0    4     magic and format
//   4    4     node            8   8  incarnation         16  2  worker       18  2  zero
//   20   4     zero
//   request: 24  32  reply ring      56  16  word of the log's head     72  16  word of the messages' head
//   answer:  24  32  log ring        56  32  message ring               88  16  word of the replies' head
// A ring is {address 8, key 4, capacity 4, nonce 8, channel 1, zero 7}; a word is {address 8, key 4, zero 4}.
#ifndef FURROW_RDMA_RING_MESH_WIRE_H_
#define FURROW_RDMA_RING_MESH_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "rdma/ring/mesh.h"

namespace furrow::rdma {

inline constexpr uint32_t kMeshMagic = 0x4d525546 + 1;  // "FURM", format 1

struct WireRing {
  uint64_t address;
  uint32_t key;
  uint32_t capacity;
  uint64_t nonce;
  uint8_t channel;
  uint8_t zero[7];
};
static_assert(sizeof(WireRing) == 32);

struct WireWord {
  uint64_t address;
  uint32_t key;
  uint32_t zero;
};
static_assert(sizeof(WireWord) == 16);

struct WireIdentity {
  uint32_t magic;
  uint32_t node;
  uint64_t incarnation;
  uint16_t worker;
  uint16_t zero0;
  uint32_t zero1;
};
static_assert(sizeof(WireIdentity) == 24);

struct MeshRequest {
  WireIdentity from;
  WireRing replies;
  WireWord log_head;
  WireWord message_head;
};
static_assert(sizeof(MeshRequest) == 88 && std::is_trivially_copyable_v<MeshRequest>);

struct MeshAnswer {
  WireIdentity from;
  WireRing log;
  WireRing messages;
  WireWord reply_head;
};
static_assert(sizeof(MeshAnswer) == 104 && std::is_trivially_copyable_v<MeshAnswer>);
static_assert(sizeof(MeshAnswer) <= Fabric::kMaxPrivateData);

WireIdentity ToWire(const WorkerIdentity& identity);
WireRing ToWire(const RingDescriptor& ring);
WireWord ToWire(const RemoteAddress& word);
WorkerIdentity FromWire(const WireIdentity& identity);
RingDescriptor FromWire(const WireRing& ring);
RemoteAddress FromWire(const WireWord& word);

template <class T>
std::string Pack(const T& message) {
  return std::string(reinterpret_cast<const char*>(&message), sizeof message);
}
// FailedPrecondition: another length or format: another version of Furrow, or none at all.
absl::StatusOr<MeshRequest> UnpackRequest(std::string_view bytes);
absl::StatusOr<MeshAnswer> UnpackAnswer(std::string_view bytes);
// InvalidArgument unless capacity is a power of two that holds two records of the largest size.
absl::Status CheckRing(const WireRing& ring, uint32_t max_record);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_MESH_WIRE_H_
