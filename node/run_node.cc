// furrow node: a storage member, until it is stopped (SIGTERM, SIGINT) or the cluster ends.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "client/member.h"
#include "node/commands.h"
#include "node/flags.h"

namespace furrow::node {
namespace {

struct NodeFlags {
  client::MemberOptions member;
  uint64_t id = 0;
  uint64_t workers = 1;
  uint64_t replicas = 3;
  uint64_t log_ring = 4 << 20;
  uint64_t message_ring = 256 << 10;
  std::string durability = "replicated";
  std::string log_level = "info";
  std::string ready_file;
};

// docs/rdma.md explains them.
void AddRdmaFlags(Flags& flags, client::RdmaOptions& o) {
  flags.Text("rdma-address", "IP", &o.address,
             "verbs: this host's address on the RDMA device (default: that of --listen)");
  flags.Number("rdma-gid-index", "N", &o.gid_index, "verbs: this GID instead of the address's");
  flags.Number("rdma-traffic-class", "N", &o.traffic_class, "verbs: DSCP * 4 of all data (default 0)");
  flags.Number("rdma-service-level", "N", &o.service_level,
               "verbs: lane or priority of all data (default 0)");
  flags.Number("rdma-lease-traffic-class", "N", &o.lease_traffic_class,
               "verbs: DSCP * 4 of leases (default 0)");
  flags.Number("rdma-lease-service-level", "N", &o.lease_service_level,
               "verbs: lane or priority of leases (default 0)");
  flags.Number("rdma-retry-count", "N", &o.retry_count,
               "verbs: how often a packet is sent again, 0 to 6 (default 6)");
  flags.Number("rdma-ack-timeout", "N", &o.ack_timeout,
               "verbs: it waits 4.096 us * 2^N each time (default 16: 0.27 s)");
  flags.Number("rdma-max-mtu", "BYTES", &o.max_mtu, "verbs: largest packet (default 4096)");
  flags.Number("rdma-read-depth", "N", &o.read_depth, "verbs: READs of a connection under way (default 16)");
}

absl::Status Parse(const std::vector<std::string>& arguments, NodeFlags* f) {
  client::MemberOptions& m = f->member;
  m.storage = true;
  m.wait_for_cluster = true;
  Flags flags("furrow node", "run a storage member of a cluster");
  flags.Text("dir", "DIR", &m.directory, "this node's own directory; it must exist");
  flags.Number("id", "N", &f->id, "this node's id, 1 to 1000, unique in the cluster");
  flags.Text("listen", "HOST:PORT", &m.listen, "control address (default 127.0.0.1:0, any free port)");
  flags.Text("join", "WHERE", &m.cluster,
             "host:port of a member, or the cluster's directory; without it: found a cluster");
  flags.Duration("join-timeout", &m.join_timeout_ns, "how long to wait for that cluster (default 10s)");
  flags.Text("cluster-dir", "DIR", &m.cluster_directory,
             "founder: where configuration, \"cluster\" and \"secret\" go (default --dir)");
  flags.Text("secret-file", "FILE", &m.secret_file,
             "the cluster's secret (default \"secret\" in its directory)");
  flags.Number("replicas", "N", &f->replicas, "founder: copies of each region (default 3)");
  flags.Size("region-size", &m.region_bytes, "founder: bytes of a region (default 64M)");
  flags.Duration("lease", &m.lease_ns,
                 "founder: how long any member may be silent before it is lost (default 5s)");
  flags.Number("lease-renewals", "N", &m.lease_renewals,
               "how often in a lease this node renews it (default 4)");
  flags.Text("durability", "MODE", &f->durability,
             "replicated: memory of all copies; other modes are not there yet");
  flags.Number("workers", "N", &f->workers, "threads that run transactions (default 1)");
  flags.Size("memory", &m.memory_bytes, "all memory of this node: regions, rings, old versions (default 1G)");
  flags.Size("old-versions", &m.old_version_bytes, "of it for old versions (default 64M)");
  flags.Switch("huge-pages", &m.huge_pages, "use 2 MB pages where the host grants them");
  flags.Text("failure-domain", "NAME", &m.failure_domain,
             "copies go to different ones (default: each node its own)");
  flags.Text(
      "fabric", "NAME", &m.fabric,
      "auto, shm or verbs: what carries data between members (default auto: verbs if an RDMA device has "
      "the address of --listen; a node that joins takes its cluster's)");
  AddRdmaFlags(flags, m.rdma);
  flags.Text("socket-dir", "DIR", &m.socket_directory,
             "Unix sockets (default $XDG_RUNTIME_DIR/furrow or /tmp/furrow-UID)");
  flags.Text("memory-dir", "DIR", &m.memory_root,
             "where memory files go: tmpfs or huge pages (default /dev/shm)");
  flags.Size("log-ring", &f->log_ring, "log ring per sending worker (default 4M)");
  flags.Size("message-ring", &f->message_ring, "message ring per sending worker (default 256K)");
  flags.Duration("clock-offset", &m.clock_offset_ns, "test: this node's clock is off by that much");
  flags.Duration("clock-uncertainty", &m.clock_uncertainty_ns,
                 "test: every time interval is wider on both sides");
  flags.Text("log-level", "LEVEL", &f->log_level, "debug, info, warning or error (default info)");
  flags.Text("ready-file", "FILE", &f->ready_file, "written once this node serves; removed when it stops");
  FURROW_RETURN_IF_ERROR(flags.Parse(arguments));
  if (f->durability != "replicated") {
    return absl::InvalidArgumentError(
        absl::StrCat("--durability ", f->durability,
                     " is not there yet: use replicated, which "
                     "keeps every region in the memory of all its copies and nothing on disk"));
  }
  if (f->id > UINT32_MAX || f->workers > UINT16_MAX || f->replicas > UINT32_MAX || f->log_ring > (1u << 30) ||
      f->message_ring > (1u << 30)) {
    return absl::InvalidArgumentError("a number among the flags is out of range");
  }
  m.id = static_cast<uint32_t>(f->id);
  m.workers = static_cast<uint16_t>(f->workers);
  m.replicas = static_cast<uint32_t>(f->replicas);
  m.log_ring_bytes = static_cast<uint32_t>(f->log_ring);
  m.message_ring_bytes = static_cast<uint32_t>(f->message_ring);
  if (f->log_level == "debug")
    SetLogLevel(LogLevel::kDebug);
  else if (f->log_level == "info")
    SetLogLevel(LogLevel::kInfo);
  else if (f->log_level == "warning")
    SetLogLevel(LogLevel::kWarning);
  else if (f->log_level == "error")
    SetLogLevel(LogLevel::kError);
  else
    return absl::InvalidArgumentError("--log-level is debug, info, warning or error");
  return client::Validate(m);
}

// How the cluster ended, if it did, and what wakes the main thread then.
struct End {
  int event = eventfd(0, EFD_CLOEXEC);
  Mutex mutex;
  bool happened ABSL_GUARDED_BY(mutex) = false;
  bool in_good_order ABSL_GUARDED_BY(mutex) = false;
  std::string why ABSL_GUARDED_BY(mutex);
  ~End() { close(event); }
};

// Termination signals come as something to read; to be called before any thread starts, so that all inherit
// the mask.
int SignalDescriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

void WaitForSignalOrEnd(int signals, const End& end) {
  pollfd wanted[] = {{signals, POLLIN, 0}, {end.event, POLLIN, 0}};
  while (poll(wanted, 2, -1) < 0 && errno == EINTR) {
  }
}

// While the node stops: the next signal is answered by what is waited for, the one after that ends the
// process.
class Impatience {
 public:
  explicit Impatience(int signals)
      : thread_({.name = "signals", .realtime_priority = 0, .cpu = {}}, [this, signals] { Run(signals); }) {
    FURROW_LOG(INFO) << "stopping";
  }
  ~Impatience() {
    const uint64_t one = 1;
    FURROW_CHECK(write(stopped_, &one, sizeof(one)) == sizeof(one));
    thread_.Join();
    close(stopped_);
  }

