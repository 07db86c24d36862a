#include "rdma/verbs/verbs_device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

uint32_t MtuBytes(ibv_mtu mtu) { return uint32_t{128} << mtu; }

// Cards have a bus behind them; drivers of the kernel's own stand among the virtual devices.
bool IsSoftware(const ibv_device* device) {
  char path[PATH_MAX];
  return realpath(device->ibdev_path, path) != nullptr && strstr(path, "/devices/virtual/") != nullptr;
}

const char* LinkLayerName(uint8_t layer) {
  if (layer == IBV_LINK_LAYER_ETHERNET) return "Ethernet";
  return layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "unknown";
}

}  // namespace

std::string GidText(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

absl::Status ParseEndpoint(std::string_view text, bool with_port, sockaddr_storage* address) {
  std::string host(text), port;
  if (with_port) {
    const size_t colon = host.rfind(':');
    if (colon != std::string::npos) {
      port = host.substr(colon + 1);
      host.resize(colon);
    }
    if (port.empty() || host.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Sv(text), "\" is no endpoint of the verbs fabric: it has the form host:port"));
    }
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), with_port ? port.c_str() : nullptr, &hints, &found);
  if (result != 0 || found == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot find the address of \"", Sv(text),
                                               "\": ", result != 0 ? gai_strerror(result) : "it has none"));
  }
  memcpy(address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VerbsDevice>> VerbsDevice::Open(const VerbsOptions& options) {
  sockaddr_storage address = {};
  FURROW_RETURN_IF_ERROR(ParseEndpoint(options.address, /*with_port=*/false, &address));
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) return NoConnectionManager(errno);
  auto end_channel = absl::MakeCleanup([channel] { rdma_destroy_event_channel(channel); });
  rdma_cm_id* probe = nullptr;
  if (rdma_create_id(channel, &probe, nullptr, RDMA_PS_TCP) != 0) return NoConnectionManager(errno);
  auto end_probe = absl::MakeCleanup([probe] { rdma_destroy_id(probe); });
  if (rdma_bind_addr(probe, reinterpret_cast<sockaddr*>(&address)) != 0) {
    return NoDeviceAt(errno, options.address);
  }
  if (probe->verbs == nullptr) return NoDeviceAt(ENODEV, options.address);

  std::unique_ptr<VerbsDevice> device(new VerbsDevice());
  device->name_ = ibv_get_device_name(probe->verbs->device);
  device->port_ = probe->port_num;
  device->context_ = ibv_open_device(probe->verbs->device);
  if (device->context_ == nullptr) return DeviceRefused(errno, device->name_);
  FURROW_RETURN_IF_ERROR(device->Inspect());
  device->domain_ = ibv_alloc_pd(device->context_);
  if (device->domain_ == nullptr) return CallFailed("ibv_alloc_pd", errno);
  return device;
}

VerbsDevice::~VerbsDevice() {
  if (domain_ != nullptr && ibv_dealloc_pd(domain_) != 0) {
    FURROW_LOG(ERROR) << "the protection domain on " << name_ << " is still in use when its fabric ends";
  }
  if (context_ != nullptr) ibv_close_device(context_);
}

absl::Status VerbsDevice::Inspect() {
  iwarp_ = context_->device->transport_type == IBV_TRANSPORT_IWARP;
  if (!iwarp_ && context_->device->transport_type != IBV_TRANSPORT_IB) {
    return absl::UnavailableError(
        absl::StrCat("the device ", name_, " speaks neither InfiniBand nor RoCE nor iWARP"));
  }
  ibv_device_attr device = {};
  if (int error = ibv_query_device(context_, &device); error != 0)
    return CallFailed("ibv_query_device", error);
  ibv_port_attr port = {};
  if (int error = ibv_query_port(context_, port_, &port); error != 0)
    return CallFailed("ibv_query_port", error);
  FURROW_RETURN_IF_ERROR(CheckPort());
  software_ = IsSoftware(context_->device);
  const auto byte = [](int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); };
  limits_ = {.registrations = static_cast<uint64_t>(std::max(device.max_mr, 0)),
             .registration_bytes = device.max_mr_size,
             .queue_pairs = static_cast<uint32_t>(std::max(device.max_qp, 0)),
             .queue_depth = static_cast<uint32_t>(std::max(device.max_qp_wr, 0)),
             .completions = static_cast<uint32_t>(std::max(device.max_cqe, 0)),
             .message_bytes = port.max_msg_sz,
             .read_depth_out = byte(device.max_qp_init_rd_atom),
             .read_depth_in = byte(device.max_qp_rd_atom),
             .mtu = MtuBytes(port.active_mtu)};
  return absl::OkStatus();
}

absl::Status VerbsDevice::CheckPort() const {
  ibv_port_attr port = {};
  if (int error = ibv_query_port(context_, port_, &port); error != 0)
    return CallFailed("ibv_query_port", error);
  if (port.state == IBV_PORT_ACTIVE) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("port ", port_, " of the RDMA device ", name_, " is ",
                                             ibv_port_state_str(port.state),
                                             ", not active: look at the link and its cable (rdma link)"));
}

absl::StatusOr<Gid> VerbsDevice::GidAt(int index) const {
  ibv_gid gid = {};
  if (ibv_query_gid(context_, port_, index, &gid) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("port ", port_, " of ", name_, " has no GID ", index, " (ibv_devinfo -v lists them)"));
  }
  Gid result;
  memcpy(result.data(), gid.raw, sizeof(gid.raw));
  return result;
}

std::vector<VerbsDeviceInfo> ListVerbsDevices() {
  std::vector<VerbsDeviceInfo> result;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return result;
  auto end_list = absl::MakeCleanup([list] { ibv_free_device_list(list); });
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(list[i]);
    if (context == nullptr) continue;  // of another container, or not for this user
    auto end_context = absl::MakeCleanup([context] { ibv_close_device(context); });
    VerbsDeviceInfo& info = result.emplace_back();
    info.name = ibv_get_device_name(list[i]);
    info.software = IsSoftware(list[i]);
    ibv_port_attr port = {};
    if (ibv_query_port(context, 1, &port) != 0) continue;
    info.active = port.state == IBV_PORT_ACTIVE;
    info.link_layer = LinkLayerName(port.link_layer);
    info.mtu = MtuBytes(port.active_mtu);
    for (int index = 0; index < port.gid_tbl_len; ++index) {
      ibv_gid gid = {};
      if (ibv_query_gid(context, 1, index, &gid) != 0) continue;
      static constexpr uint8_t kIpv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      if (memcmp(gid.raw, kIpv4, sizeof(kIpv4)) != 0) continue;
      char text[INET_ADDRSTRLEN] = "";
      inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
      if (std::find(info.addresses.begin(), info.addresses.end(), text) == info.addresses.end()) {
        info.addresses.push_back(text);
      }
    }
  }
  return result;
}

}  // namespace furrow::rdma
