// What READ and WRITE move, in which order, and what protects memory from them.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rdma/fabric_contract.h"
#include "rdma/fabric_contract_bytes.h"

namespace furrow::rdma {

// --- bytes ---

TEST_P(FabricContractTest, ReadAndWriteMoveBytesOfAnySizeAndAlignment) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  Memory local = MakeMemory(*a_, Access::kNone, 1 << 18);
  Memory remote = MakeMemory(*b_, Access::kReadWrite, 1 << 17);
  uint64_t seed = 1;
  for (size_t size : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 200u, 1024u, 4097u, 65536u}) {
    for (size_t offset : {0u, 1u, 5u, 8u, 60u}) {
      std::span<std::byte> out = local.bytes().subspan(offset * 3 % 16, size);
      Fill(out, ++seed);
      Fill(remote.bytes().subspan(offset + size, 8), 99);
      ASSERT_EQ(Do(*a_, pair.from, Write(out, remote.at(offset))), CompletionStatus::kOk);
      ASSERT_TRUE(Same(out, remote.bytes().subspan(offset, size))) << size << " bytes at " << offset;
      std::vector<std::byte> behind(8);
      Fill(behind, 99);
      ASSERT_TRUE(Same(behind, remote.bytes().subspan(offset + size, 8))) << "wrote behind the end";
      std::span<std::byte> in = local.bytes().subspan(66000 + offset, size);
      Fill(in, 0);
      ASSERT_EQ(Do(*a_, pair.from, Read(in, remote.at(offset))), CompletionStatus::kOk);
      ASSERT_TRUE(Same(in, out)) << size << " bytes at " << offset;
    }
  }
}

TEST_P(FabricContractTest, BothSidesOfConnectionMayPost) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  EXPECT_EQ(pair.from->peer(), NodeId(2));
  EXPECT_EQ(pair.to->peer(), NodeId(1));
  Memory of_a = MakeMemory(*a_, Access::kReadWrite);
  Memory of_b = MakeMemory(*b_, Access::kReadWrite);
  Fill(of_b.bytes(), 5);
  ASSERT_EQ(Do(*b_, pair.to, Write(of_b.bytes(), of_a.at())), CompletionStatus::kOk);
  EXPECT_TRUE(Same(of_a.bytes(), of_b.bytes()));
}

TEST_P(FabricContractTest, InlinedBytesAreTakenBeforePostReturns) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::byte unregistered[WorkRequest::kMaxInline], expected[WorkRequest::kMaxInline];
  Fill(unregistered, 3);
  Fill(expected, 3);
  WorkRequest write = Write(unregistered, remote.at(16));
  write.inlined = true;
  ASSERT_TRUE(pair.from->Post(write).ok());
  std::memset(unregistered, 0, sizeof(unregistered));
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(expected, remote.bytes().subspan(16, sizeof(expected))));
}

TEST_P(FabricContractTest, EmptyRequestsComplete) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  EXPECT_EQ(Do(*a_, pair.from, Read({}, remote.at(8))), CompletionStatus::kOk);
  EXPECT_EQ(Do(*a_, pair.from, Write({}, remote.at(8))), CompletionStatus::kOk);
}

// --- order and completions ---

TEST_P(FabricContractTest, RequestsCompleteOnceAndInOrderOfPosting) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::vector<WorkRequest> requests;
  for (uint64_t i = 1; i <= 100; ++i) {
    std::span<std::byte> bytes = local.bytes().subspan(i * 8, i % 3 == 0 ? 2000 : 8);
    requests.push_back(i % 2 == 0 ? Read(bytes, remote.at(i)) : Write(bytes, remote.at(i)));
    requests.back().id = i;
    requests.back().signaled = i % 5 != 0;
  }
  // In batches of growing size.
  for (size_t at = 0, size = 1; at < requests.size(); at += size, ++size) {
    size = std::min(size, requests.size() - at);
    ASSERT_TRUE(pair.from->Post(std::span(requests).subspan(at, size)).ok());
  }
  for (uint64_t i = 1; i <= 100; ++i) {
    if (i % 5 == 0) continue;
    const Completion completion = NextRequest(*a_);
    EXPECT_EQ(completion.id, i);
    EXPECT_EQ(completion.status, CompletionStatus::kOk);
  }
  Settle();
  EXPECT_EQ(Count(*a_, Completion::Kind::kRequest), 0u);
  EXPECT_TRUE(b_->completions.empty());
}

