#include "base/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "base/event_loop.h"
#include "base/manual_clock.h"
#include "base/thread_parker.h"

namespace furrow {
namespace {

// Bytes between the deepest and the shallowest stack frame that called Note().
class StackRange {
 public:
  __attribute__((noinline)) void Note() {
    const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    low_ = std::min(low_, here);
    high_ = std::max(high_, here);
  }
  bool empty() const { return high_ == 0; }
  uintptr_t bytes() const { return high_ - low_; }

 private:
  uintptr_t low_ = UINTPTR_MAX;
  uintptr_t high_ = 0;
};

class TaskTest : public ::testing::Test {
 protected:
  void RunAll() {
    while (loop_.RunOnce()) {
    }
  }
  ManualClock clock_;
  ThreadParker parker_;
  EventLoop loop_{clock_, parker_};
};

Task<int> Immediately(StackRange* stack, int value) {
  stack->Note();
  co_return value;
}

Task<void> AwaitInLoop(StackRange* stack, int times, int64_t* sum) {
  for (int i = 0; i < times; ++i) *sum += co_await Immediately(stack, 1);
}

TEST_F(TaskTest, MillionSynchronousAwaitsDoNotGrowTheStack) {
  StackRange stack;
  int64_t sum = 0;
  loop_.Spawn(AwaitInLoop(&stack, 1'000'000, &sum));
  RunAll();
  EXPECT_EQ(sum, 1'000'000);
  EXPECT_LT(stack.bytes(), 4096u);
}

Task<int> Nested(StackRange* stack, int depth) {
  stack->Note();
  if (depth == 0) co_return 0;
  const int below = co_await Nested(stack, depth - 1);
  stack->Note();
  co_return below + 1;
}

Task<void> StoreNested(StackRange* stack, int depth, int* result) { *result = co_await Nested(stack, depth); }

TEST_F(TaskTest, DeepChainStartsAndFinishesWithoutRecursion) {
  StackRange stack;
  int result = 0;
  loop_.Spawn(StoreNested(&stack, 200'000, &result));
  RunAll();
  EXPECT_EQ(result, 200'000);
  EXPECT_LT(stack.bytes(), 4096u);
}

Task<int> Throws() {
  throw std::runtime_error("thrown in a task");
  co_return 0;
}

Task<void> Catches(std::string* message) {
  try {
    co_await Throws();
  } catch (const std::runtime_error& e) {
    *message = e.what();
  }
}

TEST_F(TaskTest, ExceptionIsRethrownToTheAwaiter) {
  std::string message;
  loop_.Spawn(Catches(&message));
  RunAll();
  EXPECT_EQ(message, "thrown in a task");
}

Task<void> ThrowsVoid() {
  throw std::runtime_error("void too");
  co_return;
}

Task<void> PassesOn(std::string* message) {
  try {
    co_await ThrowsVoid();
  } catch (const std::exception& e) {
    *message = e.what();
  }
}

TEST_F(TaskTest, ExceptionOfVoidTaskIsRethrown) {
  std::string message;
  loop_.Spawn(PassesOn(&message));
  RunAll();
  EXPECT_EQ(message, "void too");
}

using TaskDeathTest = TaskTest;
TEST_F(TaskDeathTest, ExceptionThatLeavesASpawnedTaskIsFatal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        loop_.Spawn(ThrowsVoid());
        RunAll();
      },
      "an exception left a spawned task: void too");
}

Task<std::unique_ptr<int>> MakesMoveOnly() { co_return std::make_unique<int>(7); }

Task<void> TakesMoveOnly(int* result) {
  std::unique_ptr<int> p = co_await MakesMoveOnly();
  *result = *p;
}

TEST_F(TaskTest, ResultMayBeMoveOnly) {
  int result = 0;
  loop_.Spawn(TakesMoveOnly(&result));
  RunAll();
  EXPECT_EQ(result, 7);
}

TEST_F(TaskTest, BodyDoesNotStartBeforeItIsAwaited) {
  StackRange stack;
  {
    Task<int> task = Immediately(&stack, 1);
  }
  EXPECT_TRUE(stack.empty());
}

struct CountsDeaths {
  explicit CountsDeaths(int* d) : deaths(d) {}
  CountsDeaths(const CountsDeaths&) = delete;
  CountsDeaths& operator=(const CountsDeaths&) = delete;
  ~CountsDeaths() { ++*deaths; }
  int* deaths;
};

Task<void> SleepsForever(EventLoop* loop, int* deaths) {
  CountsDeaths inner(deaths);
  co_await loop->SleepFor(kSecond);
}

Task<void> AwaitsSleeper(EventLoop* loop, int* deaths) {
  CountsDeaths outer(deaths);
  co_await SleepsForever(loop, deaths);
}

TEST(TaskLifeTest, LoopDestroysSuspendedFramesAndAllTheyOwn) {
  ManualClock clock;
  ThreadParker parker;
  int deaths = 0;
  {
    EventLoop loop(clock, parker);
    for (int i = 0; i < 10; ++i) loop.Spawn(AwaitsSleeper(&loop, &deaths));
    loop.RunOnce();
    EXPECT_EQ(loop.spawned(), 10u);
    EXPECT_EQ(deaths, 0);
  }
  EXPECT_EQ(deaths, 20);
}

TEST(TaskLifeTest, LoopDestroysTasksThatNeverRan) {
  ManualClock clock;
  ThreadParker parker;
  auto shared = std::make_shared<int>(0);
  {
    EventLoop loop(clock, parker);
    loop.Spawn([](std::shared_ptr<int> p) -> Task<void> { co_return; }(shared));
    EXPECT_EQ(shared.use_count(), 2);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

// A task whose frame, when it is destroyed, spawns another one.
struct SpawnsAtDeath {
  EventLoop* loop;
  int* deaths;
  ~SpawnsAtDeath() { loop->Spawn(SleepsForever(loop, deaths)); }
};

Task<void> Respawns(EventLoop* loop, int* deaths) {
  SpawnsAtDeath at_death{loop, deaths};
  co_await loop->SleepFor(kSecond);
}

TEST(TaskLifeTest, TaskSpawnedByADyingFrameIsDestroyedToo) {
  ManualClock clock;
  ThreadParker parker;
  int deaths = 0;
  {
    EventLoop loop(clock, parker);
    loop.Spawn(Respawns(&loop, &deaths));
    loop.RunOnce();
  }
  EXPECT_EQ(deaths, 0);  // it never started, so it has no locals; LeakSanitizer sees its frame if it stays
}

TEST_F(TaskTest, FinishedTasksLeaveTheListInAnyOrder) {
  std::vector<int> ended;
  auto sleep = [](EventLoop* loop, std::vector<int>* out, int id, Nanos ns) -> Task<void> {
    co_await loop->SleepFor(ns);
    out->push_back(id);
  };
  loop_.Spawn(sleep(&loop_, &ended, 1, 20));
  loop_.Spawn(sleep(&loop_, &ended, 2, 10));
  loop_.Spawn(sleep(&loop_, &ended, 3, 30));
  RunAll();
  for (size_t left = 3; left > 0; --left) {
    EXPECT_EQ(loop_.spawned(), left);
    clock_.Advance(10);
    RunAll();
  }
  EXPECT_EQ(loop_.spawned(), 0u);
  EXPECT_EQ(ended, (std::vector<int>{2, 1, 3}));
}

}  // namespace
}  // namespace furrow
