#include "node/doctor/report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/doctor/doctor_test_util.h"

namespace furrow::node {
namespace {

using ::testing::HasSubstr;

const std::vector<Finding> kFindings = {{Level::kOk, "host.clock", "time comes from tsc", ""},
                                        {Level::kWarning, "rdma.mtu", "it is \"small\"", "make it\nlarger"}};

TEST(DoctorReportTest, EveryFindingIsALineAndAdviceFollowsIt) {
  const std::string text = ReportText(HostSubject(GoodHost(), PlanOfThreeHosts()), kFindings);
  EXPECT_THAT(text, HasSubstr("db1, kernel 6.1.0: 1 node of 3 here, over verbs since"));
  EXPECT_THAT(text, HasSubstr("ok       host.clock         time comes from tsc\n"));
  EXPECT_THAT(text, HasSubstr("warning  rdma.mtu           it is \"small\"\n"));
  EXPECT_THAT(text, HasSubstr("-> make it"));
  EXPECT_THAT(text, HasSubstr("0 errors, 1 warning\n"));
}

TEST(DoctorReportTest, JsonEscapesWhatItQuotes) {
  const std::string json = ReportJson(HostSubject(GoodHost(), PlanOfThreeHosts()), kFindings);
  EXPECT_THAT(
      json,
      HasSubstr("\"fabric\": \"verbs\", \"nodes\": 3, \"nodes_here\": 1, \"errors\": 0, \"warnings\": 1"));
  EXPECT_THAT(json, HasSubstr(R"({"level": "warning", "check": "rdma.mtu", "found": "it is \"small\"", )"
                              R"("advice": "make it\u000alarger"})"));
}

TEST(DoctorReportTest, OnlyErrorsFail) {
  EXPECT_EQ(ExitCode(kFindings), 0);
  EXPECT_EQ(ExitCode({{Level::kError, "host.listen", "taken", "another"}}), 1);
}

}  // namespace
}  // namespace furrow::node
