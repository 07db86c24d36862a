#include "tests/vm/verbs_end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace furrow::vm {
namespace {

// A retry count of 7 would mean for ever to Soft-RoCE. 4.096 us * 2^14, seven times: half a second.
constexpr int kTimeout = 14;
constexpr int kRetries = 6;
constexpr uint8_t kPort = 1;

absl::Status Failed(const char* call, int error) { return absl::ErrnoToStatus(error, call); }

class DeviceList {
 public:
  DeviceList() : devices_(ibv_get_device_list(&count_)) {}
  ~DeviceList() {
    if (devices_ != nullptr) ibv_free_device_list(devices_);
  }
  std::span<ibv_device*> devices() const { return {devices_, static_cast<size_t>(count_)}; }

 private:
  int count_ = 0;
  ibv_device** devices_;
};

// The GID to use: RoCE v2, made of an IPv4 address. Every device has others, too, at positions that differ.
absl::StatusOr<ibv_gid_entry> FindGid(ibv_context* context) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  ibv_port_attr port;
  if (int error = ibv_query_port(context, kPort, &port); error != 0) return Failed("ibv_query_port", error);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(context, kPort, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(entry.gid.raw, kMapped, sizeof(kMapped)) == 0)
      return entry;
  }
  return absl::NotFoundError("the device has no RoCE v2 GID of an IPv4 address");
}

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  const DeviceList list;
  for (ibv_device* device : list.devices()) names.emplace_back(ibv_get_device_name(device));
  return names;
}

struct VerbsEnd::Verbs {
  ~Verbs() {
    if (pair != nullptr) ibv_destroy_qp(pair);
    if (queue != nullptr) ibv_destroy_cq(queue);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
    if (region != nullptr) ibv_dereg_mr(region);
    if (domain != nullptr) ibv_dealloc_pd(domain);
    if (context != nullptr) ibv_close_device(context);
  }
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_mr* region = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* queue = nullptr;
  ibv_qp* pair = nullptr;
  ibv_gid_entry gid{};
};

VerbsEnd::VerbsEnd() : verbs_(std::make_unique<Verbs>()) {}
VerbsEnd::~VerbsEnd() = default;

