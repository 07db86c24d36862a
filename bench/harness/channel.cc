#include "bench/harness/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace furrow::bench {

absl::StatusOr<std::pair<LineChannel, LineChannel>> LineChannel::Pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a socket pair: ", std::strerror(errno)));
  }
  return std::make_pair(LineChannel(fds[0]), LineChannel(fds[1]));
}

LineChannel::LineChannel(LineChannel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

LineChannel& LineChannel::operator=(LineChannel&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

LineChannel::~LineChannel() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status LineChannel::KeepOnExec() {
  if (::fcntl(fd_, F_SETFD, 0) != 0) {
    return absl::InternalError(absl::StrCat("cannot keep a descriptor over exec: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status LineChannel::Send(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      return absl::UnavailableError(
          absl::StrCat("a process of the benchmark does not listen any more: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

std::optional<std::string> LineChannel::TakeLine() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

bool LineChannel::Fill() {
  char chunk[1 << 16];
  while (buffer_.size() <= kMaxLine) {
    const ssize_t n = ::recv(fd_, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
    } else if (n == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
  return buffer_.find('\n') != std::string::npos;
}

void WaitForAny(std::span<LineChannel* const> channels, Nanos timeout_ns) {
  std::vector<pollfd> polled;
  for (const LineChannel* channel : channels) polled.push_back({channel->fd(), POLLIN, 0});
  // An error is a signal; the caller looks at everything again.
  (void)::poll(polled.data(), polled.size(), static_cast<int>(timeout_ns / kMillisecond));
}

}  // namespace furrow::bench
