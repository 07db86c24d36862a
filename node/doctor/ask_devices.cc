#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "node/doctor/gather.h"

namespace furrow::node {
namespace {

uint64_t Positive(int value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

void Ask(ibv_context* context, DeviceFacts* device) {
  ibv_device_attr a{};
  if (int error = ibv_query_device(context, &a); error != 0) {
    device->problem = absl::StrCat("it does not answer: ", strerror(error));
    return;
  }
  device->limits = DeviceLimits{.queue_pairs = Positive(a.max_qp),
                                .requests_per_queue_pair = Positive(a.max_qp_wr),
                                .completion_queues = Positive(a.max_cq),
                                .entries_per_completion_queue = Positive(a.max_cqe),
                                .memory_regions = Positive(a.max_mr),
                                .memory_region_bytes = a.max_mr_size,
                                .reads_per_queue_pair = Positive(a.max_qp_rd_atom),
                                .reads_in_all = Positive(a.max_res_rd_atom)};
  for (PortFacts& port : device->ports) {
    ibv_port_attr p{};
    if (ibv_query_port(context, static_cast<uint8_t>(port.number), &p) != 0) continue;
    port.active_mtu = uint32_t{128} << p.active_mtu;
    port.max_mtu = uint32_t{128} << p.max_mtu;
  }
}

}  // namespace

void AskDevices(HostFacts* facts) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (DeviceFacts& facts_of : facts->devices) {
    if (!facts_of.problem.empty()) continue;
    ibv_device* found = nullptr;
    for (ibv_device* device : std::span(list, list == nullptr ? 0 : static_cast<size_t>(count))) {
      if (facts_of.name == ibv_get_device_name(device)) found = device;
    }
    if (found == nullptr) {
      facts_of.problem =
          "libibverbs has no driver for it: is the package ibverbs-providers (or the vendor's) there?";
      continue;
    }
    ibv_context* context = ibv_open_device(found);
    if (context == nullptr) {
      facts_of.problem = absl::StrCat("it cannot be opened: ", strerror(errno));
      continue;
    }
    Ask(context, &facts_of);
    ibv_close_device(context);
  }
  if (list != nullptr) ibv_free_device_list(list);
}

}  // namespace furrow::node
