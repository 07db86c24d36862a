#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "node/doctor/gather.h"
#include "node/doctor/root_files.h"

namespace furrow::node {
namespace {

// Modules that RDMA needs, and drivers of devices.
constexpr const char* kModules[] = {"ib_core",        "ib_uverbs", "rdma_cm", "rdma_ucm", "mlx5_ib",
                                    "mlx4_ib",        "irdma",     "bnxt_re", "iw_cxgb4", "qedr",
                                    "hns_roce_hw_v2", "erdma",     "efa",     "hfi1",     "mana_ib",
                                    "rdma_rxe",       "siw"};

// /proc/self/limits: "Max locked memory         65536                65536                bytes".
void ReadLimits(const RootFiles& files, LimitFacts* limits) {
  const auto read = [&](absl::string_view name, uint64_t* soft, uint64_t* hard) {
    for (absl::string_view line : absl::StrSplit(files.Text("/proc/self/limits"), '\n')) {
      if (!absl::ConsumePrefix(&line, name)) continue;
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
      if (words.size() < 2) return;
      *soft = ParseLimit(words[0]).value_or(0);
      if (hard != nullptr) *hard = ParseLimit(words[1]).value_or(0);
    }
  };
  read("Max locked memory", &limits->locked_memory, &limits->locked_memory_hard);
  read("Max open files", &limits->descriptors, &limits->descriptors_hard);
  read("Max realtime priority", &limits->realtime_priority, nullptr);
}

void ReadNuma(const RootFiles& files, HostFacts* facts) {
  const std::string base = "/sys/devices/system/node";
  for (const std::string& name : files.List(base)) {
    absl::string_view digits = name;
    NumaFacts node;
    if (!absl::ConsumePrefix(&digits, "node") || !absl::SimpleAtoi(digits, &node.node)) continue;
    const std::string path = absl::StrCat(base, "/", name);
    node.processors = ParseList(files.Text(path + "/cpulist"));
    node.huge_pages = files.Number(path + "/hugepages/hugepages-2048kB/nr_hugepages").value_or(0);
    node.free_huge_pages = files.Number(path + "/hugepages/hugepages-2048kB/free_hugepages").value_or(0);
    facts->numa.push_back(std::move(node));
  }
}

// The word in brackets of "always within_size [advise] never".
std::string Chosen(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "";
}

void ReadMemory(const RootFiles& files, HostFacts* facts) {
  facts->memory = files.Field("/proc/meminfo", "MemTotal").value_or(0);
  facts->available_memory = files.Field("/proc/meminfo", "MemAvailable").value_or(0);
  facts->swap = files.Field("/proc/meminfo", "SwapTotal").value_or(0);
  facts->huge_pages = files.Number("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").value_or(0);
  facts->free_huge_pages =
      files.Number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").value_or(0);
  facts->shmem_huge_pages = Chosen(files.Text("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts->max_mappings = files.Number("/proc/sys/vm/max_map_count").value_or(0);
}

// Version 2: one tree, in which every limit on the way to the root holds.
void ReadCgroup2(const RootFiles& files, std::string group, CgroupFacts* facts) {
  while (true) {
    const std::string path = absl::StrCat("/sys/fs/cgroup", group == "/" ? "" : group);
    if (std::optional<uint64_t> limit = ParseLimit(files.Text(path + "/memory.max"));
        limit.has_value() && *limit < facts->memory) {
      facts->memory = *limit;
      facts->memory_used = files.Number(path + "/memory.current").value_or(0);
    }
    if (std::optional<uint64_t> limit = ParseLimit(files.Text(path + "/pids.max")); limit.has_value())
      facts->processes = std::min(facts->processes, *limit);
    const std::vector<std::string> quota = absl::StrSplit(files.Text(path + "/cpu.max"), ' ');
    double used, period;
    if (quota.size() == 2 && absl::SimpleAtod(quota[0], &used) && absl::SimpleAtod(quota[1], &period) &&
        period > 0 && (facts->processors == 0 || used / period < facts->processors)) {
      facts->processors = used / period;
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

// Version 1: a tree for each kind of limit. In a container the group's path is often that of the host, and
// its files lie at the top of the tree.
std::string Cgroup1Path(const RootFiles& files, const std::string& controller, const std::string& group) {
  const std::string top = "/sys/fs/cgroup/" + controller;
  return group != "/" && files.Exists(top + group) ? top + group : top;
}

void ReadCgroup1(const RootFiles& files, const std::string& controller, const std::string& group,
                 CgroupFacts* facts) {
  const std::string path = Cgroup1Path(files, controller, group);
  if (controller == "memory") {
    const uint64_t limit = files.Number(path + "/memory.limit_in_bytes").value_or(kUnlimited);
    // No limit is written as the largest number of pages.
    facts->memory = limit > (uint64_t{1} << 60) ? kUnlimited : limit;
    facts->memory_used = files.Number(path + "/memory.usage_in_bytes").value_or(0);
  } else if (controller == "pids") {
    facts->processes = ParseLimit(files.Text(path + "/pids.max")).value_or(kUnlimited);
  } else if (controller == "cpu") {
    double quota, period;
    if (absl::SimpleAtod(files.Text(path + "/cpu.cfs_quota_us"), &quota) && quota > 0 &&
        absl::SimpleAtod(files.Text(path + "/cpu.cfs_period_us"), &period) && period > 0) {
      facts->processors = quota / period;
    }
    int64_t realtime;
    if (absl::SimpleAtoi(files.Text(path + "/cpu.rt_runtime_us"), &realtime))
      facts->realtime_runtime_us = realtime;
  }
}

void ReadCgroups(const RootFiles& files, CgroupFacts* facts) {
  for (absl::string_view line : absl::StrSplit(files.Text("/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[0] == "0" && parts[1].empty()) {
      ReadCgroup2(files, parts[2], facts);
      continue;
    }
    for (absl::string_view controller : absl::StrSplit(parts[1], ','))
      ReadCgroup1(files, std::string(controller), parts[2], facts);
  }
}

bool InContainer(const RootFiles& files) {
  if (files.Exists("/.dockerenv") || files.Exists("/run/.containerenv")) return true;
  const std::string groups = files.Text("/proc/1/cgroup");
  return absl::StrContains(groups, "docker") || absl::StrContains(groups, "kubepods") ||
         absl::StrContains(groups, "lxc");
}

}  // namespace

HostFacts GatherFiles(const std::string& root) {
  const RootFiles files(root);
  HostFacts facts;
  facts.name = files.Text("/proc/sys/kernel/hostname");
  facts.kernel = files.Text("/proc/sys/kernel/osrelease");
  facts.container = InContainer(files);
  for (const char* module : kModules) {
    if (files.Exists(absl::StrCat("/sys/module/", module))) facts.modules.push_back(module);
  }
  for (absl::string_view line : absl::StrSplit(files.Text("/proc/self/status"), '\n')) {
    if (absl::ConsumePrefix(&line, "Cpus_allowed_list:"))
      facts.processors = ParseList(std::string(absl::StripAsciiWhitespace(line)));
    if (absl::ConsumePrefix(&line, "CapEff:"))
      (void)absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &facts.capabilities);
  }
  facts.governor = files.Text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.clock_source = files.Text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  ReadNuma(files, &facts);
  ReadMemory(files, &facts);
  ReadLimits(files, &facts.limits);
  ReadCgroups(files, &facts.cgroup);
  GatherDevices(root, &facts);
  return facts;
}

}  // namespace furrow::node
