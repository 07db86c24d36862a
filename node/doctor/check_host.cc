#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cluster_files.h"
#include "node/doctor/checks.h"

namespace furrow::node {
namespace {

using client::FormatBytes;

constexpr int kCapSysNice = 23;

bool Loaded(const HostFacts& facts, const char* module) {
  return std::find(facts.modules.begin(), facts.modules.end(), module) != facts.modules.end();
}

}  // namespace

void CheckProcessors(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const uint64_t threads = plan.NodesHere() * plan.workers;
  double usable = static_cast<double>(facts.processors.size());
  std::string limit;
  if (facts.cgroup.processors > 0 && facts.cgroup.processors < usable) {
    usable = facts.cgroup.processors;
    limit = absl::StrFormat(", %.1f by the limit of its control group", usable);
  }
  const std::string found =
      absl::StrCat("this process may use ", facts.processors.size(), " processors", limit, "; the plan has ",
                   threads, " workers here, which spin while they are busy, and a thread for leases");
  if (facts.processors.empty()) {
    findings->Warning("which processors this process may use cannot be read", "is /proc mounted?");
  } else if (usable < static_cast<double>(threads) + 1) {
    findings->Warning(found,
                      "all works, but slower than it could: fewer workers or nodes here, more processors, or "
                      "a longer --lease so that a node without a processor is not taken for lost");
  } else {
    findings->Ok(found);
  }
  if (!facts.governor.empty() && facts.governor != "performance") {
    findings->Warning(absl::StrCat("the processors' governor is \"", facts.governor, "\""),
                      "cpupower frequency-set -g performance: clock changes cost microseconds");
  }
}

void CheckRealtime(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const bool capable = (facts.capabilities >> kCapSysNice & 1) != 0;
  const uint64_t priority = facts.limits.realtime_priority;
  if (facts.cgroup.realtime_runtime_us == 0) {
    findings->Warning(
        "the control group gives real-time threads no time (cpu.rt_runtime_us is 0)",
        "start the container with --cpu-rt-runtime, or the leases' thread shares its processor with others");
  } else if (capable || priority > 0) {
    findings->Ok(capable
                     ? "the leases' thread may have a real-time priority (CAP_SYS_NICE)"
                     : absl::StrCat("the leases' thread may have a real-time priority, up to ", priority));
  } else {
    findings->Warning(
        "the leases' thread may not have a real-time priority",
        "LimitRTPRIO=50 in the systemd unit, or --cap-add=SYS_NICE for a container: without it, leases "
        "must be longer (--lease)");
  }
}

void CheckClock(const HostFacts& facts, const Plan& plan, Findings* findings) {
  constexpr const char* kQuick[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter",
                                    "xen"};
  const std::string& source = facts.clock_source;
  if (source.empty()) {
    findings->Warning("the source of time cannot be read", "is /sys mounted?");
  } else if (std::find(std::begin(kQuick), std::end(kQuick), source) != std::end(kQuick)) {
    findings->Ok(absl::StrCat("time comes from ", source));
  } else {
    findings->Warning(
        absl::StrCat("time comes from ", source, ", which takes microseconds to read"),
        "let the kernel use the processor's counter: clocksource=tsc tsc=reliable on its command line, "
        "if the host's counters are in step (dmesg | grep -i tsc says why it was refused)");
  }
}

void CheckModules(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const std::string loaded = absl::StrJoin(facts.modules, ", ");
  if (!ChooseFabric(facts, plan).verbs) {
    if (!loaded.empty()) findings->Ok(absl::StrCat("RDMA modules: ", loaded));
    return;
  }
  bool whole = true;
  for (const char* module : {"ib_uverbs", "rdma_ucm"}) {
    if (Loaded(facts, module)) continue;
    whole = false;
    findings->Error(absl::StrCat("the kernel module ", module, " is not loaded"),
                    absl::StrCat("modprobe ", module, facts.container ? " on the host of the container" : "",
                                 ", and ", module, " in /etc/modules-load.d/furrow.conf"));
  }
  if (whole && !facts.connection_manager_device) {
    findings->Error("/dev/infiniband/rdma_cm cannot be opened by this user",
                    facts.container
                        ? "start the container with --device=/dev/infiniband/rdma_cm"
                        : "let the user of Furrow read and write it (a udev rule, or the group rdma)");
  } else if (whole) {
    findings->Ok(absl::StrCat("RDMA modules: ", loaded));
  }
}

void CheckContainer(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const CgroupFacts& group = facts.cgroup;
  const uint64_t memory = plan.memory * plan.NodesHere();
  // Beside workers and leases: gRPC's, the fabric's and those of the allocator of memory.
  const uint64_t threads = plan.NodesHere() * (plan.workers + 64);
  if (group.memory != kUnlimited) {
    const std::string found =
        absl::StrCat("the control group may have ", FormatBytes(group.memory), " of memory and uses ",
                     FormatBytes(group.memory_used), "; the plan takes ", FormatBytes(memory), " here");
    if (group.memory < memory + group.memory_used) {
      findings->Error(
          found,
          "raise the limit (MemoryMax= of the unit, --memory of the container): memory files count, and "
          "the kernel kills a node that exceeds it");
    } else {
      findings->Ok(found);
    }
  }
  if (group.processes != kUnlimited) {
    const std::string found =
        absl::StrCat("the control group may have ", group.processes, " threads, the plan about ", threads);
    group.processes < threads
        ? findings->Error(found, "raise the limit (TasksMax= of the unit, --pids-limit of the container)")
        : findings->Ok(found);
  }
  if (facts.container) findings->Ok("this is a container; docs/rdma.md lists what it needs");
}

void CheckDescriptors(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const uint64_t need = NeedsOf(plan).descriptors;
  const uint64_t hard = facts.limits.descriptors_hard;
  const std::string found =
      absl::StrCat("a process may have ", hard == kUnlimited ? "any number of" : absl::StrCat(hard),
                   " descriptors (hard limit), a node needs up to ", need);
  if (hard >= need) {
    findings->Ok(found);
  } else {
    findings->Error(found, absl::StrCat("LimitNOFILE=", need * 2,
                                        " in the systemd unit, or the same for \"nofile\" in "
                                        "/etc/security/limits.d/furrow.conf"));
  }
}

void CheckStateDirectory(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const PlaceFacts& at = facts.state;
  if (plan.directory.empty()) return;
  if (!at.problem.empty()) {
    findings->Error(absl::StrCat(at.path, ": ", at.problem),
                    "make the directory (mkdir -p) for the user of Furrow, or give another --dir");
    return;
  }
  const std::string found = absl::StrCat(at.path, " (", at.file_system, "): ", FormatBytes(at.free_bytes),
                                         " free of ", FormatBytes(at.bytes));
  const bool passes_over = at.file_system == "tmpfs" || at.file_system == "overlay" ||
                           at.file_system == "nfs" || at.file_system == "9p" || at.file_system == "fuse";
  if (at.free_bytes < (uint64_t{64} << 20)) {
    findings->Error(found, "free some: the cluster's configuration and logs need 64 MB");
  } else if (passes_over) {
    findings->Warning(found,
                      "a local disk with ext4 or xfs keeps what is written when power or a container ends");
  } else if (at.free_bytes < 2 * plan.memory * plan.NodesHere()) {
    findings->Warning(found,
                      "enough for durability mode replicated; modes that write checkpoints and a redo log "
                      "take about twice --memory");
  } else if (!at.direct_io) {
    findings->Warning(found + "; it refuses O_DIRECT",
                      "writes go through the page cache: choose ext4 or xfs");
  } else {
    findings->Ok(found + "; O_DIRECT works");
  }
}

void CheckListen(const HostFacts& facts, const Plan& plan, Findings* findings) {
  for (const ListenFacts& listen : facts.listen) {
    if (listen.problem.empty()) {
      findings->Ok(absl::StrCat(listen.address, " is free"));
    } else {
      findings->Error(absl::StrCat(listen.address, ": ", listen.problem),
                      "give --listen an address of this host and a free port (ss -ltnp shows who has it)");
    }
  }
}

}  // namespace furrow::node
