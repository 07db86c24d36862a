// The beat, in virtual time: clocks that drift, messages that take random times and arrive in pieces.
#include "cluster/control_link.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cluster/lease_book.h"
#include "cluster/safe_point_rounds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/sim/sim_network.h"
#include "rdma/sim/sim_world.h"

namespace furrow::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Nanos kLease = 5 * kSecond;
constexpr Timestamp kNone = Timestamp(Timestamp::kMaxValue);

class World {
 public:
  explicit World(uint64_t seed, int members = 2) : world_(seed), network_(world_) {
    for (int i = 0; i <= members; ++i) Add();
    Host& manager = *hosts_[0];
    FURROW_CHECK(manager.fabric
                     ->Listen("1",
                              [&](const rdma::ConnectRequest& r) -> absl::StatusOr<rdma::AcceptDecision> {
                                FURROW_CHECK(ControlLink::IsControl(r));
                                return manager.link->Accept(r.peer);
                              })
                     .ok());
    manager.clock->StartMaster(Timestamp(1'000'000'000));
    for (size_t i = 1; i < hosts_.size(); ++i) {
      Host& host = *hosts_[i];
      host.clock->StartSampled();
      host.link->Connect(NodeId(1), "1", 5 * kSecond, [&host](absl::Status status) {
        EXPECT_TRUE(status.ok()) << status;
        host.connected = true;
      });
    }
    FURROW_CHECK(Until([&] {
      return std::all_of(hosts_.begin() + 1, hosts_.end(), [](const auto& h) { return h->connected; });
    }));
  }
  ~World() {
    for (auto& host : hosts_) {
      host->process->Detach(*host->loop);
      host->link->Stop();
    }
  }

  struct Host {
    rdma::SimProcess* process = nullptr;
    std::unique_ptr<rdma::Fabric> fabric;
    std::unique_ptr<rdma::CompletionQueue> queue;
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<ClusterClock> clock;
    SafePoint safe_point{1};
    std::unique_ptr<ControlLink> link;
    std::vector<NodeId> lost;
    std::vector<NodeId> silent;
    std::vector<NodeId> never_came;
    Nanos answered = 0;
    Nanos term = 0;
    std::vector<absl::Status> bad_clock;
    bool connected = false;
  };
  Host& host(size_t i) { return *hosts_[i]; }
  bool Until(std::function<bool()> done, Nanos limit = 20 * kSecond) {
    absl::Status status = world_.RunUntil(done, world_.now() + limit);
    return status.ok();
  }
  void For(Nanos ns) { FURROW_CHECK(world_.RunFor(ns).ok()); }
  rdma::SimWorld& world() { return world_; }
  uint64_t reports() const { return reports_; }
  const LeaseBook& book() const { return book_; }

 private:
  void Add() {
    hosts_.push_back(std::make_unique<Host>());
    Host& host = *hosts_.back();
    const NodeId id(static_cast<uint32_t>(hosts_.size()));
    host.process = &world_.StartProcess(id);
    host.fabric = network_.MakeFabric(*host.process, {id, "cluster", "secret"});
    host.queue = *host.fabric->CreateCompletionQueue();
    host.loop = std::make_unique<EventLoop>(host.process->clock(), host.queue->parker());
    host.process->Attach(*host.loop, host.queue->parker());
    host.clock = std::make_unique<ClusterClock>(host.process->clock(), ClusterClock::Options());
    rounds_.Add(id);
    ControlLink::Options options;
    options.self = id;
    options.manager = id == NodeId(1);
    options.report = [this](NodeId node, Timestamp oldest, Timestamp known) {
      ++reports_;
      rounds_.Report(node, oldest, known);
      return ControlLink::Safe{rounds_.global_oldest(), rounds_.safe_point()};
    };
    options.lease_ns = kLease;
    if (id != NodeId(1)) book_.AddKnown(id, Role::kStorage);
    options.lease = [this](NodeId node, Nanos now, Nanos counter) {
      return book_.OnRequest(node, now, counter);
    };
    options.answered = [&host](Nanos sent, Nanos term) {
      host.answered = sent;
      host.term = term;
    };
    options.lost = [&host](NodeId node, ControlLink::Loss how) {
      (how == ControlLink::Loss::kBroken   ? host.lost
       : how == ControlLink::Loss::kSilent ? host.silent
                                           : host.never_came)
          .push_back(node);
    };
    options.bad_clock = [&host](absl::Status status) { host.bad_clock.push_back(std::move(status)); };
    host.link = std::make_unique<ControlLink>(std::move(options), *host.loop, *host.fabric, *host.queue,
                                              *host.clock, host.safe_point);
    FURROW_CHECK(host.link->Start().ok());
  }

  rdma::SimWorld world_;
  rdma::SimNetwork network_;
  SafePointRounds rounds_;
  LeaseBook book_{kLease, 1000};
  uint64_t reports_ = 0;
  std::vector<std::unique_ptr<Host>> hosts_;
};

Timestamp LowerOf(const ClusterClock& clock) {
  ClockInterval now;
  FURROW_CHECK(clock.Now(&now));
  return now.lower;
}

TEST(ControlLinkTest, SamplesKeepTheManagersTimeInTheInterval) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World w(seed);
    for (int i = 0; i < 50; ++i) {
      w.For(7 * kMillisecond);
      for (size_t m = 1; m <= 2; ++m) {
        ClockInterval now;
        ASSERT_TRUE(w.host(m).clock->Now(&now));
        const Timestamp truth = w.host(0).clock->MasterNow();
        // Reading moves virtual time on.
        EXPECT_LE(now.lower, truth);
        EXPECT_GE(now.upper.value() + 10 * kMicrosecond, truth.value());
      }
    }
    for (size_t m = 0; m <= 2; ++m) EXPECT_THAT(w.host(m).bad_clock, IsEmpty());
  }
}

