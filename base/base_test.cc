// The small parts of base/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/frame_pool.h"
#include "base/futex.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/mutation.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"

namespace furrow {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// --- ids ---

TEST(IdsTest, AddressKeepsRegionAndOffsetApart) {
  const Address a(RegionId(0xfffffffe), 0x80000001);
  EXPECT_EQ(a.region(), RegionId(0xfffffffe));
  EXPECT_EQ(a.offset(), 0x80000001u);
  EXPECT_EQ(Address::FromBits(a.bits()), a);
  EXPECT_TRUE(Address().is_null());
  EXPECT_EQ(ToString(Address(RegionId(7), 0x1240)), "7:0x1240");
}

TEST(IdsTest, TransactionIdPrintsItsParts) {
  EXPECT_EQ(ToString(TxId{ConfigId(1), NodeId(2), WorkerId(0), 77}), "c1.n2.w0.l77");
  EXPECT_TRUE(TxId().is_null());
}

TEST(IdsTest, IdsHash) {
  absl::flat_hash_set<NodeId> nodes = {NodeId(1), NodeId(2), NodeId(1)};
  EXPECT_EQ(nodes.size(), 2u);
}

// --- descriptors ---

TEST(DescriptorsTest, TooFewAreSaidWithTheNumberThatIsNeeded) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(CheckDescriptors(1), absl::OkStatus());
  rlimit few = before;
  few.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status refused = CheckDescriptors(100);
  few.rlim_cur = 0;  // nothing can be opened any more, /proc/self/fd neither
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status none = CheckDescriptors(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              MatchesRegex(".*may have 40 descriptors, has [0-9]+, and needs 100 "
                           "more to begin with: raise the limit to 1[0-9]+ or "
                           "more .ulimit -n."));
  EXPECT_TRUE(absl::IsResourceExhausted(none)) << none;
}

// --- random ---

TEST(RandomTest, SameSeedGivesTheKnownSequence) {
  // Reference values of xoshiro256** on the state that splitmix64 makes of seed 42.
  Random random(42);
  EXPECT_EQ(random.Next(), 1546998764402558742u);
  EXPECT_EQ(random.Next(), 6990951692964543102u);
  Random again(42);
  EXPECT_EQ(again.Next(), 1546998764402558742u);
}

