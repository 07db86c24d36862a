// How peers meet and part, notifications and SENDs.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rdma/fabric_contract.h"
#include "rdma/fabric_contract_bytes.h"

namespace furrow::rdma {

// --- errors ---

TEST_P(FabricContractTest, RequestsBehindFailureAreFlushed) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes(), 4);
  std::span<std::byte> word = local.bytes().first(8);
  std::vector<WorkRequest> requests = {Write(word, remote.at(0), 1),
                                       Write(word, remote.at(remote.bytes().size()), 2),
                                       Write(word, remote.at(64), 3), Write(word, remote.at(128), 4)};
  requests[1].signaled = false;  // fails, so it completes all the same
  requests[2].signaled = false;
  ASSERT_TRUE(pair.from->Post(requests).ok());
  const std::vector<CompletionStatus> expected = {CompletionStatus::kOk, CompletionStatus::kRemoteAccess,
                                                  CompletionStatus::kFlushed, CompletionStatus::kFlushed};
  for (uint64_t i = 0; i < 4; ++i) {
    const Completion completion = NextRequest(*a_);
    EXPECT_EQ(completion.id, i + 1);
    if (expected[i] == CompletionStatus::kRemoteAccess && IsRefusal(completion.status)) continue;
    EXPECT_EQ(completion.status, expected[i]) << ToString(completion.status);
  }
  Settle();
  EXPECT_EQ(Count(*a_, Completion::Kind::kRequest), 0u);
  EXPECT_TRUE(Same(word, remote.bytes().first(8)));
  EXPECT_TRUE(AllZero(remote.bytes().subspan(8)));
}

TEST_P(FabricContractTest, FailureStaysWithinItsConnection) {
  AddTwo();
  Pair bad = Connect(*a_, *b_);
  Pair good = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  EXPECT_TRUE(IsRefusal(Do(*a_, bad.from, Read(local.bytes().first(8), remote.at(1 << 20)))));
  EXPECT_EQ(Do(*a_, good.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  EXPECT_FALSE(good.from->failed());
}

TEST_P(FabricContractTest, RequestsToDeadProcessFail) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Pair other = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  ASSERT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  if (!world_->Kill(b_->node)) GTEST_SKIP() << "this world cannot kill";
  // Bounded time: at most until the provider has learnt of it.
  CompletionStatus status = CompletionStatus::kOk;
  ASSERT_TRUE(RunUntil([&] {
    if (Count(*a_, Completion::Kind::kRequest) > 0) status = NextRequest(*a_).status;
    if (status != CompletionStatus::kOk) return true;
    // An endless stream of posts would be no bounded time in simulation.
    return Count(*a_, Completion::Kind::kDisconnected) == 2;
  }));
  if (status == CompletionStatus::kOk) status = Do(*a_, pair.from, Read(local.bytes().first(8), remote.at()));
  EXPECT_EQ(status, CompletionStatus::kPeerGone) << ToString(status);
  EXPECT_TRUE(pair.from->failed());
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())), CompletionStatus::kFlushed);
  Settle();
  std::vector<Connection*> lost;
  for (const Completion& c : a_->completions) {
    if (c.kind == Completion::Kind::kDisconnected) lost.push_back(c.connection);
  }
  std::sort(lost.begin(), lost.end());
  std::vector<Connection*> expected = {pair.from, other.from};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(lost, expected);
}

TEST_P(FabricContractTest, DestroyedConnectionDisconnectsPeerOnce) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*b_, Access::kNone);
  Memory remote = MakeMemory(*a_, Access::kReadWrite);
  ASSERT_EQ(Do(*b_, pair.to, Read(local.bytes().first(8), remote.at())), CompletionStatus::kOk);
  a_->connections.clear();
  EXPECT_EQ(Next(*b_, Completion::Kind::kDisconnected).connection, pair.to);
  EXPECT_EQ(Do(*b_, pair.to, Read(local.bytes().first(8), remote.at())), CompletionStatus::kPeerGone);
  Settle();
  EXPECT_TRUE(a_->completions.empty());
  EXPECT_TRUE(b_->completions.empty());
}

TEST_P(FabricContractTest, DestroyedConnectionDropsItsCompletions) {
  AddTwo();
  Pair first = Connect(*a_, *b_);
  Pair second = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(first.from->Post(Read(local.bytes().first(8), remote.at(), i)).ok());
    ASSERT_TRUE(second.from->Post(Read(local.bytes().first(8), remote.at(), 10 + i)).ok());
  }
  std::erase_if(a_->connections, [&](const auto& c) { return c.get() == first.from; });
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(NextRequest(*a_).id, 10 + i);
  Settle();
  EXPECT_TRUE(a_->completions.empty());
}

