#include "rdma/shm/shm_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rdma/shm/shm_layout.h"

namespace furrow::rdma {
namespace {

//   off  size  field
//   0    4     magic "FRsm"
//   4    2     version
//   6    2     type
//   8    32    numbers
//   40   4     bytes of each text, 2 each
//   44   4     zero
//   48   ...   texts
struct WireHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint64_t numbers[4];
  uint16_t text_bytes[2];
  uint32_t zero;
};
static_assert(sizeof(WireHeader) == 48 && offsetof(WireHeader, text_bytes) == 40);
constexpr uint32_t kMagic = 0x6d735246;

template <class T>
void AppendRaw(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Fd> Duplicate(int fd) {
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot duplicate a memory file's descriptor",
                                                   errno == EMFILE ? ": raise ulimit -n" : ""));
  }
  return copy;
}

SocketResult SendMessage(int socket, const ShmMessage& message) {
  WireHeader header = {.magic = kMagic,
                       .version = static_cast<uint16_t>(kShmVersion),
                       .type = static_cast<uint16_t>(message.type),
                       .numbers = {},
                       .text_bytes = {},
                       .zero = 0};
  std::memcpy(header.numbers, message.numbers.data(), sizeof(header.numbers));
  for (int i = 0; i < 2; ++i) {
    FURROW_CHECK(message.texts[i].size() <= kMaxShmText);
    header.text_bytes[i] = static_cast<uint16_t>(message.texts[i].size());
  }
  std::string packet;
  AppendRaw(packet, header);
  packet += message.texts[0];
  packet += message.texts[1];

  iovec data = {packet.data(), packet.size()};
  msghdr msg = {};
  msg.msg_iov = &data;
  msg.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxShmFds)] = {};
  const size_t fds = message.fds.size();
  FURROW_CHECK(fds <= kMaxShmFds);
  if (fds > 0) {
    msg.msg_control = control;
    msg.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
    cmsghdr* rights = CMSG_FIRSTHDR(&msg);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds);
    for (size_t i = 0; i < fds; ++i) {
      const int fd = message.fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  for (;;) {
    if (sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return SocketResult::kOk;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: this user has too many descriptors under way; they arrive sooner or later.
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return SocketResult::kWouldBlock;
    return SocketResult::kClosed;
  }
}

SocketResult ReceiveMessage(int socket, ShmMessage& message) {
  char packet[sizeof(WireHeader) + 2 * kMaxShmText];
  iovec data = {packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxShmFds)];
  msghdr msg = {};
  msg.msg_iov = &data;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = sizeof(control);
  ssize_t bytes;
  do {
    bytes = recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return errno == EAGAIN ? SocketResult::kWouldBlock : SocketResult::kClosed;
  if (bytes == 0) return SocketResult::kClosed;

  message = ShmMessage();
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(int));
      message.fds.emplace_back(fd);
    }
  }
  WireHeader header;
  if (static_cast<size_t>(bytes) < sizeof(header)) return SocketResult::kGarbage;
  std::memcpy(&header, packet, sizeof(header));
  if ((msg.msg_flags & MSG_CTRUNC) != 0) {
    FURROW_LOG_EVERY(ERROR, 10 * kSecond)
        << "descriptors that a peer sent are lost, and with them its connection: this process has too many "
           "open, or a stranger sent more than there should be; raise ulimit -n";
  }
  if (header.magic != kMagic || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return SocketResult::kGarbage;
  message.type = static_cast<ShmMessageType>(header.type);
  message.version = header.version;
  std::memcpy(message.numbers.data(), header.numbers, sizeof(header.numbers));
  if (header.version != kShmVersion) return SocketResult::kOk;
  const size_t first = header.text_bytes[0], second = header.text_bytes[1];
  if (first > kMaxShmText || second > kMaxShmText || header.zero != 0 ||
      static_cast<size_t>(bytes) != sizeof(header) + first + second) {
    return SocketResult::kGarbage;
  }
  message.texts[0].assign(packet + sizeof(header), first);
  message.texts[1].assign(packet + sizeof(header) + first, second);
  return SocketResult::kOk;
}

std::string ShmProtocol() { return absl::StrCat("shm ", kShmVersion); }

}  // namespace furrow::rdma
