// How connections come up through the connection manager: who is let in, what is left when a peer goes
// half-way, and that our settings are on the queue pairs. Skipped without an RDMA device.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/secret_proof.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_pair.h"

namespace furrow::rdma {
namespace {

class VerbsConnectingTest : public VerbsTestPair {
 protected:
  // Lets B offer a connection of this id, which A, whose session is used, knows nothing of and never dials.
  void Offer(uint32_t id) {
    VerbsMessage open;
    open.type = VerbsMessageType::kOpen;
    open.connection = id;
    open.max_requests = 4;
    open.end = Inside(a_).Describe();
    Inside(a_).link()->Send(open);
    ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return PairsOf(b_) == 2; }));
  }
  static uint64_t PairsOf(const End& end) { return UseOf(*end.node.fabric).queue_pairs; }

  // Asks B's connection manager for a connection, as whoever can reach it may, and returns B's answer.
  absl::Status Ask(const VerbsTicket& ticket) {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    if (channel == nullptr || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
      return absl::InternalError("id");
    auto end = absl::MakeCleanup([&] {
      if (id->qp != nullptr) rdma_destroy_qp(id);
      rdma_destroy_id(id);
      rdma_destroy_event_channel(channel);
    });
    sockaddr_storage here = {}, there = {};
    (void)ParseEndpoint(VerbsTestAddress(0), false, &here);
    (void)ParseEndpoint(b_.node.endpoint, true, &there);
    const auto awaited = [&](rdma_cm_event_type type, absl::Status* refusal) {
      rdma_cm_event* event = nullptr;
      if (rdma_get_cm_event(channel, &event) != 0) return false;
      const bool good = event->event == type;
      if (event->event == RDMA_CM_EVENT_REJECTED) {
        (void)ParseRefusal({static_cast<const std::byte*>(event->param.conn.private_data),
                            event->param.conn.private_data_len},
                           refusal);
      }
      rdma_ack_cm_event(event);
      return good;
    };
    absl::Status refusal = absl::InternalError("no answer");
    if (rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&here), reinterpret_cast<sockaddr*>(&there),
                          2000) != 0 ||
        !awaited(RDMA_CM_EVENT_ADDR_RESOLVED, &refusal) || rdma_resolve_route(id, 2000) != 0 ||
        !awaited(RDMA_CM_EVENT_ROUTE_RESOLVED, &refusal)) {
      return absl::InternalError("no route");
    }
    ibv_qp_init_attr pair = {};
    pair.qp_type = IBV_QPT_RC;
    pair.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    if (rdma_create_qp(id, nullptr, &pair) != 0) return absl::InternalError("no queue pair");
    rdma_conn_param parameters = {};
    parameters.private_data = &ticket;
    parameters.private_data_len = sizeof(ticket);
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = 6;
    if (rdma_connect(id, &parameters) != 0) return absl::InternalError("not even asked");
    return awaited(RDMA_CM_EVENT_ESTABLISHED, &refusal) ? absl::OkStatus() : refusal;
  }
};

TEST_F(VerbsConnectingTest, WithoutTicketNobodyIsLetInAndNothingIsSpent) {
  Connect();
  const VerbsUse before = UseOf(*b_.node.fabric);
  VerbsTicket ticket = MakeTicket(NodeId(1), Inside(a_).id(), std::string(kNonceBytes, 'x'));
  EXPECT_THAT(Ask(ticket).message(), testing::HasSubstr("no such connection was agreed upon"));
  ticket.version = 99;
  EXPECT_THAT(Ask(ticket).message(), testing::HasSubstr("version 99"));
  ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return UseOf(*b_.node.fabric).manager_ids == before.manager_ids; }));
  EXPECT_EQ(PairsOf(b_), before.queue_pairs);
  EXPECT_EQ(UseOf(*b_.node.fabric).sessions, before.sessions);
  EXPECT_EQ(Do(a_, Make(Opcode::kRead, a_.bytes().first(8), b_.at())), CompletionStatus::kOk);
}

TEST_F(VerbsConnectingTest, OfferedConnectionIsForTheHolderOfItsTicketOnly) {
  Connect();
  Offer(77);
  EXPECT_FALSE(Ask(MakeTicket(NodeId(1), 77, std::string(kNonceBytes, 'x'))).ok());
  EXPECT_FALSE(Ask(MakeTicket(NodeId(1), 77, std::string(kNonceBytes, '\0'))).ok());
  EXPECT_EQ(PairsOf(b_), 2u) << "a wrong ticket spoils nothing";
  // The initiator gives it up.
  VerbsMessage close;
  close.type = VerbsMessageType::kClose;
  close.connection = 77;
  Inside(a_).link()->Send(close);
  ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return PairsOf(b_) == 1; }));
  EXPECT_EQ(b_.Count(Completion::Kind::kDisconnected), 0u) << "nobody had heard of it";
  EXPECT_EQ(Do(a_, Make(Opcode::kRead, a_.bytes().first(8), b_.at())), CompletionStatus::kOk);
}

TEST_F(VerbsConnectingTest, OfferedConnectionGoesWithItsSession) {
  Connect();
  Offer(77);
  world_->Kill(a_.node);
  ASSERT_TRUE(RunUntil({&b_}, [&] { return b_.Count(Completion::Kind::kDisconnected) == 1; }));
  b_.connection.reset();
  ASSERT_TRUE(RunUntil({&b_}, [&] { return PairsOf(b_) == 0 && UseOf(*b_.node.fabric).manager_ids == 0; }));
}

