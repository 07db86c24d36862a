// What two fabrics of the verbs provider say to each other. All numbers little-endian.
//
// Every queue pair is connected by the connection manager, whose messages have room for a few bytes. That of
// a session begins the handshake (rdma/secret_proof.h has its logic):
//
//   in its request   VerbsHello      56 bytes, all that there is room for
//   in its reply     VerbsChallenge
//   in its refusal   VerbsRefusal    version or cluster differ, too many peers
//
// Then there are SENDs on the session's queue pair, a VerbsMessage each:
//
//   initiator  --PROOF-->    acceptor
//              <--WELCOME--            | REFUSE: wrong secret
//   then the initiator opens connections with ids of its choice:
//              --OPEN-->               end, limits, private data
//              <--ACCEPT--             end, ticket, private data    | DECLINE: the acceptor's sentence
//
// and connects the connection's own queue pair:
//
//   in its request   VerbsTicket     whose holder alone is accepted, once
//   in its refusal   VerbsRefusal    no such ticket
//
//              --READY-->              its queue pair takes requests: the connection is there for the
//              acceptor
//   and either side, when it has destroyed its end or given up: CLOSE
#ifndef FURROW_RDMA_VERBS_VERBS_WIRE_H_
#define FURROW_RDMA_VERBS_VERBS_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "rdma/fabric.h"
#include "rdma/secret_proof.h"

namespace furrow::rdma {

inline constexpr uint32_t kVerbsMagic = 0x62765246;   // "FRvb"
inline constexpr uint32_t kTicketMagic = 0x74765246;  // "FRvt"
inline constexpr uint16_t kVerbsVersion = 2;

//   off  size  field
//   0    4     magic           4   2  version        6   2  zero
//   8    4     node            12  4  zero
//   16   8     tag of the cluster's name
//   24   32    nonce
struct VerbsHello {
  uint32_t magic;
  uint16_t version;
  uint16_t zero0;
  uint32_t node;
  uint32_t zero1;
  uint64_t cluster_tag;
  uint8_t nonce[kNonceBytes];
};
static_assert(sizeof(VerbsHello) == 56 && offsetof(VerbsHello, nonce) == 24);
using VerbsChallenge = VerbsHello;

//   off  size  field
//   0    4     magic           4   2  version        6   2  zero
//   8    4     node            12  4  connection
//   16   32    ticket, as in the ACCEPT
struct VerbsTicket {
  uint32_t magic;
  uint16_t version;
  uint16_t zero;
  uint32_t node;  // the initiator
  uint32_t connection;
  uint8_t ticket[kNonceBytes];
};
static_assert(sizeof(VerbsTicket) == 48 && offsetof(VerbsTicket, ticket) == 16);

//   0  4  magic    4  2  version    6  2  status code    8  136  sentence, ends with a zero byte
struct VerbsRefusal {
  uint32_t magic;
  uint16_t version;
  uint16_t code;
  char sentence[136];
};
static_assert(sizeof(VerbsRefusal) == 144);

// One end of a connection.
//   0   16  GID that it uses; zero: the one that the connection manager finds
//   16  8   address of the inbox    24  4  its key
//   28  4   queue pair, for the log
//   32  4   largest path MTU, bytes
//   36  4   notifications that it holds before it has polled
//   40  1   READs that its device answers at a time
//   41  7   zero
struct VerbsEnd {
  uint8_t gid[16];
  uint64_t inbox;
  uint32_t inbox_key;
  uint32_t queue_pair;
  uint32_t mtu;
  uint32_t notify_credits;
  uint8_t read_depth;
  uint8_t zero[7];
};
static_assert(sizeof(VerbsEnd) == 48 && offsetof(VerbsEnd, inbox_key) == 24);

enum class VerbsMessageType : uint16_t {
  kProof = 1,
  kWelcome = 2,
  kRefuse = 3,
  kOpen = 4,
  kAccept = 5,
  kReady = 6,
  kDecline = 7,
  kClose = 8,
};

//   0    4    magic          4   2  type            6   2  bytes of text
//   8    4    connection     12  4  status code
//   16   4    max_requests   20  4  max_receives    24  1  urgent    25  7  zero
//   32   48   end; of a PROOF or WELCOME on iWARP, in the place of the inbox, the word that probes read
//   80   32   proof; of an ACCEPT, the ticket
//   112  320  text: private data, or a sentence
struct VerbsMessage {
  uint32_t magic = kVerbsMagic;
  VerbsMessageType type = VerbsMessageType::kClose;
  uint16_t text_bytes = 0;
  uint32_t connection = 0;
  uint32_t code = 0;
  uint32_t max_requests = 0;
  uint32_t max_receives = 0;
  uint8_t urgent = 0;
  uint8_t zero[7] = {};
  VerbsEnd end = {};
  uint8_t proof[kProofBytes] = {};
  char text[320] = {};