 private:
  void Run(int signals) {
    pollfd wanted[] = {{signals, POLLIN, 0}, {stopped_, POLLIN, 0}};
    signalfd_siginfo signal;
    // The first one is still there to be read, if it was a signal that ended the wait.
    for (int seen = 0;; ++seen) {
      while (poll(wanted, 2, -1) < 0 && errno == EINTR) {
      }
      if (wanted[1].revents != 0 || read(signals, &signal, sizeof(signal)) != sizeof(signal)) return;
      if (seen == 1) {
        std::fputs(
            "furrow node: still stopping: it waits until its last transactions are at all replicas and the "
            "other members know, up to a minute where one does not answer; once more ends it at once, and "
            "the others lose it\n",
            stderr);
      } else if (seen > 1) {
        std::fputs("furrow node: ended before it had left\n", stderr);
        _exit(1);
      }
    }
  }

  const int stopped_ = eventfd(0, EFD_CLOEXEC);
  Thread thread_;
};

absl::Status WriteReadyFile(const std::string& path, const client::Member& member) {
  std::string text = absl::StrCat("pid=", getpid(), "\naddress=", member.control_address(), "\n");
  const std::string temporary = path + ".new";
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write --ready-file ", path));
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) {
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write --ready-file ", path));
  }
  return absl::OkStatus();
}

}  // namespace

