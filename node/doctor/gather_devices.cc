#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "node/doctor/gather.h"
#include "node/doctor/root_files.h"

namespace furrow::node {
namespace {

// "4: ACTIVE" without its number.
std::string Word(const std::string& text) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

bool InUse(const std::string& gid) {
  constexpr char kNobody[] = "0000:0000:0000:0000";  // the interface's half of the address
  return gid.size() == 39 && !absl::EndsWith(gid, kNobody);
}

std::vector<GidFacts> ReadGids(const RootFiles& files, const std::string& port) {
  std::vector<GidFacts> gids;
  for (const std::string& name : files.List(port + "/gids")) {
    GidFacts gid;
    gid.address = files.Text(absl::StrCat(port, "/gids/", name));
    if (!absl::SimpleAtoi(name, &gid.index) || !InUse(gid.address)) continue;
    gid.type = files.Text(absl::StrCat(port, "/gid_attrs/types/", name));
    gid.interface = files.Text(absl::StrCat(port, "/gid_attrs/ndevs/", name));
    gids.push_back(std::move(gid));
  }
  return gids;
}

PortFacts ReadPort(const RootFiles& files, const std::string& device, const std::string& number) {
  const std::string path = absl::StrCat("/sys/class/infiniband/", device, "/ports/", number);
  PortFacts port;
  (void)absl::SimpleAtoi(number, &port.number);
  port.state = Word(files.Text(path + "/state"));
  port.physical_state = Word(files.Text(path + "/phys_state"));
  port.link_layer = files.Text(path + "/link_layer");
  port.rate = files.Text(path + "/rate");
  const std::string lid = files.Text(path + "/sm_lid");
  (void)absl::SimpleHexAtoi(lid, &port.subnet_manager_lid);
  port.gids = ReadGids(files, path);
  for (const char* folder : {"/counters", "/hw_counters"}) {
    for (const std::string& name : files.List(path + folder)) {
      if (std::optional<uint64_t> value = files.Number(absl::StrCat(path, folder, "/", name)))
        port.counters[name] = *value;
    }
  }
  const std::string config =
      absl::StrCat("/sys/kernel/config/rdma_cm/", device, "/ports/", number, "/default_roce_tos");
  if (std::optional<uint64_t> tos = files.Number(config)) port.default_tos = static_cast<int>(*tos);
  return port;
}

// The device through which processes reach it, and whether this one may.
void ReadCharacterDevice(const RootFiles& files, DeviceFacts* device) {
  for (const std::string& name : files.List("/sys/class/infiniband_verbs")) {
    if (files.Text(absl::StrCat("/sys/class/infiniband_verbs/", name, "/ibdev")) == device->name)
      device->character_device = name;
  }
  if (device->character_device.empty()) {
    device->problem = "the module ib_uverbs does not serve it";
    return;
  }
  const std::string path = "/dev/infiniband/" + device->character_device;
  if (access(files.Path(path).c_str(), R_OK | W_OK) != 0)
    device->problem = absl::StrCat(path, ": ", strerror(errno));
}

std::optional<std::vector<int>> ReadEcn(const RootFiles& files, const std::string& interface,
                                        const char* part) {
  const std::string path = absl::StrCat("/sys/class/net/", interface, "/ecn/", part, "/enable");
  const std::vector<std::string> names = files.List(path);
  if (names.empty()) return std::nullopt;
  std::vector<int> priorities;
  for (const std::string& name : names) {
    int priority;
    if (absl::SimpleAtoi(name, &priority) && files.Number(absl::StrCat(path, "/", name)) == uint64_t{1})
      priorities.push_back(priority);
  }
  return priorities;
}

}  // namespace

void GatherDevices(const std::string& root, HostFacts* facts) {
  const RootFiles files(root);
  facts->infiniband_directory = files.Exists("/dev/infiniband");
  facts->connection_manager_device = access(files.Path("/dev/infiniband/rdma_cm").c_str(), R_OK | W_OK) == 0;
  for (const std::string& name : files.List("/sys/class/infiniband")) {
    const std::string path = "/sys/class/infiniband/" + name;
    DeviceFacts device;
    device.name = name;
    device.driver = files.LinkName(path + "/device/driver");
    device.transport = Word(files.Text(path + "/node_type")) == "RNIC" ? "iWARP" : "InfiniBand";
    device.firmware = files.Text(path + "/fw_ver");
    // The file may hold -1.
    device.numa_node = static_cast<int>(files.Number(path + "/device/numa_node").value_or(-1));
    ReadCharacterDevice(files, &device);
    for (const std::string& number : files.List(path + "/ports"))
      device.ports.push_back(ReadPort(files, name, number));
    facts->devices.push_back(std::move(device));
  }
  for (const std::string& name : files.List("/sys/class/net")) {
    InterfaceFacts interface;
    interface.name = name;
    interface.state = files.Text(absl::StrCat("/sys/class/net/", name, "/operstate"));
    interface.mtu =
        static_cast<uint32_t>(files.Number(absl::StrCat("/sys/class/net/", name, "/mtu")).value_or(0));
    interface.ecn_receiver = ReadEcn(files, name, "roce_np");
    interface.ecn_sender = ReadEcn(files, name, "roce_rp");
    facts->interfaces.push_back(std::move(interface));
  }
}

}  // namespace furrow::node
