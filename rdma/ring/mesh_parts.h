// The parts of a RingMesh: what it owns per connection. For rdma/ring only.
#ifndef FURROW_RDMA_RING_MESH_PARTS_H_
#define FURROW_RDMA_RING_MESH_PARTS_H_

#include <memory>
#include <string>

#include "rdma/ring/mesh.h"

namespace furrow::rdma {

// A ring in our memory, and its registration for the peer's writes.
struct OwnRing {
  MemoryFile memory;
  std::unique_ptr<MemoryRegion> registration;  // null: only we write it
  InboundRing inbound;

  RingDescriptor Descriptor(uint8_t channel, uint64_t nonce) const {
    return RingDescriptor{registration->remote_address().Plus(kRingHeadBytes), inbound.reader->capacity(),
                          channel, nonce};
  }
};

struct RingMesh::Peer {
  OutboundLink link;
  std::unique_ptr<Connection> connection;
  OwnRing replies;
  std::byte* log_head = nullptr;
  std::byte* message_head = nullptr;
  std::string request;  // private data
  Wires wires;
};

struct RingMesh::Accepted {
  std::unique_ptr<Connection> connection;
  std::string
      request;  // the private data that the peer sent: finds the prepared one when the connection is there
  RingDescriptor reply_ring;
  RemoteAddress log_head;
  RemoteAddress message_head;
  std::byte* reply_head = nullptr;
  OwnRing log;
  OwnRing messages;
  Wires wires;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_MESH_PARTS_H_
