// What went wrong in a call of libibverbs or librdmacm, in words that say what to do. The same errno means
// different things after different calls, so each call has its function here.
#ifndef FURROW_RDMA_VERBS_VERBS_ERRORS_H_
#define FURROW_RDMA_VERBS_VERBS_ERRORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "rdma/fabric.h"

namespace furrow::rdma {

// The kernel's connection manager cannot be had: rdma_create_event_channel().
absl::Status NoConnectionManager(int error);
// No RDMA device has this address: rdma_bind_addr().
absl::Status NoDeviceAt(int error, std::string_view address);
// The device cannot be opened: ibv_open_device().
absl::Status DeviceRefused(int error, std::string_view device);

struct RegistrationAttempt {
  size_t bytes = 0;
  size_t registered_bytes = 0;  // by this fabric before
  uint64_t registrations = 0;
  uint64_t max_registrations = 0;   // of the device
  uint64_t max_bytes = 0;           // of one registration
  uint64_t memlock_limit = 0;       // RLIMIT_MEMLOCK in bytes; UINT64_MAX: none
  bool may_exceed_memlock = false;  // the process has CAP_IPC_LOCK
};
// ibv_reg_mr().
absl::Status RegistrationRefused(int error, const RegistrationAttempt& attempt);

struct QueuePairAttempt {
  std::string device;
  uint32_t send_depth = 0, receive_depth = 0, inlined = 0;
  uint64_t max_depth = 0;  // of the device
  uint64_t max_pairs = 0;
};
// ibv_create_qp().
absl::Status QueuePairRefused(int error, const QueuePairAttempt& attempt);
// ibv_create_cq(), ibv_resize_cq().
absl::Status CompletionQueueRefused(int error, uint64_t entries, uint64_t max_entries);
// ibv_modify_qp() to a state in which it knows its peer.
absl::Status PathRefused(int error, std::string_view step, std::string_view path);
// The connection manager could not reach an endpoint; `status` is that of its event, -errno.
absl::Status Unreachable(std::string_view endpoint, std::string_view step, int status);
// The peer's connection manager refuses a connection that was agreed upon, without a word of Furrow's.
absl::Status ConnectionRejected(int reason, std::string_view endpoint);
// Any other call.
absl::Status CallFailed(std::string_view call, int error);

// The device's status of a request (ibv_wc_status): what it means for a request that is the first to fail on
// its connection, and a sentence for the log.
CompletionStatus MeaningOf(int wc_status);
std::string_view WordsFor(int wc_status);

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_ERRORS_H_
