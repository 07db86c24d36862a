#include "cluster/lease_book.h"

#include <memory>

#include "base/random.h"
#include "gtest/gtest.h"

namespace furrow::cluster {
namespace {

constexpr Nanos kLease = 10 * kMillisecond;
constexpr Nanos kTerm = kLease - 2 * 11 * 1000;  // at 1000 ppm

class LeaseBookTest : public ::testing::Test {
 protected:
  void AddKnown(std::vector<uint32_t> nodes) {
    for (uint32_t id : nodes) book_->AddKnown(NodeId(id), id > 1000 ? Role::kCompute : Role::kStorage);
  }
  // A whole handshake, of messages that take no time.
  Nanos Shake(uint32_t node) {
    book_->OnRequest(NodeId(node), now_, 0);
    return book_->OnRequest(NodeId(node), now_, now_);
  }
  void Reset() { book_ = std::make_unique<LeaseBook>(kLease, 1000); }
  std::unique_ptr<LeaseBook> book_ = std::make_unique<LeaseBook>(kLease, 1000);
  Nanos now_ = kSecond;
};

TEST_F(LeaseBookTest, ManagerAloneHasItsRightForEver) { EXPECT_EQ(book_->right(), LeaseBook::kForever); }

TEST_F(LeaseBookTest, RightNeedsMoreThanHalfOfTheStorageMembers) {
  for (uint32_t others = 1; others <= 6; ++others) {
    SCOPED_TRACE(others);
    Reset();
    uint32_t holders = 1;
    for (uint32_t id = 2; id <= others + 1; ++id) AddKnown({id});
    for (uint32_t id = 2; id <= others + 1; ++id) {
      const bool has = 2 * holders > others + 1;
      EXPECT_EQ(book_->right() > now_, has);
      EXPECT_EQ(Shake(id) > 0, 2 * (holders + 1) > others + 1) << "a grant ends with the right";
      ++holders;
    }
    EXPECT_EQ(book_->right(), now_ + kTerm);
  }
}

TEST_F(LeaseBookTest, ComputeMembersDoNotCountAndGetLeases) {
  AddKnown({2, 1001, 1002, 1003});
  for (uint32_t id : {1001u, 1002u, 1003u}) EXPECT_EQ(Shake(id), 0);
  EXPECT_EQ(Shake(2), kTerm);
  EXPECT_EQ(Shake(1001), kTerm);
}

TEST_F(LeaseBookTest, RightRunsFromTheCounterRequestAndNotFromItsGrant) {
  AddKnown({2});
  book_->OnRequest(NodeId(2), now_, 0);
  const Nanos counter = now_;
  now_ += kLease / 2;
  book_->OnRequest(NodeId(2), now_, counter);
  EXPECT_EQ(book_->right(), counter + kTerm);
  book_->OnRequest(NodeId(2), now_ + 1, counter - 100);
  EXPECT_EQ(book_->right(), counter + kTerm) << "an older one shortens nothing";
  book_->OnRequest(NodeId(2), now_ + 1, now_ + 2);
  EXPECT_EQ(book_->right(), counter + kTerm) << "one that was never sent";
}

TEST_F(LeaseBookTest, WhatIsGrantedEndsWithTheRight) {
  AddKnown({2, 3, 4});
  Shake(2);
  Shake(3);
  const Nanos right = book_->right();
  now_ += kLease * 3 / 4;
  EXPECT_EQ(book_->OnRequest(NodeId(4), now_, 0), right - now_);
  EXPECT_EQ(book_->lease_end(NodeId(4)), right);
  now_ = right;
  EXPECT_EQ(book_->OnRequest(NodeId(4), now_, 0), 0);
  EXPECT_EQ(Shake(2), 0) << "node 3 has not granted anything since";
  EXPECT_GT(Shake(3), 0);
}

TEST_F(LeaseBookTest, WhoIsSuspectedOrIsNoMemberGetsNothing) {
  AddKnown({2, 3, 4});
  Shake(2);
  Shake(3);
  const Nanos end = book_->lease_end(NodeId(3));
  EXPECT_GT(end, now_);
  book_->Revoke(NodeId(3));
  now_ += 5;
  EXPECT_EQ(book_->OnRequest(NodeId(3), now_, 0), 0);
  EXPECT_EQ(book_->lease_end(NodeId(3)), end);
  EXPECT_EQ(book_->OnRequest(NodeId(9), now_, 0), 0);
  book_->Remove(NodeId(3));
  EXPECT_LT(book_->lease_end(NodeId(3)), 0);
}

TEST_F(LeaseBookTest, MemberThatIsAdmittedCountsAsHavingGrantedUntilItsFirstRequest) {
  book_->AddNew(NodeId(2), Role::kStorage);
  now_ += 100 * kLease;
  EXPECT_EQ(book_->right(), LeaseBook::kForever);
  book_->OnRequest(NodeId(2), now_, 0);
  EXPECT_EQ(book_->right(), now_ + kTerm);
}

// The argument of the header: clocks that drift, messages that take their time or are lost. Once half of the
// storage members have turned away, nobody who is left behind has a lease a lease later, by any clock.
TEST_F(LeaseBookTest, NobodyHasALeaseOneLeaseAfterHalfHaveTurnedAway) {
  class Drifting final : public Clock {
   public:
    Nanos Now() const override { return base + static_cast<Nanos>(static_cast<double>(*truth) * rate); }
    const Nanos* truth;
    Nanos base = 0;
    double rate = 1;
  };
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const uint32_t storage = static_cast<uint32_t>(2 + random.Below(5));
    Nanos truth = kSecond;
    std::vector<std::unique_ptr<Drifting>> clocks;
    std::vector<std::unique_ptr<ClusterClock>> locals;
    std::vector<std::unique_ptr<MemberLease>> leases;
    std::vector<Nanos> counters(storage + 1, 0);
    LeaseBook book(kLease, 1000);
    for (uint32_t i = 0; i <= storage; ++i) {  // 0 is the manager, the last one a compute member
      clocks.push_back(std::make_unique<Drifting>());
      clocks[i]->truth = &truth;
      clocks[i]->base = random.Between(1, kSecond);
      clocks[i]->rate = 1 + static_cast<double>(random.Between(-1000, 1000)) / 1e6;
      locals.push_back(std::make_unique<ClusterClock>(*clocks[i], ClusterClock::Options()));
      leases.push_back(std::make_unique<MemberLease>(*locals[i]));
      leases[i]->Grant();
      if (i > 0) book.AddKnown(NodeId(i + 1), i == storage ? Role::kCompute : Role::kStorage);
    }
    uint32_t away = 0;  // members 1 .. away
    const uint32_t half = (storage + 1) / 2;
    Nanos turned = 0;
    bool somebody = false;
    for (int i = 0; i < 3000; ++i) {
      truth += random.Between(1, kLease / 20);
      if (i > 1000 && away < half && random.Below(50) == 0 && ++away == half) turned = truth;
      const uint32_t m = static_cast<uint32_t>(1 + random.Below(storage));
      if (m > away) {
        // The request, the answer and the grant may each be lost, and take time.
        const Nanos sent = clocks[m]->Now();
        truth += random.Between(1, kLease / 50);
        const Nanos counter = clocks[0]->Now();
        const Nanos term = book.OnRequest(NodeId(m + 1), counter, counters[m]);
        leases[0]->SetUntil(book.right());
        if (random.Below(4) != 0) {
          truth += random.Between(1, kLease / 50);
          if (term > 0) leases[m]->Answered(sent, term);
          counters[m] = counter;
        }
      }
      if (turned == 0) {
        for (const auto& lease : leases) somebody |= lease->valid();
        continue;
      }
      // By the slowest clock that is allowed.
      if (static_cast<double>(truth - turned) * (1 + 1e-3) < static_cast<double>(kLease)) continue;
      EXPECT_FALSE(leases[0]->valid());
      for (uint32_t k = away + 1; k <= storage; ++k) EXPECT_FALSE(leases[k]->valid()) << "member " << k;
    }
    EXPECT_TRUE(somebody);
    EXPECT_NE(turned, 0);
  }
}

}  // namespace
}  // namespace furrow::cluster