absl::StatusOr<std::unique_ptr<VerbsEnd>> VerbsEnd::Make(const std::string& device, size_t bytes) {
  std::unique_ptr<VerbsEnd> end(new VerbsEnd);
  FURROW_ASSIGN_OR_RETURN(end->memory_, MemoryFile::Anonymous(bytes));
  Verbs& v = *end->verbs_;
  const DeviceList list;
  for (ibv_device* d : list.devices()) {
    if (device == ibv_get_device_name(d)) v.context = ibv_open_device(d);
  }
  if (v.context == nullptr) return absl::NotFoundError(absl::StrCat("cannot open the device ", device));
  FURROW_ASSIGN_OR_RETURN(v.gid, FindGid(v.context));
  if ((v.domain = ibv_alloc_pd(v.context)) == nullptr) return Failed("ibv_alloc_pd", errno);
  v.region = ibv_reg_mr(v.domain, end->memory_.data(), end->memory_.size(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (v.region == nullptr) return Failed("ibv_reg_mr", errno);
  if ((v.channel = ibv_create_comp_channel(v.context)) == nullptr)
    return Failed("ibv_create_comp_channel", errno);
  if ((v.queue = ibv_create_cq(v.context, 64, nullptr, v.channel, 0)) == nullptr)
    return Failed("ibv_create_cq", errno);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = v.queue;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {
      .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  if ((v.pair = ibv_create_qp(v.domain, &attributes)) == nullptr) return Failed("ibv_create_qp", errno);
  return end;
}

std::string VerbsEnd::Abilities() const {
  ibv_device_attr device{};
  ibv_port_attr port{};
  if (ibv_query_device(verbs_->context, &device) != 0 || ibv_query_port(verbs_->context, kPort, &port) != 0)
    return "the device does not say what it can do";
  char address[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, verbs_->gid.gid.raw, address, sizeof(address));
  return absl::StrCat(ibv_get_device_name(verbs_->context->device), ": gid[", verbs_->gid.gid_index, "] ",
                      address, ", MTU ", 128 << port.active_mtu, " of ", 128 << port.max_mtu, ", ",
                      device.max_qp, " queue pairs of ", device.max_qp_wr, " requests, ", device.max_cq,
                      " completion queues of ", device.max_cqe, ", ", device.max_mr, " regions, ",
                      device.max_qp_rd_atom, " READs outstanding (", device.max_res_rd_atom,
                      " in all), data in order: ",
                      ibv_query_qp_data_in_order(verbs_->pair, IBV_WR_RDMA_WRITE, 0) != 0 ? "yes" : "no");
}

VerbsEnd::Place VerbsEnd::place() const {
  return {reinterpret_cast<uint64_t>(verbs_->region->addr), verbs_->region->rkey};
}

absl::Status VerbsEnd::Connect(const VerbsEnd& peer, uint32_t queue_pair) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = kPort;
  a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  int error =
      ibv_modify_qp(verbs_->pair, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return Failed("ibv_modify_qp to INIT", error);
  a = {};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = queue_pair;
  a.max_dest_rd_atomic = 16;
  a.min_rnr_timer = 12;  // 0.64 ms; 0 would be 655 ms
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = kPort;
  a.ah_attr.grh.dgid = peer.verbs_->gid.gid;
  a.ah_attr.grh.sgid_index = static_cast<uint8_t>(verbs_->gid.gid_index);
  a.ah_attr.grh.hop_limit = 64;
  error = ibv_modify_qp(verbs_->pair, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return Failed("ibv_modify_qp to RTR", error);
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = kTimeout;
  a.retry_cnt = kRetries;
  a.rnr_retry = kRetries;
  a.max_rd_atomic = 16;
  error = ibv_modify_qp(verbs_->pair, &a,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? absl::OkStatus() : Failed("ibv_modify_qp to RTS", error);
}

absl::Status VerbsEnd::ConnectTo(const VerbsEnd& peer) { return Connect(peer, peer.verbs_->pair->qp_num); }

absl::Status VerbsEnd::ConnectToNobodyAt(const VerbsEnd& peer) { return Connect(peer, 0xfffff0); }

absl::Status VerbsEnd::PostReceive(uint64_t id) {
  ibv_recv_wr receive{};
  receive.wr_id = id;
  ibv_recv_wr* bad;
  const int error = ibv_post_recv(verbs_->pair, &receive, &bad);
  return error == 0 ? absl::OkStatus() : Failed("ibv_post_recv", error);
}

absl::Status VerbsEnd::Post(Verb verb, uint64_t id, size_t offset, size_t bytes, Place remote) {
  ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()) + offset, static_cast<uint32_t>(bytes),
                verbs_->region->lkey};
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  request.opcode = verb == Verb::kRead    ? IBV_WR_RDMA_READ
                   : verb == Verb::kWrite ? IBV_WR_RDMA_WRITE
                                          : IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(static_cast<uint32_t>(id));
  request.wr.rdma.remote_addr = remote.address;
  request.wr.rdma.rkey = remote.key;
  ibv_send_wr* bad;
  const int error = ibv_post_send(verbs_->pair, &request, &bad);
  return error == 0 ? absl::OkStatus() : Failed("ibv_post_send", error);
}

absl::StatusOr<Ended> VerbsEnd::Poll() {
  const Nanos deadline = MonotonicClock().Now() + kPatience;
  while (MonotonicClock().Now() < deadline) {
    ibv_wc wc{};
    const int polled = ibv_poll_cq(verbs_->queue, 1, &wc);
    if (polled < 0) return Failed("ibv_poll_cq", errno);
    if (polled == 0) continue;
    const uint32_t immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(wc.imm_data) : 0;
    return Ended{wc.wr_id, wc.status, wc.opcode, wc.byte_len, immediate};
  }
  return absl::DeadlineExceededError("no completion came");
}

absl::Status VerbsEnd::Arm() {
  const int error = ibv_req_notify_cq(verbs_->queue, 0);
  return error == 0 ? absl::OkStatus() : Failed("ibv_req_notify_cq", error);
}

absl::Status VerbsEnd::Sleep() {
  pollfd wanted{verbs_->channel->fd, POLLIN, 0};
  if (poll(&wanted, 1, kPatience / kMillisecond) != 1)
    return absl::DeadlineExceededError("the channel stays silent");
  ibv_cq* queue;
  void* unused;
  if (ibv_get_cq_event(verbs_->channel, &queue, &unused) != 0) return Failed("ibv_get_cq_event", errno);
  ibv_ack_cq_events(queue, 1);
  return absl::OkStatus();
}

}  // namespace furrow::vm
