// The structures that processes share under the shm provider. All fields are little-endian and are touched by
// atomic builtins only. Three kinds of memory files carry them:
//
//   file       made by                  mapped by peers   holds
//   table      each fabric              read-only         RegistrationTable: which registrations are alive
//   doorbells  each completion queue    read-write        QueueDoorbells: which connections have work
//   inbox      each connection's end    read-write        InboxHeader, InboxCells: SENDs of the peer
#ifndef FURROW_RDMA_SHM_SHM_LAYOUT_H_
#define FURROW_RDMA_SHM_SHM_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rdma/fabric.h"

namespace furrow::rdma {

inline constexpr uint32_t kShmVersion = 2;
// Registrations of one fabric that are alive at the same time: the slot is the lower 12 bits of the key.
inline constexpr uint32_t kMaxRegistrations = 4096;
inline constexpr uint32_t kMaxConnectionsPerQueue = 1024;
inline constexpr uint32_t kMaxRequestsLimit = 1 << 16;
inline constexpr uint32_t kMaxReceivesLimit = 1024;

// A registration as one word; 0: none.
//   bits   field
//   63-32  key: 20 random bits, 12 bits slot
//   31-2   generation: grows with each registration of the fabric; tells old news from new
//   1-0    Access
struct RegistrationWord {
  uint64_t bits = 0;
  static constexpr uint32_t kMaxGeneration = (1u << 30) - 1;
  static constexpr RegistrationWord Make(RemoteKey key, uint32_t generation, Access access) {
    return {uint64_t{key.value()} << 32 | uint64_t{generation} << 2 | static_cast<uint64_t>(access)};
  }
  constexpr RemoteKey key() const { return RemoteKey(static_cast<uint32_t>(bits >> 32)); }
  constexpr uint32_t slot() const { return key().value() % kMaxRegistrations; }
  constexpr uint32_t generation() const { return static_cast<uint32_t>(bits) >> 2; }
  constexpr Access access() const { return static_cast<Access>(bits & 3); }
};
constexpr bool Grants(Access have, Access want) {
  return (static_cast<uint8_t>(have) & static_cast<uint8_t>(want)) == static_cast<uint8_t>(want);
}

//   off     size  field  writer  order
//   8*slot  8     word   owner   release; a peer loads it (acquire) for each request that it makes
struct RegistrationTable {
  uint64_t words[kMaxRegistrations];
};
static_assert(sizeof(RegistrationTable) == 32768);

//   off  size  field     writer                     order
//   0    8     channels  peer sets, owner clears    RMW seq_cst: bit c: channel c was notified
//   8    8     sends     peer sets, owner clears    RMW seq_cst: 1: the inbox has something
struct alignas(64) ConnectionSlot {
  uint64_t channels;
  uint64_t sends;
};
static_assert(sizeof(ConnectionSlot) == 64 && offsetof(ConnectionSlot, sends) == 8);

//   off  size   field    writer                   order
//   0    4      parking  owner sets, all clear    RMW seq_cst; 1: the owner sleeps here or is about to
//   64   128    summary  peers set, owner clears  RMW seq_cst; bit c of word w: slot 64 w + c has work
//   192  65536  slots    see ConnectionSlot
// Peer: slot bit, summary bit, then load of parking. Owner: parking, then loads of summary. All of it is
// seq_cst, so that one of the two sees the other: no wake-up is lost. A slot bit that was set already needs
// no summary bit: whoever set it did so, and the owner clears the summary before it reads the slot.
struct QueueDoorbells {
  uint32_t parking;
  alignas(64) uint64_t summary[kMaxConnectionsPerQueue / 64];
  ConnectionSlot slots[kMaxConnectionsPerQueue];
};
static_assert(offsetof(QueueDoorbells, summary) == 64 && offsetof(QueueDoorbells, slots) == 192);
static_assert(sizeof(QueueDoorbells) == 192 + 65536);

//   off  size  field   writer    order
//   0    8     posted  receiver  release: receives posted so far
//   64   8     sent    sender    release: SENDs placed so far; sent <= posted
//   128  n*    cells   see InboxCell: SEND number i lies in cell i mod n, n = max_receives
struct InboxHeader {
  uint64_t posted;
  alignas(64) uint64_t sent;
};
static_assert(offsetof(InboxHeader, sent) == 64 && sizeof(InboxHeader) == 128);

//   off  size  field  writer    order
//   0    4     room   receiver  before posted: bytes of the receive's buffer
//   4    4     bytes  sender    before sent
//   64   1024  body   sender    before sent
struct alignas(64) InboxCell {
  uint32_t room;
  uint32_t bytes;
  alignas(64) uint64_t body[Fabric::kMaxSend / 8];
};
static_assert(sizeof(InboxCell) == 64 + Fabric::kMaxSend && offsetof(InboxCell, body) == 64);
static_assert(std::is_trivially_copyable_v<QueueDoorbells> && std::is_trivially_copyable_v<InboxCell>);

constexpr size_t InboxBytes(uint32_t max_receives) {
  return sizeof(InboxHeader) + max_receives * sizeof(InboxCell);
}

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_LAYOUT_H_