TEST(ControlLinkTest, SafePointFollowsTheOldestTransaction) {
  World w(3);
  const Timestamp held = LowerOf(*w.host(1).clock);
  w.host(1).safe_point.PublishOldestActive(WorkerId(0), held);
  w.For(200 * kMillisecond);
  for (size_t m = 0; m <= 2; ++m) {
    EXPECT_LE(w.host(m).safe_point.safe_point(), held);
    EXPECT_LE(w.host(m).safe_point.oldest_allowed(), held);
  }
  w.host(1).safe_point.PublishOldestActive(WorkerId(0), kNone);
  EXPECT_TRUE(w.Until([&] { return w.host(2).safe_point.safe_point() > held; }));
  EXPECT_LE(w.host(2).safe_point.safe_point(), w.host(2).safe_point.oldest_allowed());
}

TEST(ControlLinkTest, IdleClusterBeatsRarelyAndABusyOneOften) {
  World w(4);
  w.For(10 * kSecond);
  uint64_t before = w.reports();
  w.For(10 * kSecond);
  EXPECT_LE(w.reports() - before, 5u * 12);  // about once a second; two members twice each time
  w.host(2).safe_point.PublishOldestActive(WorkerId(0), LowerOf(*w.host(2).clock));
  w.For(2 * kSecond);  // at the latest after its slow period the member notices
  before = w.reports();
  w.For(kSecond);
  EXPECT_GE(w.reports() - before, 3u * 80);  // the idle ones too: they were poked
}

TEST(ControlLinkTest, DeathOfAMemberIsNoticedByTheManager) {
  World w(5);
  w.world().Kill(*w.host(2).process);
  EXPECT_TRUE(w.Until([&] { return !w.host(0).lost.empty(); }));
  EXPECT_THAT(w.host(0).lost, ElementsAre(NodeId(3)));
  EXPECT_THAT(w.host(1).lost, IsEmpty());
}

TEST(ControlLinkTest, DeathOfTheManagerIsNoticedByAllMembers) {
  World w(6);
  w.world().Kill(*w.host(0).process);
  EXPECT_TRUE(w.Until([&] { return !w.host(1).lost.empty() && !w.host(2).lost.empty(); }));
  EXPECT_THAT(w.host(1).lost, ElementsAre(NodeId(1)));
}

TEST(ControlLinkTest, MemberThatHasLeftIsNotLost) {
  World w(7);
  w.host(0).link->Forget(NodeId(2));
  w.world().Kill(*w.host(1).process);
  w.For(5 * kSecond);
  EXPECT_THAT(w.host(0).lost, IsEmpty());
}

TEST(ControlLinkTest, MemberThatNeverConnectsIsLost) {
  World w(8);
  w.host(0).link->Expect(NodeId(2), w.host(0).loop->Now() + kSecond);  // is there
  w.host(0).link->Expect(NodeId(9), w.host(0).loop->Now() + kSecond);  // is not
  w.For(3 * kSecond);
  EXPECT_THAT(w.host(0).never_came, ElementsAre(NodeId(9)));
  EXPECT_THAT(w.host(0).silent, IsEmpty());
}

