#include "rdma/verbs/verbs_errors.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace furrow::rdma {
namespace {

std::string Errno(int error) {
  char buffer[128];
  return absl::StrCat(strerror_r(error, buffer, sizeof(buffer)), " (errno ", error, ")");
}

constexpr const char* kContainer =
    " In a container: give it the devices in /dev/infiniband, the capability IPC_LOCK and the host's network "
    "(Kubernetes: a device plugin for RDMA).";

std::string Mega(uint64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MB"); }

}  // namespace

absl::Status NoConnectionManager(int error) {
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("this user may not open /dev/infiniband/rdma_cm: ", Errno(error),
                     ". Let it (udev rule or group), or run as a user who may.", kContainer));
  }
  return absl::UnavailableError(absl::StrCat(
      "this host has no RDMA connection manager: ", Errno(error),
      ". Load its modules (modprobe rdma_ucm ib_uverbs, and the driver of the card).", kContainer));
}

absl::Status NoDeviceAt(int error, std::string_view address) {
  if (error == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(
        absl::StrCat(Sv(address), " is no address of this host: ", Errno(error),
                     ". Give the address of the RDMA card's network interface (ip addr; rdma link)."));
  }
  return absl::UnavailableError(
      absl::StrCat("no RDMA device of this host has the address ", Sv(address), ": ", Errno(error),
                   ". Give the address of the RDMA card's network interface (rdma link shows which), and see "
                   "that the link is up.",
                   kContainer));
}

absl::Status DeviceRefused(int error, std::string_view device) {
  const std::string what = absl::StrCat("the RDMA device ", Sv(device), " cannot be opened: ", Errno(error));
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, ". This user needs access to /dev/infiniband/uverbs*.", kContainer));
  }
  return absl::UnavailableError(
      absl::StrCat(what,
                   ". Look for /dev/infiniband/uverbs* and for a user-space driver of the card "
                   "(ibverbs-providers) that is as new as its kernel driver.",
                   kContainer));
}

absl::Status RegistrationRefused(int error, const RegistrationAttempt& attempt) {
  const std::string what = absl::StrCat("cannot register ", attempt.bytes,
                                        " bytes of memory with the RDMA device (", attempt.registered_bytes,
                                        " bytes in ", attempt.registrations, " pieces are registered): ");
  const uint64_t need = attempt.registered_bytes + attempt.bytes;
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    if (need > attempt.memlock_limit && !attempt.may_exceed_memlock) {
      return absl::ResourceExhaustedError(absl::StrCat(
          what, "the limit of locked memory is ", Mega(attempt.memlock_limit), " and at least ", Mega(need),
          " are needed. systemd: LimitMEMLOCK=infinity in the unit; shells: '* - memlock unlimited' in "
          "/etc/security/limits.d/furrow.conf and a new login; containers: ulimit memlock=-1."));
    }
    if (attempt.registrations >= attempt.max_registrations) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, "the device has ", attempt.max_registrations, " registrations, all in use"));
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        what, Errno(error), ". The limit of locked memory (",
        attempt.memlock_limit == UINT64_MAX ? "none" : Mega(attempt.memlock_limit),
        ") is not the cause: look at free memory, at vm.max_map_count, and at the kernel's log."));
  }
  if (attempt.max_bytes != 0 && attempt.bytes > attempt.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, "the device takes at most ", attempt.max_bytes, " bytes in one piece"));
  }
  return absl::InternalError(absl::StrCat(what, Errno(error)));
}

absl::Status QueuePairRefused(int error, const QueuePairAttempt& attempt) {
  const std::string what = absl::StrCat("cannot make a queue pair of ", attempt.send_depth, " requests and ",
                                        attempt.receive_depth, " receives with ", attempt.inlined,
                                        " bytes inlined on ", attempt.device, ": ");
  if (attempt.send_depth > attempt.max_depth || attempt.receive_depth > attempt.max_depth) {
    return absl::InvalidArgumentError(absl::StrCat(what, "its queues hold at most ", attempt.max_depth,
                                                   ": lower max_requests or notify_credits"));
  }
  if (error == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, Errno(error), ". The device has ", attempt.max_pairs,
                     " queue pairs in all; the queues' own memory is locked memory, too (ulimit -l)."));
  }
  return absl::InternalError(absl::StrCat(what, Errno(error)));
}

