// What Furrow expects of an RDMA device, tried on the device of the test VM with plain verbs: if one of these
// fails, it is the VM or its driver that does not work, not rdma/verbs. Both ends are in this process: on one
// device or, where there are several, on the first and the last, so that packets cross the link.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/vm/verbs_end.h"

namespace furrow::vm {
namespace {

using ::testing::Each;

constexpr size_t kBytes = 64 << 10;  // many packets at every MTU
constexpr std::byte kUntouched{0xee};

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> names = DeviceNames();
    ASSERT_FALSE(names.empty()) << "there is no RDMA device";
    near_ = MakeEnd(names.front());
    far_ = MakeEnd(names.back());
    ASSERT_TRUE(near_ != nullptr && far_ != nullptr);
    for (size_t i = 0; i < kBytes; ++i) {
      near_->memory()[i] = kUntouched;
      far_->memory()[i] = static_cast<std::byte>(i * 7 + 3);
    }
  }

  static std::unique_ptr<VerbsEnd> MakeEnd(const std::string& device) {
    absl::StatusOr<std::unique_ptr<VerbsEnd>> end = VerbsEnd::Make(device, kBytes);
    EXPECT_TRUE(end.ok()) << end.status();
    return end.ok() ? *std::move(end) : nullptr;
  }

  void Connect() {
    for (const absl::Status& made : {near_->ConnectTo(*far_), far_->ConnectTo(*near_)})
      ASSERT_TRUE(made.ok()) << made;
  }

  // Posts at the near end, waits for the end of it.
  int StatusOf(VerbsEnd::Verb verb, VerbsEnd::Place remote) {
    absl::Status posted = near_->Post(verb, 7, 0, kBytes, remote);
    EXPECT_TRUE(posted.ok()) << posted;
    absl::StatusOr<Ended> ended = near_->Poll();
    EXPECT_TRUE(ended.ok()) << ended.status();
    if (!ended.ok()) return -1;
    EXPECT_EQ(ended->id, 7u);
    return ended->status;
  }

  bool Same() { return std::equal(near_->memory().begin(), near_->memory().end(), far_->memory().begin()); }

  std::unique_ptr<VerbsEnd> near_;
  std::unique_ptr<VerbsEnd> far_;
};

TEST_F(DeviceTest, SaysWhatItCanDo) {
  std::printf("note: %s\n", near_->Abilities().c_str());
  if (DeviceNames().size() > 1) std::printf("note: %s\n", far_->Abilities().c_str());
}

TEST_F(DeviceTest, ReadBringsThePeersBytes) {
  Connect();
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kRead, far_->place()), IBV_WC_SUCCESS);
  EXPECT_TRUE(Same());
  EXPECT_EQ(near_->memory()[1], std::byte{10});
}

TEST_F(DeviceTest, WriteReplacesThePeersBytes) {
  Connect();
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kWrite, far_->place()), IBV_WC_SUCCESS);
  EXPECT_THAT(far_->memory(), Each(kUntouched));
}

TEST_F(DeviceTest, WriteWithImmediateCompletesAtBothEnds) {
  Connect();
  ASSERT_TRUE(far_->PostReceive(11).ok());
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kWriteWithImmediate, far_->place()), IBV_WC_SUCCESS);
  absl::StatusOr<Ended> seen = far_->Poll();
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->status, IBV_WC_SUCCESS);
  EXPECT_EQ(seen->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(seen->id, 11u);
  EXPECT_EQ(seen->immediate, 7u);
  EXPECT_EQ(seen->bytes, kBytes);
  EXPECT_TRUE(Same());
}

TEST_F(DeviceTest, ChannelWakesWhoSleeps) {
  Connect();
  ASSERT_TRUE(far_->PostReceive(12).ok());
  ASSERT_TRUE(far_->Arm().ok());
  ASSERT_TRUE(near_->Post(VerbsEnd::Verb::kWriteWithImmediate, 3, 0, 8, far_->place()).ok());
  absl::Status woken = far_->Sleep();
  ASSERT_TRUE(woken.ok()) << woken;
  absl::StatusOr<Ended> seen = far_->Poll();
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->id, 12u);
}

TEST_F(DeviceTest, WrongKeyChangesNothingAndBreaksThePair) {
  Connect();
  VerbsEnd::Place wrong = far_->place();
  wrong.key ^= 0x5a5a00;
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kRead, wrong), IBV_WC_REM_ACCESS_ERR);
  EXPECT_THAT(near_->memory(), Each(kUntouched));
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kRead, far_->place()), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(DeviceTest, BytesBehindTheRegionAreRefused) {
  Connect();
  VerbsEnd::Place behind = far_->place();
  behind.address += 8;
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kWrite, behind), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(far_->memory()[8], static_cast<std::byte>(8 * 7 + 3));
}

TEST_F(DeviceTest, SilenceOfThePeerEndsInAnError) {
  absl::Status made = near_->ConnectToNobodyAt(*far_);
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_EQ(StatusOf(VerbsEnd::Verb::kRead, far_->place()), IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace furrow::vm
