#include "cluster/status.h"

#include <algorithm>

#include "base/status_macros.h"
#include "cluster/agent.h"
#include "cluster/proto/cluster.pb.h"
#include "cluster/wire.h"

namespace furrow::cluster {
namespace {

void Fill(const pb::MemberStatusReply& in, MemberStatus* out) {
  out->answers = true;
  out->config = ConfigId(in.config());
  out->clock_lower = Timestamp(in.clock_lower());
  out->clock_upper = Timestamp(in.clock_upper());
  out->safe_point = Timestamp(in.safe_point());
  out->uptime_ns = static_cast<Nanos>(in.uptime_ns());
  out->primaries = in.primaries();
  out->backups = in.backups();
  MemberReport& r = out->report;
  r.memory_limit = in.memory_limit();
  r.memory_used = in.memory_used();
  for (const auto& [kind, bytes] : in.memory_by_kind()) r.memory_by_kind[kind] = bytes;
  r.huge_page_bytes = in.huge_page_bytes();
  r.committed = in.committed();
  r.read_only = in.read_only();
  r.unknown = in.unknown();
  for (const auto& [reason, count] : in.aborted()) r.aborted[reason] = count;
  r.local_reads = in.local_reads();
  r.remote_reads = in.remote_reads();
  r.distributed = in.distributed();
  r.applied = in.applied();
  r.written = in.written();
}

}  // namespace

absl::StatusOr<ClusterStatus> FetchStatus(ControlClient& client, const std::string& secret,
                                          const std::string& address, Nanos timeout_ns) {
  // A member that is no manager names the manager; as storage, since a compute member would be given an id.
  FURROW_ASSIGN_OR_RETURN(Introduction introduction, SayHello(client, secret, address, Role::kStorage,
                                                              NodeId(), /*wait=*/false, timeout_ns));
  pb::ClusterStatusReply reply;
  FURROW_RETURN_IF_ERROR(
      client.Call(introduction.manager_address, pb::ClusterStatusRequest(), &reply, timeout_ns));
  ClusterStatus status;
  FURROW_ASSIGN_OR_RETURN(status.configuration, FromProto(reply.configuration()));
  for (const pb::Region& region : reply.regions()) {
    FURROW_ASSIGN_OR_RETURN(RegionMapping mapping, FromProto(region));
    status.regions.push_back(std::move(mapping));
  }
  for (const Member& member : status.configuration.members) {
    MemberStatus& one = status.members.emplace_back();
    one.member = member;
    for (const pb::MemberStatusReply& m : reply.members()) {
      if (m.id() == member.id.value()) Fill(m, &one);
    }
  }
  std::sort(status.members.begin(), status.members.end(),
            [](const MemberStatus& a, const MemberStatus& b) { return a.member.id < b.member.id; });
  return status;
}

}  // namespace furrow::cluster