// --- connecting ---

TEST_P(FabricContractTest, ConnectionIsIdleOnceItsCompletionsArePolled) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  EXPECT_TRUE(pair.from->idle());
  const WorkRequest read = Read(local.bytes().first(8), remote.at());
  ASSERT_TRUE(pair.from->Post(read).ok());
  EXPECT_FALSE(pair.from->idle()) << "its completion was not polled";
  NextRequest(*a_);
  EXPECT_TRUE(pair.from->idle());
  // Of a connection that has failed, too: what is flushed comes first.
  EXPECT_TRUE(IsRefusal(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at(1 << 20)))));
  ASSERT_TRUE(pair.from->Post(read).ok());
  EXPECT_FALSE(pair.from->idle());
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kFlushed);
  EXPECT_TRUE(pair.from->idle());
}

TEST_P(FabricContractTest, ManyConnectionsAreIndependent) {
  AddTwo();
  constexpr size_t kConnections = 100;
  Memory local = MakeMemory(*a_, Access::kNone, kConnections * 64);
  Memory remote = MakeMemory(*b_, Access::kReadWrite, kConnections * 64);
  Fill(local.bytes(), 12);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < kConnections; ++i) {
    pairs.push_back(Connect(*a_, *b_, std::to_string(i), {.max_requests = 16, .max_receives = 4}));
    ASSERT_TRUE(pairs.back().status.ok()) << pairs.back().status;
    ASSERT_EQ(pairs.back().to->peer_private_data(), std::to_string(i));
  }
  for (size_t i = 0; i < kConnections; ++i) {
    WorkRequest write = Write(local.bytes().subspan(i * 64, 64), remote.at(i * 64), i);
    write.notify = WorkRequest::Notify::kWake;
    write.channel = static_cast<uint8_t>(i % 64);
    ASSERT_TRUE(pairs[i].from->Post(write).ok());
  }
  for (size_t i = 0; i < kConnections; ++i) EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(local.bytes().first(kConnections * 64), remote.bytes().first(kConnections * 64)));
  for (size_t i = 0; i < kConnections; ++i) {
    const Completion completion = Next(*b_, Completion::Kind::kNotified);
    auto it = std::find_if(pairs.begin(), pairs.end(),
                           [&](const Pair& p) { return p.to == completion.connection; });
    ASSERT_NE(it, pairs.end());
    EXPECT_EQ(completion.channel, (it - pairs.begin()) % 64);
  }
}

TEST_P(FabricContractTest, PrivateDataTravelsBothWays) {
  AddTwo();
  b_->answer = std::string(Fabric::kMaxPrivateData, '\0');
  b_->answer[0] = 'x';
  const std::string said(Fabric::kMaxPrivateData, 'y');
  Pair pair = Connect(*a_, *b_, said);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  EXPECT_EQ(b_->said, std::vector<std::string>{said});
  EXPECT_EQ(pair.from->peer_private_data(), b_->answer);
  EXPECT_EQ(pair.to->peer_private_data(), said);
  EXPECT_TRUE(absl::IsInvalidArgument(Connect(*a_, *b_, said + "z").status));
}

TEST_P(FabricContractTest, RefusalOfAcceptorComesWithItsSentence) {
  AddTwo();
  b_->refusal = absl::ResourceExhaustedError("node 2 takes no more workers");
  const absl::Status status = TryConnect(*a_, b_->node.endpoint);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("takes no more workers"), std::string::npos) << status;
  b_->refusal = absl::OkStatus();
  EXPECT_TRUE(TryConnect(*a_, b_->node.endpoint).ok());
}

TEST_P(FabricContractTest, StrangersAreRefused) {
  AddTwo();
  Peer& wrong_secret = AddPeer(3, "contract", "a guess");
  Peer& wrong_cluster = AddPeer(4, "other", "the secret");
  Listen(wrong_secret);
  EXPECT_TRUE(absl::IsPermissionDenied(TryConnect(wrong_secret, b_->node.endpoint)));
  EXPECT_TRUE(absl::IsPermissionDenied(TryConnect(*a_, wrong_secret.node.endpoint)));
  EXPECT_TRUE(absl::IsFailedPrecondition(TryConnect(wrong_cluster, b_->node.endpoint)));
  EXPECT_TRUE(b_->said.empty());
  EXPECT_TRUE(wrong_secret.said.empty());
  EXPECT_TRUE(TryConnect(*a_, b_->node.endpoint).ok());
}