TEST(RandomTest, BelowStaysInItsBoundAndReachesAllOfIt) {
  Random random(7);
  std::vector<int> seen(10);
  for (int i = 0; i < 10'000; ++i) ++seen[random.Below(10)];
  for (int count : seen) EXPECT_NEAR(count, 1000, 200);
  EXPECT_EQ(random.Below(1), 0u);
  constexpr uint64_t kHuge = (uint64_t{1} << 63) + 1;  // nearly half of all draws must be redrawn
  for (int i = 0; i < 1000; ++i) ASSERT_LT(random.Below(kHuge), kHuge);
}

TEST(RandomTest, BetweenIncludesBothEnds) {
  Random random(3);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const int64_t value = random.Between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
    low |= value == -2;
    high |= value == 2;
  }
  EXPECT_TRUE(low && high);
  random.Between(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

TEST(RandomTest, ForkIsIndependentOfLaterDrawsOfItsParent) {
  Random a(5), b(5);
  Random fork_a = a.Fork();
  b.Next();  // what Fork() draws
  a.Next();
  EXPECT_EQ(a.Next(), (b.Next(), b.Next()));
  EXPECT_NE(fork_a.Next(), Random(5).Next());
}

TEST(RandomTest, DoubleIsInTheUnitInterval) {
  Random random(9);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double d = random.NextDouble();
    ASSERT_GE(d, 0);
    ASSERT_LT(d, 1);
    sum += d;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(RandomTest, EntropyDiffers) { EXPECT_NE(EntropySeed(), EntropySeed()); }

// --- clock ---

TEST(ClockTest, MonotonicClockDoesNotGoBack) {
  Nanos last = MonotonicClock().Now();
  for (int i = 0; i < 1000; ++i) {
    const Nanos now = MonotonicClock().Now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(WallClockNow(), 1'700'000'000 * kSecond);
}

// --- frame pool ---

TEST(FramePoolTest, FramesAreWritableInFullAtEverySize) {
  std::vector<std::pair<void*, size_t>> frames;
  for (size_t bytes = 1; bytes < 6000; bytes += 37) {
    void* frame = AllocateFrame(bytes);
    std::memset(frame, static_cast<int>(bytes), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(frame) % alignof(std::max_align_t), 0u);
    frames.push_back({frame, bytes});
  }
  for (auto [frame, bytes] : frames) {
    ASSERT_EQ(static_cast<unsigned char*>(frame)[bytes - 1], static_cast<unsigned char>(bytes));
    FreeFrame(frame, bytes);
  }
}

TEST(FramePoolTest, FrameMayBeFreedOnAnotherThread) {
  void* frame = AllocateFrame(200);
  Thread other({.name = "other"}, [&] {
    FreeFrame(frame, 200);
    FreeFrame(AllocateFrame(200), 200);
  });
}

// --- histogram ---

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram h;
  for (int i = 1; i <= 100; ++i) h.Record(i);
  EXPECT_EQ(h.count(), 100u);
  EXPECT_EQ(h.min(), 1);
  EXPECT_EQ(h.max(), 100);
  EXPECT_DOUBLE_EQ(h.mean(), 50.5);
  EXPECT_EQ(h.Percentile(0), 1);
  EXPECT_EQ(h.Percentile(50), 50);
  EXPECT_EQ(h.Percentile(99), 99);
  EXPECT_EQ(h.Percentile(100), 100);
}

TEST(HistogramTest, EveryValueIsKeptToWithinHalfAPercent) {
  for (Nanos value = 1; value < Nanos{1} << 42; value = value * 1.31 + 1) {
    Histogram h;
    h.Record(value);
    h.Record(Nanos{1} << 42);  // so that max() does not hide the bucket's end
    const Nanos kept = h.Percentile(50);
    ASSERT_GE(kept, value);
    ASSERT_LE(static_cast<double>(kept - value), 0.005 * static_cast<double>(value));
  }
}

TEST(HistogramTest, ExtremesAreClamped) {
  Histogram h;
  h.Record(-5);
  h.Record(std::numeric_limits<Nanos>::max());
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), (Nanos{1} << 43) - 1);
  EXPECT_EQ(h.Percentile(100), h.max());
}

TEST(HistogramTest, MergeIsTheSumAndEmptyIsZero) {
  Histogram a, b, both;
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const Nanos value = random.Between(0, 10 * kMillisecond);
    (i % 3 == 0 ? a : b).Record(value);
    both.Record(value);
  }
  a.Merge(b);
  for (double p : {1.0, 50.0, 99.0, 99.9}) EXPECT_EQ(a.Percentile(p), both.Percentile(p));
  EXPECT_EQ(a.count(), both.count());
  EXPECT_EQ(a.min(), both.min());
  EXPECT_EQ(a.max(), both.max());
  a.Merge(Histogram());
  EXPECT_EQ(a.min(), both.min());
  a.Reset();
  EXPECT_EQ(a.Percentile(99), 0);
  EXPECT_EQ(a.min(), 0);
  EXPECT_EQ(a.mean(), 0);
}

TEST(HistogramTest, LengthsOfTimePrintForPeople) {
  EXPECT_EQ(FormatNanos(850), "850ns");
  EXPECT_EQ(FormatNanos(3100), "3.1us");
  EXPECT_EQ(FormatNanos(12.4e6), "12.4ms");
  EXPECT_EQ(FormatNanos(2.5e9), "2.50s");
  EXPECT_EQ(FormatNanos(999.6), "1us");
}

// --- checksum ---

TEST(ChecksumTest, ValuesAreThoseOfXxh3) {
  // Published test values of XXH3_64bits; they are part of our formats.
  EXPECT_EQ(Hash64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Hash64("a"), 0xe6c632b61e964e1fu);
  EXPECT_EQ(Hash64("abc"), 0x78af5f94892f3950u);
}

TEST(ChecksumTest, EveryBitAndTheSeedMatter) {
  std::vector<std::byte> bytes(300);
  const uint64_t base = Hash64(bytes, 1);
  EXPECT_NE(base, Hash64(bytes, 2));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(Hash64(bytes, 1), base);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

// --- log ---

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override {
    SetLogSink(nullptr);
    SetLogTag("");
    SetLogLevel(LogLevel::kInfo);
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, LineHasTimeLevelTagPlaceAndText) {
  SetLogTag("n2");
  FURROW_LOG(WARNING) << "peer " << 3 << " is gone";
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(
      lines_[0],
      MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+Z W n2 base/base_test.cc:[0-9]+\\] "
                   "peer 3 is gone"));
}

