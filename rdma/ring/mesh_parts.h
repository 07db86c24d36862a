// The parts of a RingMesh: what it owns per connection. For rdma/ring only.
#ifndef FURROW_RDMA_RING_MESH_PARTS_H_
#define FURROW_RDMA_RING_MESH_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "rdma/ring/mesh.h"

namespace furrow::rdma {

// The memory of one ring, registered for its one writer, and behind the data the head words of the rings that
// we write to that same peer:
//   off             size   field
//   0               64     head line of the ring   } rdma/ring/ring.h
//   64              cap    data of the ring        }
//   64 + cap        64*n   head words, 8 bytes at the start of each line; written by the peer
// A word lives and dies with the memory that only this connection's peer was ever told of, so no word is ever
// another connection's. Gives the memory back when it is destroyed. Owner thread, or whoever owns it alone.
class RingMemory {
 public:
  static constexpr size_t kWordBytes = 64;
  static constexpr size_t Bytes(uint32_t capacity, size_t words) {
    return kRingHeadBytes + capacity + words * kWordBytes;
  }

  RingMemory() = default;
  // `free` (MeshOptions::free_memory) is called with the file when it goes.
  RingMemory(MemoryFile file, uint32_t capacity, std::function<void(MemoryFile)> free)
      : file_(std::move(file)), capacity_(capacity), free_(std::move(free)) {}
  RingMemory(RingMemory&& other) noexcept { *this = std::move(other); }
  RingMemory& operator=(RingMemory&& other) noexcept {
    GiveBack();
    file_ = std::move(other.file_);
    registration_ = std::move(other.registration_);
    capacity_ = other.capacity_;
    free_ = std::move(other.free_);
    return *this;
  }
  ~RingMemory() { GiveBack(); }

  absl::Status Register(Fabric& fabric) {
    FURROW_ASSIGN_OR_RETURN(registration_, fabric.Register(file_, Access::kWrite));
    return absl::OkStatus();
  }
  // From here on the peer's writes fail; what it has written stays.
  void Withdraw() { registration_.reset(); }
  // The same, and what still maps the memory has it for itself.
  void GiveBack() {
    registration_.reset();
    MemoryFile file = std::move(file_);
    if (file.size() > 0 && free_) free_(std::move(file));
  }

  // Head line and data: memory files are rounded up to pages, and words lie behind.
  std::span<std::byte> ring() const { return file_.bytes().subspan(0, kRingHeadBytes + capacity_); }
  const uint64_t* word(size_t i) const {
    return reinterpret_cast<const uint64_t*>(file_.data() + Bytes(capacity_, i));
  }
  RemoteAddress AddressOfWord(size_t i) const {
    return registration_->remote_address().Plus(Bytes(capacity_, i));
  }
  RingDescriptor Descriptor(uint8_t channel, uint64_t nonce) const {
    return RingDescriptor{registration_->remote_address().Plus(kRingHeadBytes), capacity_, channel, nonce};
  }

 private:
  MemoryFile file_;
  std::unique_ptr<MemoryRegion> registration_;  // null: only we write it
  uint32_t capacity_ = 0;
  std::function<void(MemoryFile)> free_;
};

// A ring in our memory.
struct OwnRing {
  RingMemory memory;
  InboundRing inbound;

  // The ring is closed. Its memory goes if no record in it is held.
  void GiveBackIfReleased() {
    if (inbound.reader->held() != 0) return;
    inbound.reader->Detach();
    memory.GiveBack();
  }
  // Nobody needs it any more.
  bool over() const { return inbound.ended && inbound.pins == 0 && inbound.reader->held() == 0; }
};

// Head words that lie in the memory of a peer's replies, and in that of an accepted connection's messages.
enum PeerWord : uint8_t { kLogHeadWord, kMessageHeadWord, kPeerWords };
enum AcceptedWord : uint8_t { kReplyHeadWord, kAcceptedWords };

// Members are destroyed from below: writers and rings before the connection that they post to.
struct RingMesh::Peer {
  std::unique_ptr<Connection> connection;
  OwnRing replies;
  OutboundLink link;
  std::string request;  // private data
  Wires wires;
  bool over() const { return link.gone && link.pins == 0 && replies.over() && connection->idle(); }
};

struct RingMesh::Accepted {
  std::unique_ptr<Connection> connection;
  std::string
      request;  // the private data that the peer sent: finds the prepared one when the connection is there
  RingDescriptor reply_ring;
  RemoteAddress log_head;
  RemoteAddress message_head;
  OwnRing log;
  OwnRing messages;
  Wires wires;
  // While it is prepared: when it is discarded unless its connection comes; 0: not yet decided.
  Nanos discard_at = 0;
  bool overdue = false;
  bool over() const { return log.over() && messages.over() && connection->idle(); }
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_MESH_PARTS_H_
