// Two nodes of the verbs fabric and a connection between them, for the provider's own tests.
#ifndef FURROW_RDMA_VERBS_VERBS_TEST_PAIR_H_
#define FURROW_RDMA_VERBS_VERBS_TEST_PAIR_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_file.h"
#include "base/thread.h"
#include "gtest/gtest.h"
#include "rdma/verbs/verbs_connection.h"
#include "rdma/verbs/verbs_fabric.h"
#include "rdma/verbs/verbs_test_world.h"

namespace furrow::rdma {

// Two nodes with a connection, both polled by the test.
class VerbsTestPair : public testing::Test {
 protected:
  using Notify = WorkRequest::Notify;
  struct End {
    FabricWorld::Node node;
    std::unique_ptr<Connection> connection;
    MemoryFile file;
    std::unique_ptr<MemoryRegion> region;
    std::vector<Completion> completions;
    std::span<std::byte> bytes() const { return file.bytes(); }
    RemoteAddress at(uint64_t offset = 0) const { return region->remote_address().Plus(offset); }
    size_t Count(Completion::Kind kind) const {
      size_t count = 0;
      for (const Completion& c : completions) count += c.kind == kind ? 1 : 0;
      return count;
    }
  };

  void SetUp() override {
    if (VerbsTestAddresses().empty()) GTEST_SKIP() << "this host has no RDMA device";
    world_ = std::make_unique<VerbsTestWorld>();
    for (uint32_t i = 0; i < 2; ++i) {
      End& end = i == 0 ? a_ : b_;
      end.node = world_->AddNode({NodeId(i + 1), "verbs", "secret"});
      end.file = *MemoryFile::Anonymous(1 << 16);
      end.region = *end.node.fabric->Register(end.file, Access::kReadWrite);
    }
    const absl::StatusOr<Endpoint> listening = b_.node.fabric->Listen(
        b_.node.endpoint, [this](const ConnectRequest&) -> absl::StatusOr<AcceptDecision> {
          return AcceptDecision{b_.node.queue, ""};
        });
    ASSERT_TRUE(listening.ok()) << listening.status();
  }
  void TearDown() override {
    for (End* end : {&a_, &b_}) {
      end->connection.reset();
      end->region.reset();
    }
    world_.reset();
  }

  void Connect(ConnectionLimits limits = {}) {
    bool done = false;
    a_.node.fabric->Connect(*a_.node.queue, *a_.node.loop, b_.node.endpoint, "", limits, 60 * kSecond,
                            [&](absl::StatusOr<std::unique_ptr<Connection>> connection) {
                              ASSERT_TRUE(connection.ok()) << connection.status();
                              a_.connection = *std::move(connection);
                              done = true;
                            });
    ASSERT_TRUE(world_->RunUntil([&] {
      Poll(b_);
      return done && b_.connection != nullptr;
    }));
  }
  static void Poll(End& end) {
    Completion batch[16];
    for (size_t count = 1; count > 0;) {
      count = end.node.queue->Poll(batch);
      for (size_t i = 0; i < count; ++i) {
        if (batch[i].kind == Completion::Kind::kConnected) {
          end.connection = end.node.queue->TakeAccepted(batch[i].connection);
        } else {
          end.completions.push_back(batch[i]);
        }
      }
    }
  }
  static VerbsConnection& Inside(End& end) { return static_cast<VerbsConnection&>(*end.connection); }
  // Polls only the ends that are named.
  bool RunUntil(std::vector<End*> ends, const std::function<bool()>& done) {
    const Nanos limit = MonotonicClock().Now() + 120 * kSecond;
    for (;;) {
      for (End* end : ends) Poll(*end);
      if (done()) return true;
      if (MonotonicClock().Now() > limit) return false;
      SleepThreadUntil(MonotonicClock().Now() + 100 * kMicrosecond);
    }
  }
  CompletionStatus Do(End& end, const WorkRequest& request) {
    const absl::Status status = end.connection->Post(request);
    EXPECT_TRUE(status.ok()) << status;
    const size_t before = end.completions.size();
    std::optional<CompletionStatus> ended;
    EXPECT_TRUE(RunUntil({&end}, [&] {
      for (size_t i = before; i < end.completions.size() && !ended; ++i) {
        if (end.completions[i].kind == Completion::Kind::kRequest) ended = end.completions[i].status;
      }
      return ended.has_value();
    }));
    return ended.value_or(CompletionStatus::kFlushed);
  }
  static WorkRequest Make(Opcode opcode, std::span<std::byte> local, RemoteAddress remote,
                          Notify notify = Notify::kNone) {
    WorkRequest request;
    request.opcode = opcode;
    request.local = local;
    request.remote = remote;
    request.notify = notify;
    request.channel = 5;
    request.id = 1;
    return request;
  }
  // Sleeps as an idle loop does; false if only the deadline ended it.
  static bool SleepsUntilWoken(End& end, Nanos ns) {
    const Nanos deadline = ns == kNever ? kNever : MonotonicClock().Now() + ns;
    Parker& parker = end.node.queue->parker();
    for (;;) {
      parker.PrepareToPark();
      const size_t before = end.completions.size();
      Poll(end);
      if (end.completions.size() > before) {
        parker.CancelPark();
        return true;
      }
      parker.Park(deadline);
      if (MonotonicClock().Now() >= deadline) return false;
    }
  }

  std::unique_ptr<VerbsTestWorld> world_;
  End a_, b_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_VERBS_VERBS_TEST_PAIR_H_
