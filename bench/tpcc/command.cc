#include "bench/tpcc/command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "bench/harness/agent.h"
#include "bench/harness/member_host.h"
#include "bench/harness/run.h"
#include "bench/tpcc/workload.h"
#include "client/cluster_files.h"
#include "client/member.h"
#include "cluster/secret.h"
#include "cluster/status.h"

namespace furrow::bench::tpcc {
namespace {

constexpr Nanos kStatusTimeoutNs = 5 * kSecond;

struct TpccFlags {
  CommonFlags common;
  uint64_t warehouses = 12;
  uint64_t scale = 100;

  FlagSet Set() {
    FlagSet set(
        "furrow-bench tpcc --symmetric | --cluster DIR-or-ADDRESS [flags]\n"
        "Runs the transactions of TPC-C without think time, and without the claim to be TPC-C.");
    set.AddNumber("warehouses", &warehouses, 1, kMaxWarehouses, "warehouses in all");
    set.AddNumber("scale", &scale, 1, 100,
                  "per cent of the specification's customers, orders and items of a warehouse");
    common.AddTo(&set);
    return set;
  }
  Data WhichData() const {
    return common.reload ? Data::kReplace : common.no_load ? Data::kThere : Data::kNew;
  }
  Scale DataScale() const {
    Scale s;
    s.warehouses = static_cast<uint32_t>(warehouses);
    s.customers = static_cast<uint32_t>(kCustomers * scale / 100);
    s.items = static_cast<uint32_t>(kItems * scale / 100);
    s.item_copies = static_cast<uint32_t>(common.symmetric ? common.nodes : 1);
    return s;
  }
};

int Complain(const TpccFlags& flags, const absl::Status& status, int code) {
  const std::string text =
      client::WithOptionNames(std::string(status.message()), flags.common.option_names());
  std::fprintf(stderr, "furrow-bench tpcc: %s\n", text.c_str());
  return code;
}

// ResourceExhausted: the data will not fit, which is better known before hours of loading than after.
absl::Status CheckRoom(const TpccFlags& flags) {
  const CommonFlags& common = flags.common;
  if (common.no_load) return absl::OkStatus();
  uint64_t nodes = common.nodes;
  uint64_t replicas = common.replicas;
  uint64_t room = common.nodes * (common.memory_mb << 20);
  if (!common.symmetric) {
    FURROW_ASSIGN_OR_RETURN(const client::ClusterAddress at,
                            client::FindCluster(common.cluster, common.secret_file));
    FURROW_ASSIGN_OR_RETURN(const std::string secret, cluster::ReadSecret(at.secret_file));
    cluster::ControlClient client(secret);
    FURROW_ASSIGN_OR_RETURN(const cluster::ClusterStatus status,
                            FetchStatus(client, secret, at.address, kStatusTimeoutNs));
    nodes = room = 0;
    replicas = status.configuration.replicas;
    for (const cluster::MemberStatus& m : status.members) {
      if (m.member.role != cluster::Role::kStorage || !m.answers) continue;
      ++nodes;
      // What --reload replaces gives its memory back.
      room += m.report.memory_limit - (common.reload ? 0 : m.report.memory_used);
    }
  }
  const uint64_t warehouse = kWarehouseBytes * flags.scale / 100 * replicas;
  if (flags.warehouses * warehouse <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      WithCommas(flags.warehouses), " warehouses need at least ",
      client::FormatBytes(flags.warehouses * warehouse), " in all, with ", replicas,
      " copies of everything, and the ", nodes, " nodes have ", client::FormatBytes(room), " of memory",
      common.symmetric || common.reload ? "" : " left", ": that is enough for about ", room / warehouse,
      " --warehouses; or give the nodes more MemberOptions::memory_bytes"));
}

int RunAgent(const TpccFlags& flags) {
  // The parent decides what an interrupt means, and its end is this process's end, in good order. Signals
  // that go to the whole group (^C, a terminal that closes, timeout(1)) must not end a member of the cluster.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) (void)::signal(number, SIG_IGN);
  SetLogTag(absl::StrCat("p", flags.common.agent_index + 1));
  RaiseDescriptorLimit();
  LineChannel channel(static_cast<int>(flags.common.agent_fd));
  auto host = MemberHost::Start(flags.common);
  absl::StatusOr<std::string> ready = host.ok() ? (*host)->ReadyLine(flags.common) : host.status();
  if (!ready.ok()) {
    (void)channel.Send(absl::StrCat("failed ", absl::BytesToHexString(ready.status().ToString())));
    return 1;
  }
  TpccWorkload workload(flags.DataScale(), flags.common.seed, flags.common.symmetric, flags.WhichData());
  const uint64_t processes = flags.common.processes();
  AgentOptions options{.process = static_cast<uint32_t>(flags.common.agent_index),
                       .processes = static_cast<uint32_t>(processes),
                       .terminals = flags.common.terminals,
                       .rate = static_cast<double>(flags.common.rate) / static_cast<double>(processes),
                       .seed = flags.common.seed};
  Agent agent(options, **host, workload, channel);
  if (!channel.Send(*ready).ok()) return 1;
  agent.Run();
  host->reset();  // what still runs on the workers refers to workload and agent
  return 0;
}

// A directory for the processes of --symmetric, removed at the end.
class RunDirectory {
 public:
  absl::Status Make() {
    const char* base = std::getenv("XDG_RUNTIME_DIR");
    path_ = absl::StrCat(base != nullptr && *base != '\0' ? base : "/tmp", "/furrow-bench-", ::getpid());
    std::error_code error;
    if (!std::filesystem::create_directory(path_, error)) {
      return absl::UnavailableError(absl::StrCat("cannot make the directory ", path_, ": ",
                                                 error ? error.message() : "it is there already",
                                                 "; set XDG_RUNTIME_DIR to a directory that can be written"));
    }
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, error);
    made_ = true;
    return absl::OkStatus();
  }
  ~RunDirectory() {
    std::error_code error;
    if (made_) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

int RunParent(TpccFlags& flags, std::span<const std::string_view> arguments) {
  CommonFlags& common = flags.common;
  if (const absl::Status valid = common.Validate(); !valid.ok()) {
    return Complain(flags, valid, absl::IsInvalidArgument(valid) ? 2 : 1);
  }
  if (common.seed == 0) common.seed = EntropySeed() >> 16;
  std::vector<std::string> mine = {"tpcc"};
  for (const std::string_view argument : arguments) mine.emplace_back(argument);
  mine.insert(mine.end(), {"--seed", absl::StrCat(common.seed)});
  RunDirectory directory;
  if (common.symmetric) {
    if (common.dir.empty()) {
      if (const absl::Status made = directory.Make(); !made.ok()) return Complain(flags, made, 1);
      common.dir = directory.path();
    }
    if (common.memory_mb == 0) {
      const auto memory = DefaultMemoryBytes(common.nodes);
      if (!memory.ok()) return Complain(flags, memory.status(), 1);
      common.memory_mb = *memory >> 20;
    }
    mine.insert(mine.end(), {"--dir", common.dir, "--memory", absl::StrCat(common.memory_mb)});
  }
  if (const absl::Status room = CheckRoom(flags); !room.ok()) return Complain(flags, room, 1);
  CatchInterrupts();
  Console console(stdout, ::isatty(STDOUT_FILENO) == 1, MonotonicClock());
  Report report;
  report.workload = "tpcc";
  report.mode = common.symmetric ? "symmetric" : "cluster";
  report.workers = common.workers;
  const uint64_t workers = common.processes() * common.workers;
  report.terminals = common.terminals != 0
                         ? common.terminals
                         : TerminalsOf((flags.warehouses + workers - 1) / workers, common.symmetric);
  report.rate = common.rate;
  report.headline_type = "new_order";
  report.headline_name = "new_orders_per_second";
  report.extra = {{"warehouses", flags.warehouses}, {"scale_percent", flags.scale}, {"seed", common.seed}};
  if (flags.scale != 100) {
    report.remark = absl::StrCat("a warehouse has ", flags.scale,
                                 " % of the customers, orders and items that TPC-C's specification demands");
  }
  const absl::Status ran = RunBenchmark(common, std::move(mine), console, MonotonicClock(), &report);
  if (!ran.ok()) return Complain(flags, ran, 1);
  if (const absl::Status delivered = Deliver(common, report, console); !delivered.ok())
    return Complain(flags, delivered, 1);
  return 0;
}

}  // namespace

int TpccCommand(std::span<const std::string_view> arguments) {
  TpccFlags flags;
  FlagSet set = flags.Set();
  if (const absl::Status parsed = set.Parse(arguments); !parsed.ok()) return Complain(flags, parsed, 2);
  if (set.help_asked()) {
    std::fputs(set.Help().c_str(), stdout);
    return 0;
  }
  return flags.common.agent_fd != 0 ? RunAgent(flags) : RunParent(flags, arguments);
}

}  // namespace furrow::bench::tpcc