TEST_P(FabricContractTest, WritesOfOneConnectionBecomeVisibleInOrder) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone, 1 << 16);
  Memory remote = MakeMemory(*b_, Access::kWrite, 1 << 16);
  for (uint64_t round = 1; round <= 30; ++round) {
    std::span<std::byte> body = local.bytes().subspan(64, 1000);
    std::span<std::byte> flag = local.bytes().subspan(0, 8);
    Fill(body, round);
    std::memcpy(flag.data(), &round, 8);
    WorkRequest requests[2] = {Write(body, remote.at(64)), Write(flag, remote.at(0), round)};
    requests[0].signaled = false;
    ASSERT_TRUE(pair.from->Post(requests).ok());
    bool in_order = true;
    ASSERT_TRUE(RunUntil([&] {
      if (LoadShared(remote.bytes()) != round) return false;
      in_order = Same(body, remote.bytes().subspan(64, 1000));
      return true;
    }));
    ASSERT_TRUE(in_order);
    NextRequest(*a_);
  }
}

TEST_P(FabricContractTest, ReadBehindWriteSeesItsBytes) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes().first(512), 17);
  WorkRequest requests[2] = {Write(local.bytes().first(512), remote.at()),
                             Read(local.bytes().subspan(1024, 512), remote.at(), 2)};
  ASSERT_TRUE(pair.from->Post(requests).ok());
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_EQ(NextRequest(*a_).status, CompletionStatus::kOk);
  EXPECT_TRUE(Same(local.bytes().first(512), local.bytes().subspan(1024, 512)));
}

TEST_P(FabricContractTest, FullConnectionTakesNothingOfBatchThatDoesNotFit) {
  AddTwo();
  Pair pair = Connect(*a_, *b_, "", {.max_requests = 8});
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Fill(local.bytes(), 1);
  std::vector<WorkRequest> nine(9, Write(local.bytes().first(8), remote.at(2048)));
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(nine)));
  for (uint64_t i = 1; i <= 6; ++i)
    ASSERT_TRUE(pair.from->Post(Read(local.bytes().first(8), remote.at(), i)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(std::span(nine).first(3))));
  ASSERT_TRUE(pair.from->Post(std::span(nine).first(2)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pair.from->Post(std::span(nine).first(1))));
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(NextRequest(*a_).id, i);
  NextRequest(*a_);
  NextRequest(*a_);
  // Room again.
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at(), 77)), CompletionStatus::kOk);
}

// --- protection ---

TEST_P(FabricContractTest, RefusedRequestsChangeNothing) {
  AddTwo();
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory both = MakeMemory(*b_, Access::kReadWrite);
  Memory readable = MakeMemory(*b_, Access::kRead);
  Memory writable = MakeMemory(*b_, Access::kWrite);
  Memory hidden = MakeMemory(*b_, Access::kNone);
  Fill(local.bytes(), 9);
  const std::vector<std::byte> before(local.bytes().begin(), local.bytes().end());
  std::span<std::byte> word = local.bytes().first(64);
  const RemoteAddress at = both.at();
  const RemoteAddress wrong_key{at.address, RemoteKey(at.key.value() ^ 0x10000)};
  const RemoteAddress other_slot{at.address, RemoteKey(at.key.value() ^ 0x7ff)};
  const uint64_t end = both.bytes().size();
  const std::vector<std::pair<std::string, WorkRequest>> cases = {
      {"read with a wrong key", Read(word, wrong_key)},
      {"write with a wrong key", Write(word, wrong_key)},
      {"write with a key that was never given", Write(word, other_slot)},
      {"read behind the end", Read(word, both.at(end))},
      {"read across the end", Read(word, both.at(end - 63))},
      {"write across the end", Write(word, both.at(end - 63))},
      {"read before the start", Read(word, both.at(static_cast<uint64_t>(-8)))},
      {"write whose end wraps around", Write(word, {static_cast<uint64_t>(-16), at.key})},
      {"read without the right", Read(word, writable.at())},
      {"write without the right", Write(word, readable.at())},
      {"read of memory for local use", Read(word, hidden.at())},
      {"write of memory for local use", Write(word, hidden.at())},
  };
  for (const auto& [what, request] : cases) {
    SCOPED_TRACE(what);
    Pair pair = Connect(*a_, *b_);
    ASSERT_TRUE(pair.status.ok()) << pair.status;
    EXPECT_FALSE(pair.from->failed());
    EXPECT_TRUE(IsRefusal(Do(*a_, pair.from, request)));
    EXPECT_TRUE(pair.from->failed());
    // There is no way back.
    EXPECT_EQ(Do(*a_, pair.from, Read(word, both.at())), CompletionStatus::kFlushed);
  }
  EXPECT_TRUE(Same(before, local.bytes()));
  for (Memory* memory : {&both, &readable, &writable, &hidden}) EXPECT_TRUE(AllZero(memory->bytes()));
}

