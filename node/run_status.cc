// furrow status: what a cluster is made of and what it does.
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "client/cluster_files.h"
#include "client/member.h"
#include "cluster/secret.h"
#include "cluster/status.h"
#include "node/commands.h"
#include "node/flags.h"
#include "node/json.h"

namespace furrow::node {
namespace {

using cluster::ClusterStatus;
using cluster::MemberStatus;

struct StatusFlags {
  std::string cluster;
  std::string secret_file;
  bool json = false;
  bool verbose = false;
  Nanos interval_ns = 500 * kMillisecond;
  Nanos timeout_ns = 5 * kSecond;
};

// Per second.
struct Rates {
  double committed = 0;  // of transactions that ran on the member
  double aborted = 0;
  double written = 0;  // transactions that wrote on it as at a primary
};

std::string Count(uint64_t n, const char* noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

const char* RoleName(const cluster::Member& m) {
  return m.role == cluster::Role::kCompute ? "compute" : "storage";
}

uint64_t Aborted(const cluster::MemberReport& r) {
  uint64_t sum = 0;
  for (const auto& [reason, count] : r.aborted) sum += count;
  return sum;
}

Rates RatesBetween(const MemberStatus& before, const MemberStatus& after) {
  const double seconds = static_cast<double>(after.uptime_ns - before.uptime_ns) / kSecond;
  if (!before.answers || !after.answers || seconds <= 0) return {};
  return {static_cast<double>(after.report.committed - before.report.committed) / seconds,
          static_cast<double>(Aborted(after.report) - Aborted(before.report)) / seconds,
          static_cast<double>(after.report.written - before.report.written) / seconds};
}

std::vector<Rates> AllRates(const ClusterStatus& before, const ClusterStatus& after) {
  std::vector<Rates> rates;
  for (const MemberStatus& m : after.members) {
    Rates& one = rates.emplace_back();
    for (const MemberStatus& old : before.members) {
      if (old.member.id == m.member.id && old.member.incarnation == m.member.incarnation)
        one = RatesBetween(old, m);
    }
  }
  return rates;
}

template <class Map>
std::string JsonMap(const Map& map) {
  std::string out = "{";
  for (const auto& [key, value] : map)
    absl::StrAppend(&out, out.size() > 1 ? ", " : "", Quoted(key), ": ", value);
  return out + "}";
}

std::string JsonMember(const MemberStatus& m, const Rates& rates, bool manager) {
  const cluster::MemberReport& r = m.report;
  return absl::StrCat(
      "{\"id\": ", m.member.id.value(), ", \"incarnation\": ", m.member.incarnation.value(), ", \"role\": \"",
      RoleName(m.member), "\", \"manager\": ", manager ? "true" : "false",
      ", \"answers\": ", m.answers ? "true" : "false",
      ", \"failure_domain\": ", Quoted(m.member.failure_domain),
      ", \"control_address\": ", Quoted(m.member.control_address), ", \"workers\": ", m.member.workers,
      ", \"primaries\": ", m.primaries, ", \"backups\": ", m.backups, ", \"memory_limit\": ", r.memory_limit,
      ", \"memory_used\": ", r.memory_used, ", \"memory_by_kind\": ", JsonMap(r.memory_by_kind),
      ", \"huge_page_bytes\": ", r.huge_page_bytes, ", \"committed\": ", r.committed,
      ", \"read_only\": ", r.read_only, ", \"unknown\": ", r.unknown, ", \"aborted\": ", JsonMap(r.aborted),
      ", \"local_reads\": ", r.local_reads, ", \"remote_reads\": ", r.remote_reads,
      ", \"distributed\": ", r.distributed, ", \"applied\": ", r.applied, ", \"written\": ", r.written,
      absl::StrFormat(
          ", \"transactions_per_second\": %.1f, \"aborts_per_second\": %.1f, \"writes_per_second\": %.1f",
          rates.committed, rates.aborted, rates.written),
      ", \"clock_width_ns\": ", m.clock_upper.value() - m.clock_lower.value(), ", \"safe_point_age_ns\": ",
      m.clock_lower > m.safe_point && m.safe_point.value() > 0 ? m.clock_lower.value() - m.safe_point.value()
                                                               : 0,
      ", \"uptime_s\": ", m.uptime_ns / kSecond, "}");
}

void PrintJson(const ClusterStatus& status, const std::vector<Rates>& rates) {
  const cluster::Configuration& c = status.configuration;
  std::string out = absl::StrCat("{\"cluster\": ", Quoted(c.cluster_id),
                                 ", \"configuration\": ", c.id.value(), ", \"manager\": ", c.manager.value(),
                                 ", \"replicas\": ", c.replicas, ", \"region_bytes\": ", c.region_bytes,
                                 ", \"durability\": \"replicated\",\n \"members\": [");
  for (size_t i = 0; i < status.members.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? ",\n  " : "\n  ",
                    JsonMember(status.members[i], rates[i], status.members[i].member.id == c.manager));
  }
  absl::StrAppend(&out, "],\n \"regions\": [");
  for (size_t i = 0; i < status.regions.size(); ++i) {
    const cluster::RegionMapping& r = status.regions[i];
    absl::StrAppend(&out, i > 0 ? ",\n  " : "\n  ", "{\"id\": ", r.id.value(),
                    ", \"group\": ", r.locality.value(), ", \"bytes\": ", r.bytes, ", \"replicas\": [");
    for (size_t j = 0; j < r.replicas.size(); ++j)
      absl::StrAppend(&out, j > 0 ? ", " : "", r.replicas[j].node.value());
    absl::StrAppend(&out, "]}");
  }
  std::printf("%s]}\n", out.c_str());
}

// The row of a member, or of the heading, without what only some of them have.
void PrintStart(const std::string& node, const char* role, const std::string& incarnation,
                const std::string& address, bool verbose) {
  std::printf("%-6s %-8s ", node.c_str(), role);
  if (verbose) std::printf("%-12s ", incarnation.c_str());
  std::printf("%-21s ", address.c_str());
}

void PrintText(const ClusterStatus& status, const std::vector<Rates>& rates, bool verbose) {
  const cluster::Configuration& c = status.configuration;
  std::printf("cluster %s, configuration %" PRIu64
              ", %u %s of each region, %s of %s, durability replicated\n\n",
              c.cluster_id.c_str(), c.id.value(), c.replicas, c.replicas == 1 ? "replica" : "replicas",
              Count(status.regions.size(), "region").c_str(), client::FormatBytes(c.region_bytes).c_str());
  PrintStart("node", "role", "incarnation", "address", verbose);
  std::printf("%9s %8s  %-22s %10s %10s %10s\n", "primaries", "backups", "memory", "commits/s", "aborts/s",
              "writes/s");
  for (size_t i = 0; i < status.members.size(); ++i) {
    const MemberStatus& m = status.members[i];
    PrintStart(absl::StrCat(m.member.id.value(), m.member.id == c.manager ? " *" : ""), RoleName(m.member),
               absl::StrCat(m.member.incarnation.value()), m.member.control_address, verbose);
    if (!m.answers) {
      std::printf("does not answer\n");
      continue;
    }
    const std::string memory = absl::StrCat(client::FormatBytes(m.report.memory_used), " of ",
                                            client::FormatBytes(m.report.memory_limit));
    std::printf("%9u %8u  %-22s %10.0f %10.0f %10.0f\n", m.primaries, m.backups, memory.c_str(),
                rates[i].committed, rates[i].aborted, rates[i].written);
  }
  std::printf(
      "\n* configuration manager; commits and aborts: of transactions that ran on the node; writes: "
      "transactions\n  from anywhere that wrote rows whose primary it is\n");
}

absl::Status Run(const std::vector<std::string>& arguments) {
  StatusFlags f;
  Flags flags("furrow status", "show a cluster's members, regions, memory and transaction rates");
  flags.Text("cluster", "WHERE", &f.cluster, "the cluster's directory, or host:port of a member");
  flags.Text("secret-file", "FILE", &f.secret_file,
             "the cluster's secret (default \"secret\" in its directory)");
  flags.Switch("json", &f.json, "for programs, with everything");
  flags.Switch("verbose", &f.verbose, "the members' incarnations too");
  flags.Duration("interval", &f.interval_ns, "over which rates are measured (default 500ms; 0s: none)");
  flags.Duration("timeout", &f.timeout_ns, "for the cluster's answer (default 5s)");
  FURROW_RETURN_IF_ERROR(flags.Parse(arguments));
  if (f.cluster.empty()) {
    return absl::InvalidArgumentError(
        "which cluster? Give its directory, or host:port of a member, with --cluster");
  }
  FURROW_ASSIGN_OR_RETURN(client::ClusterAddress at, client::FindCluster(f.cluster, f.secret_file));
  FURROW_ASSIGN_OR_RETURN(std::string secret, cluster::ReadSecret(at.secret_file));
  cluster::ControlClient client(secret);
  FURROW_ASSIGN_OR_RETURN(ClusterStatus before, FetchStatus(client, secret, at.address, f.timeout_ns));
  ClusterStatus after = before;
  if (f.interval_ns > 0) {
    SleepThreadUntil(MonotonicClock().Now() + f.interval_ns);
    FURROW_ASSIGN_OR_RETURN(after, FetchStatus(client, secret, at.address, f.timeout_ns));
  }
  const std::vector<Rates> rates = AllRates(before, after);
  f.json ? PrintJson(after, rates) : PrintText(after, rates, f.verbose);
  return absl::OkStatus();
}

}  // namespace

int RunStatus(const std::vector<std::string>& arguments) {
  absl::Status status = Run(arguments);
  return status.ok() ? 0 : Report("status", status);
}

}  // namespace furrow::node
