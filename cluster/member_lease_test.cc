#include "cluster/member_lease.h"

#include "cluster/configuration.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

class SetClock final : public Clock {
 public:
  Nanos Now() const override { return now; }
  Nanos now = 1000 * kSecond;
};

TEST(MemberLeaseTest, EndsWithItsTimeUnlessItIsExtendedAndNeverComesBackOnceItIsOver) {
  SetClock time;
  ClusterClock clock(time, {});
  MemberLease lease(clock);
  lease.Answered(time.now, kSecond);
  EXPECT_FALSE(lease.valid()) << "not granted yet";
  lease.Grant();
  EXPECT_TRUE(lease.valid());
  time.now += kSecond;
  EXPECT_FALSE(lease.valid()) << "its time is over";
  lease.Answered(time.now - kSecond / 2, kSecond);
  EXPECT_TRUE(lease.valid());
  lease.Answered(time.now - 2 * kSecond, kSecond);
  EXPECT_TRUE(lease.valid()) << "an older answer shortens nothing";
  lease.Expire();
  lease.Grant();
  lease.Answered(time.now, kSecond);
  EXPECT_FALSE(lease.valid()) << "the cluster has ended";
}

TEST(MemberLeaseTest, RunsFromTheBeatThatWasAnsweredAndNotFromTheGrant) {
  SetClock time;
  ClusterClock clock(time, {});
  MemberLease lease(clock);
  lease.Grant();
  EXPECT_FALSE(lease.valid()) << "nothing was answered yet";
  MemberLease late(clock);
  late.Answered(time.now, kSecond);
  time.now += kSecond;  // as if this member had been stopped between the first answer and the grant
  late.Grant();
  EXPECT_FALSE(late.valid());
}

// The manager's clock fast, this one slow, each by the drift bound: the manager's lease must be the longer.
TEST(MemberLeaseTest, EndsBeforeTheManagersWhateverTheDrift) {
  SetClock time;
  for (const int64_t ppm : {0, 200, 1000}) {
    for (const Nanos ns : {kMinLeaseNs, kDefaultLeaseNs, kMaxLeaseNs, kDefaultLeaseNs + 1}) {
      SCOPED_TRACE(testing::Message() << ns << " ns, " << ppm << " ppm");
      const double drift = static_cast<double>(ppm) / 1e6;
      EXPECT_LE(static_cast<double>(TermOf(ns, ppm)) / (1 - drift), static_cast<double>(ns) / (1 + drift));
      EXPECT_GT(TermOf(ns, ppm), ns - ns / 400) << "and not much";
    }
  }
  ClusterClock clock(time, {});
  MemberLease lease(clock);
  lease.Answered(time.now, kSecond);
  lease.Grant();
  time.now += TermOf(kSecond, clock.drift_ppm()) - 1;
  EXPECT_TRUE(lease.valid());
  time.now += 1;
  EXPECT_FALSE(lease.valid());
}

TEST(MemberLeaseTest, ManagersEndsWithWhatItsMembersHaveGrantedWhichMayBecomeLess) {
  SetClock time;
  ClusterClock clock(time, {});
  MemberLease lease(clock);
  lease.SetUntil(MemberLease::kForever);
  lease.Grant();
  time.now += 1000 * kSecond;
  EXPECT_TRUE(lease.valid());
  lease.SetUntil(time.now + 10);
  EXPECT_TRUE(lease.valid());
  time.now += 10;
  EXPECT_FALSE(lease.valid());
  lease.SetUntil(time.now + 10);
  EXPECT_TRUE(lease.valid());
}

}  // namespace
}  // namespace furrow::cluster
