// VerbsDevice: the RDMA device of a fabric, opened: one context and one protection domain for all data of the
// node, apart from those in which librdmacm keeps the sessions. So a stranger, who gets as far as a session's
// queue pair, has one in a domain in which no memory of the node is registered.
#ifndef FURROW_RDMA_VERBS_VERBS_DEVICE_H_
#define FURROW_RDMA_VERBS_VERBS_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/verbs/verbs_options.h"

struct ibv_context;
struct ibv_pd;
struct sockaddr;
struct sockaddr_storage;

namespace furrow::rdma {

using Gid = std::array<uint8_t, 16>;
// "::ffff:10.77.0.1": RoCE's GIDs are IP addresses.
std::string GidText(const Gid& gid);

struct DeviceLimits {
  uint64_t registrations = 0;
  uint64_t registration_bytes = 0;
  uint32_t queue_pairs = 0;
  uint32_t queue_depth = 0;  // of a queue pair, each way
  uint32_t completions = 0;  // of a completion queue
  uint32_t message_bytes = 0;
  uint8_t read_depth_out = 0;  // READs of a queue pair under way
  uint8_t read_depth_in = 0;   // that it answers
  uint32_t mtu = 0;            // active, bytes
};

class VerbsDevice {
 public:
  // Unavailable: no RDMA here, no device with that address, or the port is down.
  // InvalidArgument: no address of this host.
  static absl::StatusOr<std::unique_ptr<VerbsDevice>> Open(const VerbsOptions& options);
  ~VerbsDevice();

  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  const std::string& name() const { return name_; }
  uint8_t port() const { return port_; }
  const DeviceLimits& limits() const { return limits_; }
  // A driver of the kernel's that copies with the CPU (Soft-RoCE), word by word; no card.
  bool software() const { return software_; }
  // No GIDs, lanes or packets of the fabric's own: the transport is TCP.
  bool iwarp() const { return iwarp_; }
  // Requests that meet a queue pair in its error state never end: the kernel's siw leaves those of processes.
  bool forgets() const { return iwarp_ && software_; }
  // False: a queue that is armed for solicited completions never fires (siw in Linux 6.1).
  bool solicits() const { return !forgets(); }
  absl::StatusOr<Gid> GidAt(int index) const;
  // Unavailable, with what its state is: the link is down.
  absl::Status CheckPort() const;

 private:
  VerbsDevice() = default;
  absl::Status Inspect();

  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  std::string name_;
  uint8_t port_ = 1;
  bool software_ = false;
  bool iwarp_ = false;
  DeviceLimits limits_;
};

// "host:port", "[v6]:port". A name is looked up, which may take long: not on a thread that others wait for.
// `text` without a port where `with_port` is false. InvalidArgument, Unavailable (no such host).
absl::Status ParseEndpoint(std::string_view text, bool with_port, sockaddr_storage* address);

// For whoever chooses a fabric, and for tests.
struct VerbsDeviceInfo {
  std::string name;
  bool software = false;
  bool active = false;  // port 1
  std::string link_layer;
  uint32_t mtu = 0;
  std::vector<std::string> addresses;  // IPv4 addresses among its GIDs, each once
};
// Empty where there is no RDMA at all.
std::vector<VerbsDeviceInfo> ListVerbsDevices();

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_DEVICE_H_
