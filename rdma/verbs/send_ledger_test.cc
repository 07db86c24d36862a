#include "rdma/verbs/send_ledger.h"

#include <deque>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace furrow::rdma {
namespace {

SendEntry Of(uint64_t id, bool signaled, CompletionStatus doom = CompletionStatus::kOk) {
  return {.id = id, .signaled = signaled, .doom = doom};
}

TEST(SendLedgerTest, SignaledRequestsFillTheQueueExactly) {
  SendLedger ledger(8);
  EXPECT_FALSE(ledger.Fits(9, 0));
  bool ask = false;
  for (uint64_t i = 0; i < 6; ++i) ledger.Add(Of(i, true), &(ask = false));
  EXPECT_TRUE(ask);
  EXPECT_TRUE(ledger.Fits(2, 0));
  EXPECT_FALSE(ledger.Fits(3, 0));
  EXPECT_FALSE(ledger.Fits(2, 1)) << "a completion that was not polled takes room";
  EXPECT_EQ(ledger.Pop().id, 0u);
  EXPECT_TRUE(ledger.Fits(3, 0));
}

TEST(SendLedgerTest, UnsignaledRequestsAskAtHalfAQueue) {
  SendLedger ledger(8);
  for (uint64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(ledger.Fits(1, 0)) << i;
    bool ask = false;
    ledger.Add(Of(i, false), &ask);
    EXPECT_EQ(ask, i % 4 == 3) << i;
    // Those at the end whose end nobody will hear of take no room; the others do.
    EXPECT_EQ(ledger.unasked(), (i + 1) % 4) << i;
    if (i == 7) {
      EXPECT_FALSE(ledger.Fits(1, 0));
      while (ledger.head() < 4) ledger.Pop();  // the answer to the first that asked
    }
  }
}

TEST(SendLedgerTest, QueueOfOneAsksEveryTime) {
  SendLedger ledger(1);
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(ledger.Fits(1, 0));
    bool ask = false;
    ledger.Add(Of(i, false), &ask);
    EXPECT_TRUE(ask);
    EXPECT_FALSE(ledger.Fits(1, 0));
    ledger.Pop();
  }
}

TEST(SendLedgerTest, DoomedRequestsAreNotUnderWay) {
  SendLedger ledger(8);
  bool ask = false;
  const uint64_t first = ledger.Add(Of(1, false), &ask);
  ledger.Add(Of(2, true, CompletionStatus::kLocalProtection), &ask);
  EXPECT_FALSE(ask);
  EXPECT_EQ(ledger.under_way(), 1u);
  EXPECT_EQ(ledger.unasked(), 1u);
  EXPECT_EQ(ledger.head(), first);
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kOk);
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kLocalProtection);
  EXPECT_TRUE(ledger.empty());
  EXPECT_EQ(ledger.under_way(), 0u);
  EXPECT_EQ(ledger.unasked(), 0u);
}

TEST(SendLedgerTest, WhatTheDeviceDidNotTakeIsDoomed) {
  SendLedger ledger(8);
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < 4; ++i) {
    bool ask = false;
    numbers.push_back(ledger.Add(Of(i, i == 3), &ask));
  }
  ledger.Doom(numbers[2], CompletionStatus::kLocalProtection);
  EXPECT_EQ(ledger.under_way(), 2u);
  EXPECT_EQ(ledger.unasked(), 2u) << "the one that asked never went out";
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kOk);
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kOk);
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kLocalProtection);
  EXPECT_EQ(ledger.Pop().doom, CompletionStatus::kFlushed);
  EXPECT_EQ(ledger.unasked(), 0u);
}

TEST(SendLedgerTest, NumbersWrapAroundInTheirLowerHalf) {
  SendLedger ledger(4);
  bool ask = false;
  ledger.Add(Of(7, true), &ask);
  EXPECT_EQ(ledger.Number(0), 0u);
  EXPECT_TRUE(ledger.Contains(ledger.Number(0)));
  EXPECT_FALSE(ledger.Contains(ledger.Number(1)));
  EXPECT_FALSE(ledger.Contains(ledger.Number(~0u)));
}

// Whatever is posted in whatever order, the device's queue does not overflow, the owner gets the room that it
// was promised, and everything ends once and in order.
TEST(SendLedgerTest, RandomTrafficKeepsToTheCapacity) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (const uint32_t max_requests : {1u, 2u, 3u, 16u, 100u, 1024u}) {
    SendLedger ledger(max_requests);
    std::deque<uint64_t> asked;  // numbers that the device will answer
    uint64_t posted = 0, ended = 0;
    std::deque<bool> owned;  // by number
    for (int step = 0; step < 20'000; ++step) {
      bool ask = false;
      if (random.OneIn(8)) {
        if (ledger.FitsInternal()) {
          const uint64_t number = ledger.Add({.internal = true}, &ask);
          owned.push_back(false);
          if (ask) asked.push_back(number);
          ++posted;
        }
      } else if (random.OneIn(2) && ledger.Fits(1, 0)) {
        const uint64_t number = ledger.Add(Of(posted, random.OneIn(3)), &ask);
        owned.push_back(true);
        if (ask) asked.push_back(number);
        ++posted;
      } else if (!asked.empty()) {
        const uint64_t number = asked.front();
        asked.pop_front();
        while (ledger.head() <= number) {
          ledger.Pop();
          owned.pop_front();
          ++ended;
        }
      }
      ASSERT_EQ(ledger.size(), posted - ended);
      ASSERT_LE(ledger.size(), SendLedger::capacity(max_requests));
      // Nothing is stuck: with nothing to wait for, there is room.
      if (asked.empty()) {
        ASSERT_TRUE(ledger.Fits(max_requests, 0));
        ASSERT_TRUE(ledger.FitsInternal());
      }
    }
  }
}

}  // namespace
}  // namespace furrow::rdma