int RunNode(const std::vector<std::string>& arguments) {
  NodeFlags flags;
  if (absl::Status parsed = Parse(arguments, &flags); !parsed.ok()) return Report("node", parsed);
  SetLogTag(absl::StrCat("n", flags.id));
  RaiseDescriptorLimit();
  const int signals = SignalDescriptor();
  absl::Cleanup close_signals = [signals] { close(signals); };
  End end;
  if (signals < 0 || end.event < 0) {
    return Report("node", absl::ErrnoToStatus(errno, "cannot make descriptors: raise ulimit -n"));
  }
  flags.member.on_end = [&end](bool in_good_order, const std::string& why) {
    MutexLock lock(&end.mutex);
    end.happened = true;
    end.in_good_order = in_good_order;
    end.why = why;
    const uint64_t one = 1;
    FURROW_CHECK(write(end.event, &one, sizeof(one)) == sizeof(one));
  };
  absl::StatusOr<std::unique_ptr<client::Member>> member = client::Member::Start(flags.member);
  if (!member.ok()) return Report("node", member.status());
  absl::Cleanup remove_ready_file = [&] {
    if (!flags.ready_file.empty()) unlink(flags.ready_file.c_str());
  };
  if (!flags.ready_file.empty()) {
    if (absl::Status written = WriteReadyFile(flags.ready_file, **member); !written.ok())
      return Report("node", written);
  }
  FURROW_LOG(INFO) << "node " << flags.id << " of cluster " << (*member)->cluster_id() << " serves at "
                   << (*member)->control_address();
  WaitForSignalOrEnd(signals, end);
  absl::Status stopped;
  {
    Impatience impatience(signals);
    stopped = (*member)->Stop();
  }
  MutexLock lock(&end.mutex);
  if (end.happened && !end.in_good_order) {
    return Report("node", absl::UnavailableError(
                              absl::StrCat("the cluster has ended: ", end.why,
                                           "; its data is gone, since failures are not recovered from yet")));
  }
  if (end.happened) FURROW_LOG(INFO) << "the cluster has ended: " << end.why;
  if (!stopped.ok()) return Report("node", stopped);
  FURROW_LOG(INFO) << "node " << flags.id << " has stopped";
  return 0;
}

}  // namespace furrow::node