// A provider may have no such path (then it always says no); one that has it obeys the same rules as Post().
TEST_P(FabricContractTest, ReadNowBringsWhatReadBringsOrNothing) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  Memory writable = MakeMemory(*b_, Access::kWrite);
  Fill(local.bytes().first(100), 7);
  // Behind a WRITE of the same connection it sees its bytes.
  ASSERT_EQ(Do(*a_, pair.from, Write(local.bytes().first(100), remote.at(20))), CompletionStatus::kOk);
  std::vector<std::byte> whole(100), part(9);
  const Connection::NowRead reads[] = {{remote.at(20), whole}, {remote.at(51), part}, {remote.at(8), {}}};
  pair.from->Prefetch(remote.at(20), 100);
  const bool has = pair.from->ReadNow(reads);
  EXPECT_TRUE(pair.from->completes_at_once() || !has);
  if (has) {
    EXPECT_TRUE(Same(whole, local.bytes().first(100)));
    EXPECT_TRUE(Same(part, local.bytes().subspan(31, 9)));
  }
  // What Post() would refuse is refused, and leaves the connection as it is: Post() says why.
  const RemoteAddress none{remote.at().address, RemoteKey(~remote.at().key.value())};
  for (const RemoteAddress& bad : {none, writable.at(), remote.at(remote.bytes().size() - 8)}) {
    pair.from->Prefetch(bad, whole.size());
    const Connection::NowRead refused[] = {{bad, whole}};
    EXPECT_FALSE(pair.from->ReadNow(refused));
    EXPECT_FALSE(pair.from->failed());
  }
  EXPECT_TRUE(a_->completions.empty());
  EXPECT_TRUE(IsRefusal(Do(*a_, pair.from, Read(local.bytes().first(8), none))));
  const Connection::NowRead again[] = {{remote.at(20), whole}};
  EXPECT_FALSE(pair.from->ReadNow(again)) << "the connection has failed";
}

TEST_P(FabricContractTest, LocalBuffersMustBeRegistered) {
  AddTwo();
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory remote = MakeMemory(*b_, Access::kReadWrite);
  std::vector<std::byte> unregistered(64, std::byte{1});
  const std::span<std::byte> across(local.bytes().data() + local.bytes().size() - 8, 64);
  for (std::span<std::byte> buffer : {std::span(unregistered), across}) {
    for (WorkRequest request : {Read(buffer, remote.at()), Write(buffer, remote.at()), Send(buffer)}) {
      Pair pair = Connect(*a_, *b_);
      EXPECT_EQ(Do(*a_, pair.from, request), CompletionStatus::kLocalProtection);
    }
  }
  Pair pair = Connect(*a_, *b_);
  local.region.reset();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(8), remote.at())),
            CompletionStatus::kLocalProtection);
  EXPECT_TRUE(AllZero(remote.bytes()));
}

TEST_P(FabricContractTest, RegionDeregisteredUnderPeerRefuses) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  Memory stays = MakeMemory(*b_, Access::kReadWrite);
  Memory goes = MakeMemory(*b_, Access::kReadWrite);
  const RemoteAddress old = goes.at();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(64), old)), CompletionStatus::kOk);
  goes.region.reset();
  EXPECT_EQ(Do(*a_, pair.from, Read(local.bytes().first(64), stays.at())), CompletionStatus::kOk);
  EXPECT_TRUE(IsRefusal(Do(*a_, pair.from, Write(local.bytes().first(64), old))));
  EXPECT_TRUE(AllZero(goes.bytes()));
  // Registered again it has another key.
  goes.region = *b_->node.fabric->Register(goes.file, Access::kReadWrite);
  EXPECT_NE(goes.at().key, old.key);
  Pair again = Connect(*a_, *b_);
  EXPECT_EQ(Do(*a_, again.from, Write(local.bytes().first(64), goes.at())), CompletionStatus::kOk);
}

TEST_P(FabricContractTest, RegionsComeAndGoWhileConnected) {
  AddTwo();
  Pair pair = Connect(*a_, *b_);
  Memory local = MakeMemory(*a_, Access::kNone);
  for (uint64_t round = 1; round <= 50; ++round) {
    Memory remote = MakeMemory(*b_, round % 2 == 0 ? Access::kWrite : Access::kReadWrite);
    Fill(local.bytes().first(256), round);
    ASSERT_EQ(Do(*a_, pair.from, Write(local.bytes().first(256), remote.at(64))), CompletionStatus::kOk);
    ASSERT_TRUE(Same(local.bytes().first(256), remote.bytes().subspan(64, 256)));
  }
}

}  // namespace furrow::rdma