// Whatever they were doing: each of these connections comes to an end, and nothing stays.
TEST_F(VerbsConnectingTest, PeerThatDiesWhileConnectionsComeUpLeavesNothing) {
  for (const int polls : {0, 10, 25, 50, 100, 200}) {
    if (polls > 0) SetUp();
    std::vector<std::unique_ptr<Connection>> made;
    int answers = 0;
    for (int i = 0; i < 6; ++i) {
      a_.node.fabric->Connect(*a_.node.queue, *a_.node.loop, b_.node.endpoint, "", {.max_requests = 16},
                              10 * kSecond, [&](absl::StatusOr<std::unique_ptr<Connection>> connection) {
                                ++answers;
                                if (connection.ok()) made.push_back(*std::move(connection));
                              });
    }
    for (int i = 0; i < polls; ++i) {
      ASSERT_TRUE(world_->RunUntil([] { return true; }));
      SleepThreadUntil(MonotonicClock().Now() + kMillisecond);
    }
    world_->Kill(b_.node);
    ASSERT_TRUE(world_->RunUntil([&] {
      Poll(a_);
      return answers == 6 && a_.Count(Completion::Kind::kDisconnected) == made.size();
    })) << "killed after "
        << polls << " polls: " << answers << " answers, " << made.size() << " connections, "
        << a_.Count(Completion::Kind::kDisconnected) << " ends";
    made.clear();
    ASSERT_TRUE(RunUntil({&a_},
                         [&] {
                           const VerbsUse use = UseOf(*a_.node.fabric);
                           return use.queue_pairs == 0 && use.manager_ids == 0 && use.sessions == 0;
                         }))
        << "killed after " << polls << " polls";
    const VerbsUse use = UseOf(*b_.node.fabric);
    EXPECT_EQ(use.queue_pairs + use.manager_ids + use.sessions, 0u);
    TearDown();
    a_ = End();
    b_ = End();
  }
  SetUp();
}

// The connection manager decides the way; the rest is ours.
TEST_F(VerbsConnectingTest, SettingsAreOnTheQueuePair) {
  Connect();
  if (Inside(a_).queue()->parts()->device->iwarp()) GTEST_SKIP() << "iWARP has none of them";
  VerbsOptions options{.identity = {NodeId(3), "verbs", "secret"}, .address = VerbsTestAddress(0)};
  options.max_mtu = 1024;
  options.read_depth = 4;
  options.retry_count = 3;
  options.ack_timeout = 13;
  options.min_rnr_timer = 7;
  options.rnr_retry_count = 2;
  options.traffic_class = 104;
  options.urgent_traffic_class = 184;
  // That of another of our addresses.
  int other_index = -1;
  const VerbsDevice& device = *Inside(a_).queue()->parts()->device;
  for (int i = 0; i < 16 && other_index < 0; ++i) {
    const auto gid = device.GidAt(i);
    if (gid.ok() && GidText(*gid) == absl::StrCat("::ffff:", VerbsTestAddress(2))) other_index = i;
  }
  for (const bool other_gid : {false, true}) {
    if (other_gid && other_index < 0) continue;
    if (other_gid) options.gid_index = other_index;
    auto fabric = *MakeVerbsFabric(options);
    auto queue = *fabric->CreateCompletionQueue();
    EventLoop loop(MonotonicClock(), queue->parker());
    for (const bool urgent : {false, true}) {
      b_.connection.reset();
      absl::StatusOr<std::unique_ptr<Connection>> made = absl::UnknownError("not called");
      bool done = false;
      fabric->Connect(*queue, loop, b_.node.endpoint, "", {.urgent = urgent}, 60 * kSecond,
                      [&](absl::StatusOr<std::unique_ptr<Connection>> connection) {
                        made = std::move(connection);
                        done = true;
                      });
      ASSERT_TRUE(RunUntil({&a_, &b_}, [&] {
        loop.RunOnce();
        return done;
      }));
      ASSERT_TRUE(made.ok()) << made.status();
      ibv_qp* pair = static_cast<VerbsConnection&>(**made).pair();
      ibv_qp_attr is = {};
      ibv_qp_init_attr made_with = {};
      ASSERT_EQ(ibv_query_qp(pair, &is,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS,
                             &made_with),
                0);
      EXPECT_EQ(is.qp_state, IBV_QPS_RTS);
      EXPECT_EQ(is.path_mtu, IBV_MTU_1024);
      EXPECT_EQ(is.max_rd_atomic, 4);
      EXPECT_EQ(is.max_dest_rd_atomic, 4);
      EXPECT_EQ(is.retry_cnt, 3);
      EXPECT_EQ(is.timeout, 13);
      EXPECT_EQ(is.min_rnr_timer, 7);
      EXPECT_EQ(is.rnr_retry, 2);
      EXPECT_EQ(
          is.qp_access_flags & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC),
          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
      EXPECT_EQ(is.ah_attr.grh.traffic_class, urgent ? 184 : 104);
      if (other_gid) EXPECT_EQ(is.ah_attr.grh.sgid_index, other_index);
      ASSERT_TRUE(RunUntil({&a_, &b_}, [&] { return b_.connection != nullptr; }));
      // The peer sends to the GID that we use.
      ibv_qp_attr theirs = {};
      ASSERT_EQ(ibv_query_qp(Inside(b_).pair(), &theirs, IBV_QP_AV, &made_with), 0);
      Gid to;
      std::memcpy(to.data(), theirs.ah_attr.grh.dgid.raw, to.size());
      EXPECT_EQ(to, *device.GidAt(is.ah_attr.grh.sgid_index));
    }
  }
}

}  // namespace
}  // namespace furrow::rdma
