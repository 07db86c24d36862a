// Unix sockets of the shm provider: where they lie and who may speak there.
#ifndef FURROW_RDMA_SHM_SHM_SOCKET_H_
#define FURROW_RDMA_SHM_SHM_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"
#include "rdma/shm/shm_wire.h"

namespace furrow::rdma {

// Listens at `path` with mode 0600. Its directory is made with mode 0700 if there is none; one that others
// may enter is refused with PermissionDenied. A socket that a dead process has left is replaced;
// AlreadyExists if it is in use. Paths may be longer than the 107 bytes of a socket's address; the last
// component may not.
absl::StatusOr<Fd> ListenAt(const std::string& path);
// Unavailable: nobody listens there (yet). ResourceExhausted: its backlog is full, try again.
absl::StatusOr<Fd> ConnectTo(const std::string& path);
// One waiting peer; NotFound: there is none. ResourceExhausted: this process or host has no descriptor or
// memory for it, and it goes on waiting.
absl::StatusOr<Fd> AcceptFrom(int listener);
// PermissionDenied if the process at the other end belongs to another user.
absl::Status CheckSameUser(int socket);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_SOCKET_H_
