// A device that is broken, a peer that does not keep to the protocol. Skipped without an RDMA device.
#include <errno.h>
#include <infiniband/verbs.h>

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_pair.h"

namespace furrow::rdma {
namespace {

using VerbsBrokenTest = VerbsTestPair;

int RefuseToPost(ibv_qp* /*pair*/, ibv_send_wr* requests, ibv_send_wr** bad) {
  *bad = requests;
  return ENOMEM;
}

// What did not ask for its end has ended, and not even a request that would ask for it goes to the device.
TEST_F(VerbsBrokenTest, EverythingEndsThoughTheDeviceTakesNothing) {
  Connect();
  ibv_context_ops& device = Inside(a_).queue()->parts()->device->context()->ops;
  WorkRequest write = Make(Opcode::kWrite, a_.bytes().first(8), b_.at());
  write.signaled = false;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a_.connection->Post(write).ok());
  const auto posts = std::exchange(device.post_send, RefuseToPost);
  write.signaled = true;
  const absl::Status status = a_.connection->Post(write);
  const bool over =
      RunUntil({&a_}, [&] { return a_.connection->idle() && a_.Count(Completion::Kind::kRequest) > 0; });
  device.post_send = posts;
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(over);
  EXPECT_TRUE(a_.connection->failed());
  for (const Completion& c : a_.completions) {
    if (c.kind == Completion::Kind::kRequest) EXPECT_NE(c.status, CompletionStatus::kOk);
  }
  EXPECT_EQ(Do(a_, write), CompletionStatus::kFlushed);
}

// The session ends, and a connection comes to its owner once.
TEST_F(VerbsBrokenTest, PeerThatRepeatsItselfIsCutOff) {
  for (const VerbsMessageType type : {VerbsMessageType::kReady, VerbsMessageType::kOpen}) {
    Connect();
    VerbsMessage again;
    again.type = type;
    again.connection = Inside(a_).id();
    again.max_requests = 4;
    again.end = Inside(a_).Describe();
    Inside(a_).link()->Send(again);
    ASSERT_TRUE(RunUntil({&a_, &b_}, [&] {
      return a_.Count(Completion::Kind::kDisconnected) == 1 && b_.Count(Completion::Kind::kDisconnected) == 1;
    })) << static_cast<int>(type);
    ASSERT_NE(b_.connection, nullptr);
    a_.connection.reset();
    b_.connection.reset();
    a_.completions.clear();
    b_.completions.clear();
  }
}

TEST_F(VerbsBrokenTest, RegionMayOutliveItsFabric) {
  MemoryFile file = *MemoryFile::Anonymous(4096);
  auto fabric =
      *MakeVerbsFabric({.identity = {NodeId(9), "verbs", "secret"}, .address = VerbsTestAddress(0)});
  auto region = *fabric->Register(file, Access::kRead);
  fabric.reset();
  region.reset();
}

}  // namespace
}  // namespace furrow::rdma
