#include "node/flags.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::node {
namespace {

using ::testing::HasSubstr;

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() : flags_("furrow test", "tests") {
    flags_.Text("dir", "DIR", &dir_, "a directory");
    flags_.Switch("huge", &huge_, "a switch");
    flags_.Number("id", "N", &id_, "a number");
    flags_.Size("memory", &memory_, "a size");
    flags_.Duration("offset", &offset_, "a time");
  }
  std::string Message(const std::vector<std::string>& arguments) {
    return std::string(flags_.Parse(arguments).message());
  }
  std::string dir_;
  bool huge_ = false;
  uint64_t id_ = 0;
  uint64_t memory_ = 0;
  Nanos offset_ = 0;
  Flags flags_;
};

TEST_F(FlagsTest, TakesBothForms) {
  ASSERT_TRUE(flags_.Parse({"--dir", "/a", "--id=7", "--huge", "--memory", "8G", "--offset=-5us"}).ok());
  EXPECT_EQ(dir_, "/a");
  EXPECT_EQ(id_, 7u);
  EXPECT_TRUE(huge_);
  EXPECT_EQ(memory_, uint64_t{8} << 30);
  EXPECT_EQ(offset_, -5000);
}

TEST_F(FlagsTest, WrongFlagsAreOneSentence) {
  EXPECT_THAT(Message({"--nonsense", "1"}), HasSubstr("there is no flag --nonsense"));
  EXPECT_THAT(Message({"up"}), HasSubstr("is no flag"));
  EXPECT_THAT(Message({"--id"}), HasSubstr("needs a value"));
  EXPECT_THAT(Message({"--id", "x"}), HasSubstr("no whole number"));
  EXPECT_THAT(Message({"--memory", "lots"}), HasSubstr("is no size"));
  EXPECT_THAT(Message({"--memory", "99999999999T"}), HasSubstr("is no size"));
  EXPECT_THAT(Message({"--offset", "5"}), HasSubstr("is no time"));
  EXPECT_THAT(Message({"--huge=maybe"}), HasSubstr("neither true nor false"));
}

TEST_F(FlagsTest, FileIsOverriddenByTheCommandLine) {
  char name[] = "/tmp/furrow-flags-XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << "# comment\nid = 3   # more\nmemory=64M\nhuge\n";
  ASSERT_TRUE(flags_.Parse({"--id", "4", "--config", name}).ok());
  EXPECT_EQ(id_, 4u);
  EXPECT_EQ(memory_, uint64_t{64} << 20);
  EXPECT_TRUE(huge_);
  std::ofstream(name) << "id = 3\nidd = 4\n";
  EXPECT_THAT(Message({"--config", name}), HasSubstr("line 2"));
  unlink(name);
  EXPECT_THAT(Message({"--config", name}), HasSubstr("cannot read"));
}

TEST_F(FlagsTest, HelpListsAllFlags) {
  absl::Status help = flags_.Parse({"--help"});
  EXPECT_TRUE(absl::IsOutOfRange(help));
  EXPECT_THAT(std::string(help.message()), HasSubstr("--memory SIZE"));
}

}  // namespace
}  // namespace furrow::node