TEST_F(LogTest, LevelThatIsOffDoesNotEvaluateItsOperands) {
  int evaluated = 0;
  FURROW_LOG(DEBUG) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
  SetLogLevel(LogLevel::kDebug);
  FURROW_LOG(DEBUG) << ++evaluated;
  EXPECT_EQ(evaluated, 1);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(LogTest, LineBreaksInTheTextDoNotMakeNewLines) {
  FURROW_LOG(ERROR) << "first\nsecond";
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("first second"));
}

TEST_F(LogTest, IsOneStatement) {
  if (lines_.empty())
    FURROW_LOG(INFO) << "then";
  else
    FURROW_LOG(INFO) << "else";
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("then"));
}

TEST_F(LogTest, LimitedLineComesOncePerIntervalAndSaysHowManyWereLeftOut) {
  auto log = [](Nanos interval) { FURROW_LOG_EVERY(WARNING, interval) << "ring full"; };
  for (int i = 0; i < 100; ++i) log(1000 * kSecond);
  EXPECT_EQ(lines_.size(), 1u);
  internal::LogLimiter limiter;
  EXPECT_TRUE(limiter.Allow(1000 * kSecond));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limiter.Allow(0));
  EXPECT_EQ(limiter.TakeSuppressed(), 5u);
}

// --- status macros ---

absl::Status Fails() { return absl::AbortedError("no"); }
absl::StatusOr<int> GivesFive() { return 5; }
absl::StatusOr<int> UsesMacros(bool fail) {
  FURROW_ASSIGN_OR_RETURN(int five, GivesFive());
  if (fail) FURROW_RETURN_IF_ERROR(Fails());
  FURROW_ASSIGN_OR_RETURN(const int other, GivesFive());
  return five + other;
}

TEST(StatusMacrosTest, ErrorsPropagateAndValuesPass) {
  EXPECT_EQ(*UsesMacros(false), 10);
  EXPECT_EQ(UsesMacros(true).status().code(), absl::StatusCode::kAborted);
}

TEST(StringsTest, ViewsConvertBothWays) {
  EXPECT_EQ(absl::StrCat("a", Sv(std::string_view("bc"))), "abc");
  EXPECT_EQ(Sv(Fails().message()), std::string_view("no"));
}

// --- mutation switches ---

TEST(MutationTest, NamesParseAndUnknownOnesAreNone) {
  EXPECT_EQ(ParseMutation("skip-lock"), Mutation::kSkipLock);
  EXPECT_EQ(ParseMutation("skip-ring-checksum"), Mutation::kSkipRingChecksum);
  EXPECT_EQ(ParseMutation("no-such-step"), Mutation::kNone);
  EXPECT_EQ(ParseMutation(""), Mutation::kNone);
}

#ifdef FURROW_MUTATIONS
TEST(MutationTest, ExactlyTheChosenStepIsOff) {
  SetMutation(Mutation::kSkipLock);
  EXPECT_TRUE(Mutated(Mutation::kSkipLock));
  EXPECT_FALSE(Mutated(Mutation::kSkipValidate));
  SetMutation(Mutation::kNone);
  EXPECT_FALSE(Mutated(Mutation::kSkipLock));
}
#endif

// --- threads and futex ---

