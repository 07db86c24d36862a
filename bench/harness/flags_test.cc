#include "bench/harness/flags.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::bench {
namespace {

using ::testing::HasSubstr;

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    flags_.AddSwitch("check", &check_, "verify");
    flags_.AddNumber("seconds", &seconds_, 1, 100, "how long");
    flags_.AddText("json", &json_, "where to");
    flags_.AddText("secret", &secret_, "for tests");
    flags_.Hide("secret");
  }
  absl::Status Parse(std::vector<std::string_view> arguments) { return flags_.Parse(arguments); }

  bool check_ = false;
  uint64_t seconds_ = 10;
  std::string json_;
  std::string secret_;
  FlagSet flags_{"furrow-bench test [flags]"};
};

TEST_F(FlagsTest, TakesBothForms) {
  ASSERT_TRUE(Parse({"--seconds", "7", "--json=a=b", "--check"}).ok());
  EXPECT_EQ(seconds_, 7u);
  EXPECT_EQ(json_, "a=b");
  EXPECT_TRUE(check_);
}

TEST_F(FlagsTest, DefaultsStay) {
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(seconds_, 10u);
  EXPECT_FALSE(check_);
}

TEST_F(FlagsTest, EachMistakeIsOneSentenceThatSaysWhatToDo) {
  EXPECT_THAT(Parse({"--second", "7"}).ToString(),
              HasSubstr("unknown flag --second; --help lists the flags"));
  EXPECT_THAT(Parse({"--seconds"}).ToString(), HasSubstr("--seconds needs a value"));
  EXPECT_THAT(Parse({"--seconds", "0"}).ToString(), HasSubstr("from 1 to 100, not '0'"));
  EXPECT_THAT(Parse({"--seconds", "1x"}).ToString(), HasSubstr("not '1x'"));
  EXPECT_THAT(Parse({"--check=yes"}).ToString(), HasSubstr("write it without a value"));
  EXPECT_THAT(Parse({"seconds"}).ToString(), HasSubstr("unexpected argument 'seconds'"));
}

TEST_F(FlagsTest, HelpListsWhatIsNotHidden) {
  ASSERT_TRUE(Parse({"--help"}).ok());
  EXPECT_TRUE(flags_.help_asked());
  EXPECT_THAT(flags_.Help(), HasSubstr("--seconds N"));
  EXPECT_THAT(flags_.Help(), HasSubstr("(default 10)"));
  EXPECT_THAT(flags_.Help(), ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace furrow::bench
