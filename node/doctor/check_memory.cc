#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cluster_files.h"
#include "node/doctor/checks.h"

namespace furrow::node {
namespace {

using client::FormatBytes;

constexpr int kCapIpcLock = 14;
constexpr uint64_t kHugePage = 2 << 20;

uint64_t MemoryHere(const Plan& plan) { return plan.memory * plan.NodesHere(); }

// "3 nodes of 1.0 GB".
std::string Wanted(const Plan& plan) {
  return absl::StrCat(plan.NodesHere(), plan.NodesHere() == 1 ? " node of " : " nodes of ",
                      FormatBytes(plan.memory));
}

std::string Limit(uint64_t bytes) { return bytes == kUnlimited ? "unlimited" : FormatBytes(bytes); }

}  // namespace

void CheckLockedMemory(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const LimitFacts& limits = facts.limits;
  if (!ChooseFabric(facts, plan).verbs) {
    findings->Ok("shared memory needs no locked memory");
    return;
  }
  const uint64_t need = NeedsOf(plan).locked_memory;
  if ((facts.capabilities >> kCapIpcLock & 1) != 0) {
    findings->Ok("this user may lock any memory (CAP_IPC_LOCK)");
    return;
  }
  const std::string found = absl::StrCat("a process may lock ", Limit(limits.locked_memory),
                                         " (ulimit -l), and a node registers ", FormatBytes(need));
  if (limits.locked_memory >= need) {
    findings->Ok(found);
    return;
  }
  findings->Error(found,
                  "LimitMEMLOCK=infinity in the systemd unit; or \"USER - memlock unlimited\" in "
                  "/etc/security/limits.d/furrow.conf and a new login; in a container --ulimit memlock=-1");
}

void CheckMemory(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const uint64_t need = MemoryHere(plan);
  const std::string found = absl::StrCat(Wanted(plan), "; this host has ", FormatBytes(facts.memory), ", ",
                                         FormatBytes(facts.available_memory), " of it free");
  if (facts.memory == 0) {
    findings->Warning("how much memory this host has cannot be read", "is /proc mounted?");
  } else if (need > facts.memory) {
    findings->Error(found, "give --memory less, or put fewer nodes here");
  } else if (need > facts.available_memory) {
    findings->Warning(found, "end what else uses memory before the nodes start, or give --memory less");
  } else {
    findings->Ok(found);
  }
  if (facts.swap > 0 && !ChooseFabric(facts, plan).verbs) {
    findings->Warning(
        absl::StrCat("the host may swap (", FormatBytes(facts.swap), "), also what lies in /dev/shm"),
        "swapoff -a, or vm.swappiness=0: a page that was swapped out stalls a transaction for milliseconds");
  }
}

void CheckMemoryDirectory(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const PlaceFacts& at = facts.memory_directory;
  if (!at.problem.empty()) {
    findings->Error(
        absl::StrCat(at.path, ": ", at.problem),
        "mount a tmpfs there and let the user of Furrow write to it, or give another --memory-dir");
    return;
  }
  const uint64_t need = MemoryHere(plan);
  const std::string found = absl::StrCat(at.path, " (", at.file_system, "): ", FormatBytes(at.free_bytes),
                                         " free of ", FormatBytes(at.bytes), ", for ", Wanted(plan));
  if (at.file_system != "tmpfs" && at.file_system != "hugetlbfs") {
    findings->Error(found, "memory files must lie in memory: give a tmpfs or hugetlbfs as --memory-dir");
  } else if (at.free_bytes < need) {
    findings->Error(found,
                    absl::StrCat(facts.container ? "start the container with --shm-size="
                                                 : absl::StrCat("mount -o remount,size="),
                                 (need >> 20) + 64, facts.container ? "m" : absl::StrCat("M ", at.path),
                                 ", or give --memory less"));
  } else {
    findings->Ok(found);
  }
}

void CheckHugePages(const HostFacts& facts, const Plan& plan, Findings* findings) {
  if (!plan.huge_pages) {
    findings->Ok("not asked for (--huge-pages)");
    return;
  }
  if (facts.memory_directory.file_system == "hugetlbfs") {
    const uint64_t need = (MemoryHere(plan) + kHugePage - 1) / kHugePage;
    std::string nodes;
    for (const NumaFacts& n : facts.numa)
      absl::StrAppend(&nodes, nodes.empty() ? " (" : ", ", "NUMA node ", n.node, ": ", n.free_huge_pages);
    const std::string found =
        absl::StrCat(facts.free_huge_pages, " free pages of 2 MB", nodes, nodes.empty() ? "" : ")", ", ",
                     need, " needed for ", Wanted(plan));
    if (facts.free_huge_pages >= need) {
      findings->Ok(found);
    } else {
      findings->Error(
          found, absl::StrCat("sysctl -w vm.nr_hugepages=", need + facts.huge_pages - facts.free_huge_pages,
                              " soon after boot, or without --huge-pages"));
    }
    return;
  }
  const std::string& mode = facts.shmem_huge_pages;
  const std::string found = absl::StrCat("huge pages of tmpfs are \"", mode, "\"");
  if (mode == "advise" || mode == "within_size" || mode == "always" || mode == "force") {
    findings->Ok(found);
  } else {
    findings->Warning(
        found,
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or mount a tmpfs with "
        "huge=advise as --memory-dir; without it, pages of 4 KB are used");
  }
}

void CheckMappings(const HostFacts& facts, const Plan& plan, Findings* findings) {
  const uint64_t need = NeedsOf(plan).mappings;
  const std::string found =
      absl::StrCat("a process may have ", facts.max_mappings, " mappings, a node needs up to ", need);
  if (facts.max_mappings == 0) {
    findings->Warning("how many mappings a process may have cannot be read", "is /proc/sys mounted?");
  } else if (facts.max_mappings < need) {
    findings->Error(found, absl::StrCat("sysctl -w vm.max_map_count=", need * 2, ", or plan larger regions"));
  } else {
    findings->Ok(found);
  }
}

}  // namespace furrow::node
