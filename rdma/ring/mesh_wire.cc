#include "rdma/ring/mesh_wire.h"

#include <bit>
#include <cstring>

namespace furrow::rdma {

WireIdentity ToWire(const WorkerIdentity& identity) {
  return WireIdentity{.magic = kMeshMagic,
                      .node = identity.node.value(),
                      .incarnation = identity.incarnation.value(),
                      .worker = identity.worker.value(),
                      .zero0 = 0,
                      .zero1 = 0};
}

WireRing ToWire(const RingDescriptor& ring) {
  return WireRing{.address = ring.data.address,
                  .key = ring.data.key.value(),
                  .capacity = ring.capacity,
                  .nonce = ring.nonce,
                  .channel = ring.channel,
                  .zero = {}};
}

WireWord ToWire(const RemoteAddress& word) { return WireWord{word.address, word.key.value(), 0}; }

WorkerIdentity FromWire(const WireIdentity& identity) {
  return WorkerIdentity{NodeId(identity.node), Incarnation(identity.incarnation), WorkerId(identity.worker)};
}

RingDescriptor FromWire(const WireRing& ring) {
  return RingDescriptor{RemoteAddress{ring.address, RemoteKey(ring.key)}, ring.capacity, ring.channel,
                        ring.nonce};
}

RemoteAddress FromWire(const WireWord& word) { return RemoteAddress{word.address, RemoteKey(word.key)}; }

namespace {

template <class T>
absl::StatusOr<T> Unpack(std::string_view bytes) {
  T message;
  if (bytes.size() != sizeof message) {
    return absl::FailedPreconditionError(
        "the peer speaks another version of the ring protocol; run the same release "
        "on all members");
  }
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.from.magic != kMeshMagic || message.from.zero0 != 0 || message.from.zero1 != 0) {
    return absl::FailedPreconditionError("the peer is not a Furrow member of this version");
  }
  return message;
}

}  // namespace

absl::StatusOr<MeshRequest> UnpackRequest(std::string_view bytes) { return Unpack<MeshRequest>(bytes); }
absl::StatusOr<MeshAnswer> UnpackAnswer(std::string_view bytes) { return Unpack<MeshAnswer>(bytes); }

absl::Status CheckRing(const WireRing& ring, uint32_t max_record) {
  if (!std::has_single_bit(ring.capacity) || ring.capacity / 2 < max_record) {
    return absl::InvalidArgumentError(
        "the peer's ring is smaller than two records of our largest size; use the same "
        "ring settings on all members");
  }
  return absl::OkStatus();
}

}  // namespace furrow::rdma