TEST(ControlLinkTest, SilentMemberIsLostWithinAFifthMoreThanALease) {
  for (const bool busy : {false, true}) {
    SCOPED_TRACE(busy);
    World w(9);
    if (busy) w.host(2).safe_point.PublishOldestActive(WorkerId(0), LowerOf(*w.host(2).clock));
    w.For(3 * kSecond);
    const Nanos stopped = w.world().now();
    w.world().Pause(*w.host(1).process);
    EXPECT_TRUE(w.Until([&] { return !w.host(0).silent.empty(); }));
    EXPECT_THAT(w.host(0).silent, ElementsAre(NodeId(2)));
    // Its last beat was at most a quarter of a lease old.
    EXPECT_GE(w.world().now() - stopped, kLease * 3 / 4);
    EXPECT_LE(w.world().now() - stopped, kLease * 6 / 5 + 100 * kMillisecond);
    w.For(2 * kLease);
    EXPECT_THAT(w.host(0).silent, ElementsAre(NodeId(2)));
    EXPECT_THAT(w.host(2).silent, IsEmpty());
    // It finds the connection broken, and knows why.
    w.world().Resume(*w.host(1).process);
    EXPECT_TRUE(w.Until([&] { return !w.host(1).lost.empty(); }));
    EXPECT_GE(w.host(1).link->overslept(), kLease);
    EXPECT_EQ(w.host(2).link->overslept(), 0);
  }
}

TEST(ControlLinkTest, SilentManagerIsLostToAllMembers) {
  World w(10);
  w.world().Pause(*w.host(0).process);
  EXPECT_TRUE(w.Until([&] { return !w.host(1).silent.empty() && !w.host(2).silent.empty(); }));
  EXPECT_THAT(w.host(1).silent, ElementsAre(NodeId(1)));
}

TEST(ControlLinkTest, MemberThatIsAwayForLessThanALeaseIsNotLost) {
  World w(11);
  for (int i = 0; i < 10; ++i) {
    w.world().Pause(*w.host(1).process);
    w.For(kLease * 3 / 5);
    w.world().Resume(*w.host(1).process);
    w.For(kLease / 5);
  }
  for (size_t m = 0; m <= 2; ++m) EXPECT_THAT(w.host(m).silent, IsEmpty());
}

// As when a whole host sleeps: nobody has heard of anybody, and nobody was there to listen.
TEST(ControlLinkTest, NobodyIsLostWhenAllWereAway) {
  World w(12);
  for (size_t m = 0; m <= 2; ++m) w.world().Pause(*w.host(m).process);
  w.For(10 * kLease);
  for (size_t m = 0; m <= 2; ++m) w.world().Resume(*w.host(m).process);
  w.For(3 * kLease);
  for (size_t m = 0; m <= 2; ++m) {
    EXPECT_THAT(w.host(m).silent, IsEmpty());
    EXPECT_THAT(w.host(m).lost, IsEmpty());
  }
}

TEST(ControlLinkTest, AnswersTellWhenTheirBeatWasSent) {
  World w(13);
  w.For(3 * kLease);
  const Nanos now = w.host(1).clock->LocalNow();
  EXPECT_LE(w.host(1).answered, now);
  EXPECT_GE(w.host(1).answered, now - kLease / 2) << "so that leases do not run out";
}

TEST(ControlLinkTest, ManagerWhoseClockIsDisabledGivesNoSamples) {
  World w(17);
  w.host(0).clock->Disable();
  w.host(1).clock->Disable();
  w.host(1).clock->RestartSampled();
  w.For(3 * kLease);
  ClockInterval now;
  EXPECT_FALSE(w.host(1).clock->Now(&now));
  EXPECT_GE(w.host(1).term, kLease / 2) << "leases go on";
  w.host(0).clock->RestartMaster();
  EXPECT_TRUE(w.Until([&] { return w.host(1).clock->Now(&now); }));
}

TEST(ControlLinkTest, EachSideHoldsALeaseOfTheOther) {
  World w(14);
  w.For(3 * kLease);
  for (int i = 0; i < 20; ++i) {
    w.For(300 * kMillisecond);
    const Nanos now = w.host(0).clock->LocalNow();
    EXPECT_GE(w.book().right(), now + kLease * 3 / 4) << "granted anew within each beat, once a second";
    EXPECT_LE(w.book().right(), now + kLease);
    for (size_t m : {1, 2}) EXPECT_GE(w.host(m).term, kLease / 2);
  }
}

TEST(ControlLinkTest, ManagersRightEndsWhenMoreThanHalfAreSilent) {
  World w(15);
  w.For(kLease);
  w.world().Pause(*w.host(1).process);
  w.For(2 * kLease);
  EXPECT_GE(w.book().right(), w.host(0).clock->LocalNow()) << "two of three";
  w.world().Pause(*w.host(2).process);
  w.For(kLease);
  EXPECT_LT(w.book().right(), w.host(0).clock->LocalNow());
}

TEST(ControlLinkTest, HandshakeEndsWithItsThirdMessage) {
  World w(16);
  w.For(10 * kSecond);
  const uint64_t before = w.reports();
  w.For(10 * kSecond);
  EXPECT_LE(w.reports() - before, 5u * 12) << "two of each member about once a second, and the manager's own";
}

}  // namespace
}  // namespace furrow::cluster
