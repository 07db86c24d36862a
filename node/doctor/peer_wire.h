// What the two doctors of a self-test say to each other: the one that serves offers memory, the other tries
// the fabric with it and asks the first what it has seen. Both are hosts of the same byte order.
#ifndef FURROW_NODE_DOCTOR_PEER_WIRE_H_
#define FURROW_NODE_DOCTOR_PEER_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace furrow::node {

inline constexpr uint32_t kPeerVersion = 1;
inline constexpr char kPeerMagic[8] = {'f', 'u', 'r', 'd', 'o', 'c', 't', 'r'};

// The private data of both sides when they connect; the client's offers nothing.
//   off size field
//   0   8    magic    kPeerMagic
//   8   4    version  kPeerVersion
//   12  4    key      of the memory that is offered
//   16  8    address  of its byte 0
//   24  8    bytes
struct PeerHello {
  char magic[8];
  uint32_t version;
  uint32_t key;
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(PeerHello) == 32 && std::is_trivially_copyable_v<PeerHello>);
static_assert(offsetof(PeerHello, key) == 12 && offsetof(PeerHello, bytes) == 24);

// A SEND, question or answer.
//   off size field
//   0   4    kind      PeerMessage::Kind
//   4   4    reserved  0
//   8   8    a
//   16  8    b
struct PeerMessage {
  enum Kind : uint32_t {
    kEcho = 1,  // answer: the same
    kPattern,   // a: seed, b: bytes. answer: a: how many bytes of the payload differ from the pattern
    kWatch,     // watch the block until kWatched comes. answer: at once, the same
    kWatched,   // answer: a: looks, b: looks that saw a word older than the flag
  };
  uint32_t kind;
  uint32_t reserved;
  uint64_t a;
  uint64_t b;
};
static_assert(sizeof(PeerMessage) == 24 && std::is_trivially_copyable_v<PeerMessage>);

// The memory that is offered, in bytes from its beginning. Words are 8 aligned bytes.
inline constexpr size_t kPayloadAt = 0;
inline constexpr size_t kPayloadBytes = 4 << 20;
inline constexpr size_t kBlockAt = kPayloadAt + kPayloadBytes;  // words that are all of one round
inline constexpr size_t kBlockBytes = 4096;
inline constexpr size_t kFlagAt = kBlockAt + kBlockBytes;  // word: the round whose block is there
inline constexpr size_t kReadyAt = kFlagAt + 64;           // word: 1 while receives are posted
inline constexpr size_t kOfferedBytes = kReadyAt + 4096 - 64;

// Byte `i` of the payload that belongs to `seed`.
inline std::byte PatternByte(uint64_t seed, size_t i) {
  const uint64_t mixed = (seed + i) * 0x9e3779b97f4a7c15;
  return static_cast<std::byte>(mixed >> 56);
}

std::string EncodeHello(const PeerHello& hello);
// Nothing: it is no doctor, or one of another version.
std::optional<PeerHello> DecodeHello(std::string_view text);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_PEER_WIRE_H_
