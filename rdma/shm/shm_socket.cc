#include "rdma/shm/shm_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow::rdma {
namespace {

constexpr int kBacklog = 128;
constexpr int kSocketBufferBytes = 1 << 20;

struct Place {
  Fd directory;
  std::string name;
  sockaddr_un address = {};
};

// Addresses `path` through its open directory, since sun_path is short.
absl::StatusOr<Place> Locate(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || slash + 1 == path.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\" is no endpoint of the shm fabric: give the absolute path of a socket"));
  }
  Place place;
  place.name = path.substr(slash + 1);
  const std::string directory = path.substr(0, slash + 1);
  place.directory = Fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place.directory) {
    if (errno == ENOENT) return absl::UnavailableError(absl::StrCat("there is no directory ", directory));
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the socket directory ", directory));
  }
  const std::string short_path = absl::StrCat("/proc/self/fd/", place.directory.get(), "/", place.name);
  if (short_path.size() >= sizeof(place.address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the name of socket ", path, " is too long"));
  }
  place.address.sun_family = AF_UNIX;
  std::memcpy(place.address.sun_path, short_path.c_str(), short_path.size() + 1);
  return place;
}

absl::StatusOr<Fd> NewSocket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return absl::ErrnoToStatus(errno, "cannot create a Unix socket");
  // A wish: the host may grant less.
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  return socket;
}

const sockaddr* Generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

absl::StatusOr<Fd> ListenAt(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  if (!directory.empty() && mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the socket directory ", directory));
  }
  FURROW_ASSIGN_OR_RETURN(Place place, Locate(path));
  struct stat st;
  if (fstat(place.directory.get(), &st) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat the socket directory ", directory));
  }
  if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the socket directory ", directory,
                     " is not this user's alone: name one with mode 700, or one that is not there yet"));
  }
  FURROW_ASSIGN_OR_RETURN(Fd socket, NewSocket());
  int result = bind(socket.get(), Generic(place.address), sizeof(place.address));
  if (result != 0 && errno == EADDRINUSE) {
    FURROW_ASSIGN_OR_RETURN(Fd probe, NewSocket());
    const bool dead =
        connect(probe.get(), Generic(place.address), sizeof(place.address)) != 0 && errno == ECONNREFUSED;
    if (!dead) {
      return absl::AlreadyExistsError(
          absl::StrCat("another process listens at ", path, ": is this node running already?"));
    }
    unlinkat(place.directory.get(), place.name.c_str(), 0);
    result = bind(socket.get(), Generic(place.address), sizeof(place.address));
  }
  if (result != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot bind the socket ", path));
  if (chmod(path.c_str(), 0600) != 0 || listen(socket.get(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen at the socket ", path));
  }
  return socket;
}

absl::StatusOr<Fd> ConnectTo(const std::string& path) {
  FURROW_ASSIGN_OR_RETURN(Place place, Locate(path));
  FURROW_ASSIGN_OR_RETURN(Fd socket, NewSocket());
  int result;
  do {
    result = connect(socket.get(), Generic(place.address), sizeof(place.address));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return socket;
  if (errno == EAGAIN) return absl::ResourceExhaustedError(absl::StrCat("the backlog of ", path, " is full"));
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return absl::UnavailableError(absl::StrCat("no node listens at ", path));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to ", path));
}

absl::StatusOr<Fd> AcceptFrom(int listener) {
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) {
    (void)setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
    return socket;
  }
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot accept a peer: ", strerror(errno), ": raise ulimit -n of this process"));
  }
  return absl::NotFoundError("nobody waits");
}

absl::Status CheckSameUser(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::ErrnoToStatus(errno, "cannot learn who is at the other end of a socket");
  }
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("the process at the other end belongs to user ", peer.uid,
                                                    ", this one to user ", geteuid(),
                                                    ": nodes of a shm fabric run under one user"));
  }
  return absl::OkStatus();
}

}  // namespace furrow::rdma