  static constexpr size_t kMaxText = 320;
  std::string_view Text() const { return {text, text_bytes}; }
  // Clips to kMaxText.
  void SetText(std::string_view from);
  // Of a DECLINE or REFUSE.
  void SetStatus(const absl::Status& status);
};
static_assert(sizeof(VerbsMessage) == 432 && offsetof(VerbsMessage, end) == 32 &&
              offsetof(VerbsMessage, text) == 112 && std::is_trivially_copyable_v<VerbsMessage>);
static_assert(Fabric::kMaxPrivateData <= VerbsMessage::kMaxText && kNonceBytes == kProofBytes);

// What a transcript calls this protocol.
std::string VerbsProtocol();
VerbsHello MakeHello(NodeId node, uint64_t cluster_tag, std::string_view nonce);
// FailedPrecondition: another version, or no Furrow at all.
absl::Status ParseHello(std::span<const std::byte> bytes, VerbsHello* hello);
std::string NonceOf(const VerbsHello& hello);
VerbsTicket MakeTicket(NodeId initiator, uint32_t connection, std::string_view ticket);
// False: it is none, of whatever version.
bool IsTicket(std::span<const std::byte> bytes);
// FailedPrecondition: another version.
absl::Status ParseTicket(std::span<const std::byte> bytes, VerbsTicket* ticket);
VerbsRefusal MakeRefusal(const absl::Status& status);
// True, with the peer's words in *status, if these bytes are a refusal of Furrow's.
bool ParseRefusal(std::span<const std::byte> bytes, absl::Status* status);
// False: not a message of this version.
bool ParseMessage(std::span<const std::byte> bytes, VerbsMessage* message);

// Immediate data of the WRITEs on a connection; what it is about in the upper two bits.
//   kind 0  a notification        29: the sender has no credit left    5..0: channel
//   kind 1  a SEND has been put into the inbox's next cell             10..0: its bytes
//   kind 2  credits               27..14: notifications polled         13..0: receives posted
struct Immediate {
  enum Kind : uint32_t { kNotify = 0, kSend = 1, kCredits = 2 };
  static constexpr uint32_t kMaxCount = (1 << 14) - 1;
  static uint32_t Notify(uint8_t channel, bool last) { return uint32_t{last} << 29 | (channel & 63u); }
  static uint32_t Send(size_t bytes) { return uint32_t{kSend} << 30 | static_cast<uint32_t>(bytes); }
  static uint32_t Credits(uint32_t notifications, uint32_t receives) {
    return uint32_t{kCredits} << 30 | notifications << 14 | receives;
  }
  explicit Immediate(uint32_t value) : bits(value) {}
  uint32_t kind() const { return bits >> 30; }
  bool last() const { return (bits >> 29 & 1) != 0; }
  uint8_t channel() const { return static_cast<uint8_t>(bits & 63); }
  uint32_t bytes() const { return bits & 0x7ff; }
  uint32_t notifications() const { return bits >> 14 & kMaxCount; }
  uint32_t receives() const { return bits & kMaxCount; }
  uint32_t bits;
};
static_assert(Fabric::kMaxSend <= 0x7ff);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_WIRE_H_