TEST(ThreadTest, JoinWaitsForTheBodyAndIsIdempotent) {
  int ran = 0;
  Thread thread({.name = "a name of more than fifteen characters"}, [&] { ++ran; });
  thread.Join();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(thread.settings().ok());
  thread.Join();
  Thread none;
  none.Join();
}

TEST(ThreadTest, RefusedWishIsReportedAndTheThreadRuns) {
  bool ran = false;
  Thread thread({.name = "nowhere", .cpu = 100'000}, [&] { ran = true; });
  thread.Join();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(thread.settings().ok());
  EXPECT_THAT(std::string(thread.settings().message()), HasSubstr("100000"));
}

// Whether the host grants a real-time priority or not.
TEST(ThreadTest, ThreadsOfARealtimeThreadHaveNormalScheduling) {
  auto policy = [] { return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK; };
  std::latch set{1};
  int own = -1;
  int child = -1;
  Thread thread({.name = "urgent", .realtime_priority = 1}, [&] {
    set.wait();
    own = policy();
    Thread other({.name = "child"}, [&] { child = policy(); });
  });
  set.count_down();
  const bool granted = thread.settings().ok();
  thread.Join();
  EXPECT_EQ(own, granted ? SCHED_FIFO : SCHED_OTHER);
  EXPECT_EQ(child, SCHED_OTHER);
}

TEST(ThreadTest, AssignmentJoinsTheOldThread) {
  std::atomic<int> ran{0};
  Thread thread({}, [&] { ++ran; });
  thread = Thread({}, [&] { ++ran; });
  EXPECT_GE(ran, 1);
  thread.Join();
  EXPECT_EQ(ran, 2);
}

TEST(ThreadTest, HostHasAtLeastOneCpu) { EXPECT_GE(AvailableCpus(), 1); }

TEST(MutexTest, ConditionVariableWaitsReleaseTheLockAndTimeOut) {
  struct {
    Mutex mutex;
    CondVar changed;
    int value ABSL_GUARDED_BY(mutex) = 0;
  } shared;
  Thread other({.name = "other"}, [&] {
    MutexLock lock(&shared.mutex);
    shared.value = 1;
    shared.changed.Signal();
  });
  MutexLock lock(&shared.mutex);
  while (shared.value == 0) shared.changed.Wait(&shared.mutex);
  EXPECT_FALSE(shared.changed.WaitUntil(&shared.mutex, MonotonicClock().Now()));
  EXPECT_EQ(shared.value, 1);
}

TEST(FutexTest, ChangedWordAndPassedDeadlineReturnAtOnce) {
  uint32_t word = 5;
  EXPECT_EQ(FutexWait(&word, 4, kNever), FutexResult::kChanged);
  EXPECT_EQ(FutexWait(&word, 5, MonotonicClock().Now() - 1), FutexResult::kTimedOut);
  EXPECT_EQ(FutexWait(&word, 5, 0), FutexResult::kTimedOut);
  EXPECT_EQ(FutexWake(&word), 0);
}

TEST(FutexTest, WakesASleeperInAnotherProcessThroughAnotherMapping) {
  auto file = MemoryFile::Anonymous(4096);
  ASSERT_TRUE(file.ok());
  auto peer_view = MemoryFile::MapDescriptor(file->fd(), 4096, /*writable=*/false);
  ASSERT_TRUE(peer_view.ok());
  uint32_t* word = reinterpret_cast<uint32_t*>(file->data());
  const uint32_t* seen = reinterpret_cast<const uint32_t*>(peer_view->data());
  const pid_t child = fork();
  if (child == 0) {
    while (std::atomic_ref(*const_cast<uint32_t*>(seen)).load(std::memory_order_acquire) == 0) {
      FutexWait(seen, 0, kNever);
    }
    _exit(7);
  }
  std::atomic_ref(*word).store(1, std::memory_order_release);
  FutexWake(word, 10);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

// --- checks ---

TEST(CheckDeathTest, FailedCheckNamesItsPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(FURROW_CHECK(1 + 1 == 3), "base_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace furrow
