// What furrow's commands say of options: the flags that set them.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/commands.h"

namespace furrow::node {
namespace {

using client::WithOptionNames;

TEST(ReportTest, OptionsAreNamedByTheirFlags) {
  EXPECT_EQ(WithOptionNames("MemberOptions::workers must be from 1 to 256, not 0", FlagsOf("node")),
            "--workers must be from 1 to 256, not 0");
  EXPECT_EQ(WithOptionNames("MemberOptions::cluster_directory, MemberOptions::cluster", FlagsOf("node")),
            "--cluster-dir, --join");
  EXPECT_EQ(WithOptionNames("see MemberOptions::cluster", FlagsOf("status")), "see --cluster");
  EXPECT_EQ(WithOptionNames("nothing of MemberOptions", FlagsOf("node")), "nothing of MemberOptions");
}

// Whatever option a message of the library names, `furrow node` has a flag for it.
TEST(ReportTest, EveryOptionThatAMessageNamesHasAFlag) {
  std::set<std::string> named;
  for (const char* folder : {"client", "cluster"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".cc") continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      const std::string all = text.str();
      const std::regex option("MemberOptions::([a-z_]+)");
      for (std::sregex_iterator i(all.begin(), all.end(), option), end; i != end; ++i) named.insert((*i)[1]);
    }
  }
  EXPECT_GT(named.size(), 10u);
  std::set<std::string> have;
  for (const auto& [member, flag] : FlagsOf("node")) have.insert(member);
  for (const std::string& member : named) EXPECT_TRUE(have.contains(member)) << member;
}

}  // namespace
}  // namespace furrow::node