absl::Status CompletionQueueRefused(int error, uint64_t entries, uint64_t max_entries) {
  if (entries > max_entries) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the connections of one worker may have ", entries,
                     " completions outstanding, and a completion queue of this device holds ", max_entries,
                     ": use more workers, or connections with fewer requests"));
  }
  return absl::ResourceExhaustedError(absl::StrCat("cannot make a completion queue of ", entries,
                                                   " entries: ", Errno(error),
                                                   ". Its memory is locked memory (ulimit -l)."));
}

absl::Status PathRefused(int error, std::string_view step, std::string_view path) {
  return absl::UnavailableError(
      absl::StrCat("the device refuses the path to the peer (", Sv(step), "): ", Errno(error), "; ", Sv(path),
                   error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH
                       ? ". The peer's hardware address cannot be found: are both in one network, and is the "
                         "peer's link up?"
                       : ". Compare the GIDs of both sides (a GID of the address's own kind and network), "
                         "their MTU and their read depth."));
}

absl::Status Unreachable(std::string_view endpoint, std::string_view step, int status) {
  return absl::UnavailableError(absl::StrCat("cannot reach ", Sv(endpoint), " over RDMA: ", Sv(step),
                                             " failed: ", Errno(status < 0 ? -status : status)));
}

absl::Status ConnectionRejected(int reason, std::string_view endpoint) {
  std::string why;
  switch (reason) {
    case 1:
      why = "it has no queue pair left";
      break;
    case 3:
      why = "it has no resources left";
      break;
    case 4:
      why = "it did not hear of the end of the connecting in time";
      break;
    case 8:
      why = "nobody listens there any more";
      break;
    case 10:
      why = "it still remembers a former connection of a queue pair of this number; the next try has another";
      break;
    default:
      why = reason < 0 ? Errno(-reason) : std::string("it does not say why");
  }
  return absl::UnavailableError(absl::StrCat("the connection manager at ", Sv(endpoint),
                                             " refuses the connection (reason ", reason, "): ", why));
}

absl::Status CallFailed(std::string_view call, int error) {
  if (error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Sv(call), " failed: no descriptor is left: raise ulimit -n"));
  }
  if (error == ENOMEM) return absl::ResourceExhaustedError(absl::StrCat(Sv(call), " failed: ", Errno(error)));
  return absl::InternalError(absl::StrCat(Sv(call), " failed: ", Errno(error)));
}

CompletionStatus MeaningOf(int wc_status) {
  switch (wc_status) {
    case IBV_WC_SUCCESS:
      return CompletionStatus::kOk;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
      return CompletionStatus::kLocalProtection;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return CompletionStatus::kRemoteAccess;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return CompletionStatus::kReceiverNotReady;
    default:
      // LOC_QP_OP_ERR, too: so Soft-RoCE says that its own network interface is down. Flushed with no failure
      // before it: the pair was taken down because the peer left.
      return CompletionStatus::kPeerGone;
  }
}

std::string_view WordsFor(int wc_status) {
  switch (wc_status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "the message is longer than the device or the receive allows";
    case IBV_WC_LOC_QP_OP_ERR:
      return "the device could not send it: its network interface is down, or there is no way to the peer "
             "any "
             "more, or request and queue pair do not fit each other";
    case IBV_WC_LOC_PROT_ERR:
      return "local memory is not registered";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed: the queue pair was taken down";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer's device refused the access: stale or wrong key, out of bounds, or no right";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer's device found the request invalid";
    case IBV_WC_REM_OP_ERR:
      return "the peer's device could not execute the request";
    case IBV_WC_RETRY_EXC_ERR:
      return "no answer, the retries are used up: the peer is dead or its link is cut, or packets are lost "
             "(look at the port's counters), or the path is wrong (GID, VLAN, MTU)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer has posted no receive";
    case IBV_WC_FATAL_ERR:
      return "the device has failed";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "the peer's device did not answer in time";
    default:
      return ibv_wc_status_str(static_cast<ibv_wc_status>(wc_status));
  }
}

}  // namespace furrow::rdma
