// What two fabrics of the shm provider say to each other over their Unix socket (SOCK_SEQPACKET: one message
// per packet, descriptors attached). The proof that both know the cluster's secret: rdma/secret_proof.h.
//
//   message    numbers                        texts                 descriptors
//   HELLO      node, instance                 cluster id, nonce     -
//   CHALLENGE  node, instance                 -, nonce              -
//   PROOF      -                              MAC                   registration table (read-only)
//   WELCOME    -                              MAC                   registration table (read-only)
//   REFUSE     status code                    sentence              -
//   MEMORY     RegistrationWord, base, bytes  -                     the region, with the rights it grants
//   FORGET     RegistrationWord               -                     -
//   OPEN       id, slot, requests, receives   private data          doorbells, inbox
//   ACCEPT     id, slot                       private data          doorbells, inbox
//   DECLINE    id, status code                sentence              -
//   CLOSE      id                             -                     -
//
//   initiator  --HELLO-->      acceptor
//              <--CHALLENGE--            | REFUSE: version or cluster differ
//              --PROOF-->                (the initiator proves itself first)
//              <--WELCOME--              | REFUSE: wrong secret
//   then both send MEMORY for what they have registered, and for what they register later; the initiator
//   OPENs connections with ids of its choice, the acceptor answers each; either side CLOSEs.
#ifndef FURROW_RDMA_SHM_SHM_WIRE_H_
#define FURROW_RDMA_SHM_SHM_WIRE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace furrow::rdma {

// A file descriptor that is closed at the end.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};
// A second descriptor of the same open file.
absl::StatusOr<Fd> Duplicate(int fd);

enum class ShmMessageType : uint16_t {
  kHello = 1,
  kChallenge,
  kProof,
  kWelcome,
  kRefuse,
  kMemory,
  kForget,
  kOpen,
  kAccept,
  kDecline,
  kClose,
};

struct ShmMessage {
  ShmMessageType type = ShmMessageType::kHello;
  uint16_t version = 0;  // of the sender; set by Receive()
  std::array<uint64_t, 4> numbers = {};
  std::array<std::string, 2> texts;  // at most kMaxShmText bytes each
  std::vector<Fd> fds;               // at most kMaxShmFds
};
inline constexpr size_t kMaxShmText = 1024;
inline constexpr size_t kMaxShmFds = 2;

// What a transcript calls this protocol.
std::string ShmProtocol();

enum class SocketResult : uint8_t { kOk, kWouldBlock, kClosed, kGarbage };
// Neither blocks. A sent message's descriptors stay the caller's.
SocketResult SendMessage(int socket, const ShmMessage& message);
// kGarbage: not a message of any version. A message of another version comes with empty texts.
SocketResult ReceiveMessage(int socket, ShmMessage& message);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_WIRE_H_
