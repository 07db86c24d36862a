// furrow doctor: is this host ready for what is planned for it?
#include <cstdio>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "node/commands.h"
#include "node/doctor/checks.h"
#include "node/doctor/gather.h"
#include "node/doctor/report.h"
#include "node/flags.h"

namespace furrow::node {
namespace {

struct DoctorFlags {
  Plan plan;
  bool json = false;
  std::string root;
};

absl::Status Parse(const std::vector<std::string>& arguments, DoctorFlags* f) {
  Plan& p = f->plan;
  Flags flags("furrow doctor", "is this host ready for the nodes that are planned for it?");
  flags.Number("nodes", "N", &p.nodes, "storage members of the whole cluster (default 3)");
  flags.Number("nodes-here", "N", &p.nodes_here,
               "of them on this host (default: all if --listen is a loopback address, else 1)");
  flags.Number("compute", "N", &p.compute, "compute members: applications and benchmarks (default 1)");
  flags.Number("workers", "N", &p.workers, "worker threads of each member (default 1)");
  flags.Size("memory", &p.memory, "memory of each node (default 1G)");
  flags.Size("region-size", &p.region_size, "bytes of a region (default 64M)");
  flags.Switch("huge-pages", &p.huge_pages, "nodes are to use 2 MB pages");
  flags.Text("fabric", "NAME", &p.fabric,
             "verbs, shm, or auto: shm if all nodes are on this host (default auto)");
  flags.Text("listen", "HOST:PORT", &p.listen,
             "address of a node here; chooses the RDMA device (default 127.0.0.1:0)");
  flags.Text("dir", "DIR", &p.directory, "a node's own directory, on disk (default: not examined)");
  flags.Text("memory-dir", "DIR", &p.memory_directory, "where memory files go (default /dev/shm)");
  flags.Switch("json", &f->json, "for programs");
  flags.Text("root", "DIR", &f->root, "test: read /proc, /sys and /dev below DIR, and ask no device");
  FURROW_RETURN_IF_ERROR(flags.Parse(arguments));
  return Validate(p);
}

}  // namespace

int RunDoctor(const std::vector<std::string>& arguments) {
  DoctorFlags f;
  if (absl::Status parsed = Parse(arguments, &f); !parsed.ok()) return Report("doctor", parsed);
  HostFacts facts = GatherFiles(f.root);
  if (f.root.empty()) AskDevices(&facts);
  TryPlaces(f.plan, &facts);
  const std::vector<Finding> findings = Examine(facts, f.plan);
  const std::string report =
      f.json ? ReportJson(facts, f.plan, findings) : ReportText(facts, f.plan, findings);
  std::fputs(report.c_str(), stdout);
  return ExitCode(findings);
}

}  // namespace furrow::node
