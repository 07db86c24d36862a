// furrow doctor: is this host ready for what is planned for it?
#include <cstdio>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "node/commands.h"
#include "node/doctor/checks.h"
#include "node/doctor/gather.h"
#include "node/doctor/report.h"
#include "node/doctor/run_peer.h"
#include "node/flags.h"

namespace furrow::node {
namespace {

constexpr uint64_t kNoGid = UINT64_MAX;

struct DoctorFlags {
  Plan plan;
  PeerSettings peer;
  std::string with;   // --peer: where another doctor serves
  std::string serve;  // --serve: where this one does
  uint64_t gid_index = kNoGid;
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
             "verbs, shm, or auto: verbs if a device has the address of --listen (default auto)");
  flags.Text("listen", "HOST:PORT", &p.listen,
             "address of a node here; chooses the RDMA device (default 127.0.0.1:0)");
  flags.Text("dir", "DIR", &p.directory, "a node's own directory, on disk (default: not examined)");
  flags.Text("memory-dir", "DIR", &p.memory_directory, "where memory files go (default /dev/shm)");
  flags.Text(
      "peer", "ENDPOINT", &f->with,
      "instead: try the fabric with the doctor that serves there: HOST or HOST:PORT for verbs, an absolute "
      "path of a socket for shm");
  flags.Text("serve", "ENDPOINT", &f->serve, "instead: be that doctor, until SIGINT or SIGTERM");
  flags.Switch("once", &f->peer.once, "with --serve: end when the first peer has gone");
  flags.Text("address", "ADDRESS", &f->peer.address,
             "with --peer: of this host's RDMA device (default: that from which the way to the peer begins)");
  flags.Number("gid-index", "N", &f->gid_index,
               "with --peer and --serve: this GID instead of the address's own");
  flags.Text("secret-file", "FILE", &f->peer.secret_file,
             "with --peer and --serve: a secret that both have (default: none)");
  flags.Switch("json", &f->json, "for programs");
  flags.Text("root", "DIR", &f->root, "test: read /proc, /sys and /dev below DIR, and ask no device");
  FURROW_RETURN_IF_ERROR(flags.Parse(arguments));
  if (!f->with.empty() && !f->serve.empty())
    return absl::InvalidArgumentError("--peer and --serve are two sides: give one of them");
  f->peer.endpoint = f->with.empty() ? f->serve : f->with;
  if (f->gid_index != kNoGid) {
    if (f->gid_index > 255) return absl::InvalidArgumentError("--gid-index must be 0 to 255");
    f->peer.gid_index = static_cast<int>(f->gid_index);
  }
  return f->peer.endpoint.empty() ? Validate(p) : absl::OkStatus();
}

int Show(const DoctorFlags& f, const Subject& subject, const std::vector<Finding>& findings) {
  std::fputs((f.json ? ReportJson(subject, findings) : ReportText(subject, findings)).c_str(), stdout);
  return ExitCode(findings);
}

}  // namespace

int RunDoctor(const std::vector<std::string>& arguments) {
  DoctorFlags f;
  if (absl::Status parsed = Parse(arguments, &f); !parsed.ok()) return Report("doctor", parsed);
  if (!f.serve.empty()) {
    absl::Status served = ServePeers(f.peer);
    return served.ok() ? 0 : Report("doctor", served);
  }
  HostFacts facts = GatherFiles(f.root);
  if (!f.with.empty()) {
    absl::StatusOr<std::vector<Finding>> findings = ExaminePeer(f.peer);
    if (!findings.ok()) return Report("doctor", findings.status());
    return Show(f, PeerSubject(facts, f.with), *findings);
  }
  if (f.root.empty()) AskDevices(&facts);
  TryPlaces(f.plan, &facts);
  return Show(f, HostSubject(facts, f.plan), Examine(facts, f.plan));
}

}  // namespace furrow::node
