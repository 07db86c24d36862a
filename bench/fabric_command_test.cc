// furrow-bench fabric as users start it, over shm. (Over verbs: tests/vm/suites/bench.sh.)
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/child_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kShort[] = " --sizes 8,4096 --round-trips 100 --probes 10 --memory-mb 4 --milliseconds 1";

class FabricCommandTest : public ::testing::Test {
 protected:
  FabricCommandTest() {
    char directory[] = "/tmp/furrow-fabric-XXXXXX";
    directory_ = ::mkdtemp(directory);
  }
  ~FabricCommandTest() override { std::filesystem::remove_all(directory_); }

  // Runs it; output and errors go to output_. The exit code.
  int Run(const std::string& arguments) {
    const std::string command =
        "TMPDIR=" + directory_ + " " FURROW_BENCH_BINARY " fabric " + arguments + " 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    output_.clear();
    char chunk[4096];
    for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), pipe)) > 0;) output_.append(chunk, n);
    const int status = ::pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string directory_;
  std::string output_;
};

TEST_F(FabricCommandTest, MeasuresEveryCaseAndLeavesNothing) {
  const std::string json = directory_ + "/result.json";
  // Few operations: where a busy host gives both polling sides one processor, each takes milliseconds.
  ASSERT_EQ(Run(std::string(kShort) + " --json " + json), 0) << output_;
  for (const char* name : {"read-latency", "write-latency", "notify-latency"}) {
    for (const char* size : {"8", "4096"}) {
      EXPECT_THAT(output_, ContainsRegex(std::string("\n") + name + " +" + size + " +[0-9.]+ +[0-9.]+ "))
          << name;
    }
  }
  for (const char* name : {"read-rate", "write-rate"}) {
    EXPECT_THAT(output_, ContainsRegex(std::string("\n") + name + " +4096 +[1-9][0-9]* +[0-9.]+\n")) << name;
  }
  EXPECT_THAT(output_, ContainsRegex("\nurgent +0.0 +[0-9.]+ "));
  EXPECT_THAT(output_, ContainsRegex("\nurgent +[0-9]*[1-9][0-9]*.[0-9] +[0-9.]+ "));
  EXPECT_THAT(output_, ContainsRegex("\nthe load's own +[0-9]*[1-9][0-9]*.[0-9] +[0-9.]+ "));
  EXPECT_THAT(output_, ContainsRegex("\n +8192 both park +[0-9.]+ "));
  std::stringstream text;
  text << std::ifstream(json).rdbuf();
  for (const char* key : {"\"provider\": \"shm\"", "copies_ns", "ring_round_trips_ns", "latencies_ns",
                          "rates", "urgent_ns", "\"p99_9\""}) {
    EXPECT_THAT(text.str(), HasSubstr(key));
  }
  EXPECT_THAT(text.str(), Not(HasSubstr("null")));
  std::filesystem::remove(json);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(FabricCommandTest, MeasuresAgainstASideStartedByHandOneAfterTheOther) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> server =
      ChildProcess::Start(FURROW_BENCH_BINARY, {"fabric", "--serve", directory_ + "/peer"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string endpoint = (*server)->ReadLine();
  EXPECT_EQ(endpoint, directory_ + "/peer");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Run("--peer " + endpoint + " --measure read-latency,notify-latency" + kShort), 0) << output_;
    EXPECT_THAT(output_, ContainsRegex("\nnotify-latency +8 "));
  }
  (*server)->Kill();
  EXPECT_EQ(Run("--peer " + endpoint + " --measure read-latency" + kShort), 1);
  EXPECT_THAT(output_, HasSubstr("furrow-bench fabric: "));
}

TEST_F(FabricCommandTest, WrongFlagsAreOneSentenceThatSaysWhatToDo) {
  struct Case {
    const char* arguments;
    const char* says;
  };
  const Case cases[] = {
      {"--fabric sim", "--fabric sim: shm or verbs"},
      {"--fabric verbs", "needs --address and --peer-address"},
      {"--measure reads", "--measure reads: there are copies,rings,read-latency"},
      {"--sizes 8,x", "--sizes 8,x: numbers of bytes from 1 to 65536"},
      {"--sizes 65537", "from 1 to 65536"},
      {"--batch 256", "--batch 256 is more than --depth 128"},
      {"--serve /x --peer /y", "give one of them"},
      {"--peer 10.0.0.1:5", "needs --address of this host's RDMA device"},
      {"--peer /x --measure rings", "--measure rings starts its other side itself"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Run(c.arguments), 2) << c.arguments << ": " << output_;
    EXPECT_THAT(output_, HasSubstr(c.says)) << c.arguments;
  }
}

}  // namespace
}  // namespace furrow::bench
