#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "node/doctor/checks.h"

namespace furrow::node {
namespace {

// Counters that stay 0 on a network that loses nothing, by the names that drivers give them.
constexpr const char* kLossCounters[] = {"out_of_sequence",
                                         "packet_seq_err",
                                         "local_ack_timeout_err",
                                         "implied_nak_seq_err",
                                         "rnr_nak_retry_err",
                                         "out_of_buffer",
                                         "rx_icrc_encapsulated",
                                         "retry_exceeded_err",
                                         "out_of_seq_request",
                                         "completer_retry_err",
                                         "symbol_error",
                                         "port_rcv_errors",
                                         "port_xmit_discards",
                                         "link_downed",
                                         "rx_discards",
                                         "local_link_integrity_errors",
                                         "excessive_buffer_overrun_errors"};
// Of ECN: packets that a switch has marked, notifications sent and obeyed.
constexpr const char* kEcnCounters[] = {"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"};

std::string InterfaceOf(const PortFacts& port) {
  for (const GidFacts& gid : port.gids) {
    if (!gid.interface.empty()) return gid.interface;
  }
  return "";
}

std::string Priorities(const std::vector<int>& list) {
  return list.empty() ? "none" : absl::StrJoin(list, ", ");
}

void CheckFlowControl(const std::string& where, const InterfaceFacts& at, Findings* findings) {
  if (!at.flow_control.has_value()) {
    findings->Warning(
        absl::StrCat(where, ": whether PFC is on cannot be read here"),
        absl::StrCat("look with \"dcb pfc show dev ", at.name, "\" (or mlnx_qos -i ", at.name,
                     "): the priority of Furrow's traffic must have it, here and in the switches"));
  } else if (at.flow_control->empty()) {
    findings->Warning(absl::StrCat(where, ": PFC is on for no priority"),
                      absl::StrCat("the network loses packets under load: see docs/rdma.md (dcb pfc set dev ",
                                   at.name, " prio-pfc all:off 3:on, and the same in the switches)"));
  } else {
    findings->Ok(absl::StrCat(where, ": PFC is on for priority ", Priorities(*at.flow_control)));
  }
}

void CheckEcn(const std::string& where, const InterfaceFacts& at, Findings* findings) {
  if (!at.ecn_receiver.has_value() || !at.ecn_sender.has_value()) {
    findings->Warning(absl::StrCat(where, ": whether ECN (DCQCN) is on cannot be read here"),
                      "look with the tools of the card's vendor; docs/rdma.md says what it should be");
    return;
  }
  const std::string found =
      absl::StrCat(where, ": ECN (DCQCN) is on for priority ", Priorities(*at.ecn_receiver),
                   " as receiver and ", Priorities(*at.ecn_sender), " as sender");
  if (at.ecn_receiver->empty() || at.ecn_sender->empty()) {
    findings->Warning(found, absl::StrCat("write 1 to /sys/class/net/", at.name,
                                          "/ecn/roce_np/enable/3 and .../roce_rp/enable/3, on all hosts"));
  } else {
    findings->Ok(found);
  }
}

}  // namespace

void CheckCongestion(const HostFacts& facts, const Plan& plan, Findings* findings) {
  for (const DeviceFacts& device : facts.devices) {
    for (const PortFacts& port : device.ports) {
      const std::string where = absl::StrCat(device.name, " port ", port.number);
      if (port.state != "ACTIVE") continue;
      if (port.link_layer == "InfiniBand") {
        findings->Ok(where + ": InfiniBand loses nothing by itself, and needs neither PFC nor ECN");
        continue;
      }
      if (device.driver.empty() || device.transport == "iWARP") {
        findings->Ok(where + ": no PFC or ECN for this kind of device; what is lost is sent again");
        continue;
      }
      InterfaceFacts interface;
      interface.name = InterfaceOf(port);
      for (const InterfaceFacts& known : facts.interfaces) {
        if (known.name == interface.name) interface = known;
      }
      CheckFlowControl(where, interface, findings);
      CheckEcn(where, interface, findings);
      if (port.default_tos.has_value()) {
        findings->Ok(absl::StrCat(where, ": connections have the type of service ", *port.default_tos,
                                  " unless Furrow's traffic class says otherwise"));
      }
    }
  }
}

void CheckCounters(const HostFacts& facts, const Plan& plan, Findings* findings) {
  for (const DeviceFacts& device : facts.devices) {
    for (const PortFacts& port : device.ports) {
      const std::string where = absl::StrCat(device.name, " port ", port.number);
      if (port.counters.empty()) {
        findings->Warning(where + ": counters cannot be read here",
                          "mount /sys into the container, or look at the host itself");
        continue;
      }
      const auto value = [&](const char* name) {
        const auto it = port.counters.find(name);
        return it == port.counters.end() ? uint64_t{0} : it->second;
      };
      std::vector<std::string> losses, marks;
      for (const char* name : kLossCounters)
        if (value(name) > 0) losses.push_back(absl::StrCat(name, " ", value(name)));
      bool counts_marks = false, marked = false;
      for (const char* name : kEcnCounters) {
        counts_marks |= port.counters.contains(name);
        marked |= value(name) > 0;
        if (value(name) > 0) marks.push_back(absl::StrCat(name, " ", value(name)));
      }
      if (losses.empty()) {
        findings->Ok(absl::StrCat(where, ": nothing was lost since the driver was loaded",
                                  marks.empty() ? "" : "; ", absl::StrJoin(marks, ", ")));
        continue;
      }
      const std::string found =
          absl::StrCat(where, ", since the driver was loaded: ", absl::StrJoin(losses, ", "));
      if (counts_marks && !marked) {
        findings->Warning(found + "; and no packet was ever marked by ECN",
                          "ECN is not at work: switches must mark, and hosts obey (docs/rdma.md)");
      } else {
        findings->Warning(found,
                          "run this again later: if they grow, look at cables, PFC and ECN (docs/rdma.md)");
      }
    }
  }
}

}  // namespace furrow::node
