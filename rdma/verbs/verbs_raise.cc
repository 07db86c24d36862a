// How a VerbsConnection's queue pair comes up: on the way to the peer that the connection manager has found,
// with our own settings.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

ibv_mtu MtuCode(uint32_t bytes) { return static_cast<ibv_mtu>(std::bit_width(bytes) - 8); }
uint32_t MtuBytes(ibv_mtu mtu) { return uint32_t{128} << mtu; }

absl::StatusOr<ibv_qp_attr> AttributesFor(rdma_cm_id* id, ibv_qp_state state) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(id, &attributes, &mask) != 0) return CallFailed("rdma_init_qp_attr", errno);
  return attributes;
}

std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  inet_ntop(address->sa_family, bytes, text, sizeof(text));
  return text;
}

std::string AddressesOf(rdma_cm_id* id) {
  return absl::StrCat("address ", AddressText(rdma_get_local_addr(id)), " to ",
                      AddressText(rdma_get_peer_addr(id)));
}

}  // namespace

uint32_t VerbsConnection::pair_number() const { return pair_->qp_num; }

absl::Status VerbsConnection::Prepare(rdma_cm_id* id) {
  if (pair_ == nullptr) return absl::UnavailableError("the fabric ends");
  route_ = AddressesOf(id);
  FURROW_ASSIGN_OR_RETURN(ibv_qp_attr init, AttributesFor(id, IBV_QPS_INIT));
  init.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const int mask = queue_->parts()->device->iwarp()
                       ? 0
                       : static_cast<int>(IBV_QP_PKEY_INDEX) | static_cast<int>(IBV_QP_PORT);
  if (int error = ibv_modify_qp(pair_, &init, mask | IBV_QP_STATE | IBV_QP_ACCESS_FLAGS); error != 0) {
    return PathRefused(error, "to INIT", route_);
  }
  PostReceives(receive_entries());
  return absl::OkStatus();
}

// The connection manager has found the path by the addresses alone.
void VerbsConnection::ApplySettings(ibv_qp_attr& receive) const {
  const VerbsParts& parts = *queue_->parts();
  const VerbsOptions& options = parts.options;
  ibv_ah_attr& way = receive.ah_attr;
  const uint8_t service_level = limits_.urgent ? options.urgent_service_level : options.service_level;
  if (service_level != 0) way.sl = service_level;
  way.grh.traffic_class = limits_.urgent ? options.urgent_traffic_class : options.traffic_class;
  if (way.is_global != 0) {
    static constexpr uint8_t kNone[16] = {};
    if (options.gid_index >= 0) way.grh.sgid_index = static_cast<uint8_t>(options.gid_index);
    if (std::memcmp(peer_end_.gid, kNone, sizeof(kNone)) != 0) {
      std::memcpy(way.grh.dgid.raw, peer_end_.gid, sizeof(peer_end_.gid));
    }
  }
  receive.path_mtu = std::min(receive.path_mtu, MtuCode(mtu_));
  receive.max_dest_rd_atomic = std::min(options.read_depth, parts.device->limits().read_depth_in);
  receive.min_rnr_timer = options.min_rnr_timer;
}

absl::Status VerbsConnection::Raise(rdma_cm_id* id) {
  if (pair_ == nullptr) return absl::UnavailableError("the fabric ends");
  const VerbsParts& parts = *queue_->parts();
  if (parts.device->iwarp()) return absl::OkStatus();
  FURROW_ASSIGN_OR_RETURN(ibv_qp_attr receive, AttributesFor(id, IBV_QPS_RTR));
  ApplySettings(receive);
  mtu_ = MtuBytes(receive.path_mtu);
  const ibv_ah_attr& way = receive.ah_attr;
  Gid there;
  std::memcpy(there.data(), way.grh.dgid.raw, there.size());
  FURROW_ASSIGN_OR_RETURN(const Gid here, parts.device->GidAt(way.grh.sgid_index));
  route_ = absl::StrCat("GID ", GidText(here), " (index ", way.grh.sgid_index, ") to ", GidText(there),
                        ", lane ", way.sl, ", traffic class ", way.grh.traffic_class);
  // Not what the connection manager would set: some kernels name attributes that are not there.
  int error = ibv_modify_qp(pair_, &receive,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return PathRefused(error, "to RTR", route_);

  FURROW_ASSIGN_OR_RETURN(ibv_qp_attr send, AttributesFor(id, IBV_QPS_RTS));
  send.timeout = parts.options.ack_timeout;
  send.retry_cnt = parts.options.retry_count;
  send.rnr_retry = parts.options.rnr_retry_count;
  send.max_rd_atomic = read_depth_;
  error = ibv_modify_qp(pair_, &send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return PathRefused(error, "to RTS", route_);
  return absl::OkStatus();
}

void VerbsConnection::LogConnected() const {
  const bool in_order = ibv_query_qp_data_in_order(pair_, IBV_WR_RDMA_WRITE, 0) != 0;
  FURROW_LOG(INFO) << "connected with node " << link_->peer().value() << ": queue pair " << pair_->qp_num
                   << " of " << queue_->parts()->device->name() << " with " << peer_end_.queue_pair << ", "
                   << route_ << ", path MTU " << mtu_ << ", " << static_cast<int>(read_depth_)
                   << " READs at a time, "
                   << (in_order ? "bytes of a WRITE arrive in order"
                                : "no order among the bytes of a WRITE (none is relied on)");
}

}  // namespace furrow::rdma