TEST_P(FabricContractTest, NobodyThereIsUnavailable) {
  a_ = &AddPeer(1);
  Peer& silent = AddPeer(2);
  EXPECT_TRUE(absl::IsUnavailable(TryConnect(*a_, silent.node.endpoint)));
  Listen(silent);
  EXPECT_TRUE(TryConnect(*a_, silent.node.endpoint).ok());
}

// --- notifications ---

TEST_P(FabricContractTest, NotificationComesAfterBytes) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kWrite);
  for (uint8_t channel = 0; channel < 64; ++channel) {
    Fill(local.bytes().first(512), channel + 1);
    WorkRequest write = Write(local.bytes().first(512), remote.at());
    write.notify = channel % 2 == 0 ? WorkRequest::Notify::kWake : WorkRequest::Notify::kQuiet;
    write.channel = channel;
    ASSERT_TRUE(pair.from->Post(write).ok());
    bool whole = false;
    ASSERT_TRUE(RunUntil([&] {
      if (Count(*b_, Completion::Kind::kNotified) == 0) return false;
      whole = Same(local.bytes().first(512), remote.bytes().first(512));
      return true;
    }));
    EXPECT_TRUE(whole);
    const Completion completion = Next(*b_, Completion::Kind::kNotified);
    EXPECT_EQ(completion.channel, channel);
    EXPECT_EQ(completion.connection, pair.to);
    NextRequest(*a_);
  }
}

TEST_P(FabricContractTest, NotificationsMayMergeButAreNotLost) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kWrite);
  std::vector<WorkRequest> writes;
  for (uint64_t i = 0; i < 30; ++i) {
    WorkRequest write = Write(local.bytes().first(8), remote.at(i * 8), i);
    write.notify = WorkRequest::Notify::kQuiet;
    write.channel = static_cast<uint8_t>(i % 3);
    writes.push_back(write);
  }
  ASSERT_TRUE(pair.from->Post(writes).ok());
  Settle();
  size_t of_channel[3] = {};
  for (const Completion& c : b_->completions) {
    ASSERT_EQ(c.kind, Completion::Kind::kNotified);
    ASSERT_LT(c.channel, 3);
    ++of_channel[c.channel];
  }
  for (size_t count : of_channel) {
    EXPECT_GE(count, 1u);
    EXPECT_LE(count, 10u);
  }
}

// --- SEND ---

TEST_P(FabricContractTest, SendsFillPostedReceivesInOrder) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory out = MakeMemory(*a_, Access::kNone);
  Memory in = MakeMemory(*b_, Access::kNone, 1 << 16);
  uint64_t sent = 0, received = 0;
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 10; ++i) {
      const uint64_t id = sent + i;
      ASSERT_TRUE(
          pair.to->PostReceive(id, in.bytes().subspan(id % 60 * Fabric::kMaxSend, Fabric::kMaxSend)).ok());
    }
    Settle();
    for (uint64_t i = 0; i < 10; ++i, ++sent) {
      std::span<std::byte> bytes = out.bytes().first(1 + sent * 37 % Fabric::kMaxSend);
      Fill(bytes, sent);
      ASSERT_EQ(Do(*a_, pair.from, Send(bytes, sent)), CompletionStatus::kOk);
    }
    for (int i = 0; i < 10; ++i, ++received) {
      const Completion completion = Next(*b_, Completion::Kind::kReceived);
      EXPECT_EQ(completion.id, received);
      EXPECT_EQ(completion.connection, pair.to);
      ASSERT_EQ(completion.bytes, 1 + received * 37 % Fabric::kMaxSend);
      std::vector<std::byte> expected(completion.bytes);
      Fill(expected, received);
      EXPECT_TRUE(Same(expected, in.bytes().subspan(received % 60 * Fabric::kMaxSend, completion.bytes)));
    }
  }
}

TEST_P(FabricContractTest, SendWithoutReceiveFails) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory out = MakeMemory(*a_, Access::kNone);
  EXPECT_EQ(Do(*a_, pair.from, Send(out.bytes().first(8))), CompletionStatus::kReceiverNotReady);
  EXPECT_TRUE(pair.from->failed());
}

TEST_P(FabricContractTest, ReceivesAreBounded) {
  AddTwo();
  Pair pair = Connect(*a_, *b_, "", {.max_requests = 16, .max_receives = 3});
  Memory in = MakeMemory(*b_, Access::kNone);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(pair.to->PostReceive(i, in.bytes().first(64)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.to->PostReceive(3, in.bytes().first(64))));
}

}  // namespace furrow::rdma
