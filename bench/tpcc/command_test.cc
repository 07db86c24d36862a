// furrow-bench tpcc as users start it: real processes, exit codes, sentences.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace furrow::bench::tpcc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A tenth of a second of work in three processes.
constexpr char kSmall[] = "--symmetric --warehouses 3 --scale 1 --memory 320 --region-size 8 --warmup 0";

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    char directory[] = "/tmp/furrow-command-XXXXXX";
    directory_ = ::mkdtemp(directory);
  }
  ~CommandTest() override { std::filesystem::remove_all(directory_); }

  // Runs it; output and errors go to output_. The exit code.
  int Run(const std::string& arguments) {
    const std::string command =
        "XDG_RUNTIME_DIR=" + directory_ + " " FURROW_BENCH_BINARY " " + arguments + " 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    output_.clear();
    char chunk[4096];
    for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), pipe)) > 0;) output_.append(chunk, n);
    const int status = ::pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string ReadFile(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string directory_;
  std::string output_;
};

TEST_F(CommandTest, SymmetricRunPassesItsChecksAndLeavesNothing) {
  const std::string json = directory_ + "/result.json";
  ASSERT_EQ(Run(std::string("tpcc ") + kSmall + " --seconds 1 --check --json " + json), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("consistency: 50 of 50 checks pass"));
  EXPECT_THAT(output_, HasSubstr("new_orders_per_second: "));
  EXPECT_THAT(output_, HasSubstr("3 nodes, 3 replicas, 1 worker per process, 2 terminals per worker"));
  EXPECT_THAT(output_, HasSubstr("a warehouse has 1 % of the customers, orders and items"));
  const std::string text = ReadFile(json);
  EXPECT_THAT(text, HasSubstr("\"scale_percent\": 1,"));
  EXPECT_THAT(text, HasSubstr("\"condition_11\": \"pass\""));
  EXPECT_THAT(text, HasSubstr("\"replicas\": \"pass\""));
  EXPECT_THAT(text, HasSubstr("\"mode\": \"symmetric\""));
  EXPECT_THAT(text, HasSubstr("\"nodes\": 3"));
  EXPECT_THAT(text, Not(HasSubstr("\"fail\"")));
  std::filesystem::remove(json);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(CommandTest, ACorruptRowFailsTheCheckAndTheExitCode) {
  EXPECT_EQ(Run(std::string("tpcc ") + kSmall + " --seconds 0 --check --corrupt"), 1) << output_;
  EXPECT_THAT(output_, HasSubstr("FAIL  replicas: region "));
  EXPECT_THAT(output_, HasSubstr("consistency checks failed"));
}

TEST_F(CommandTest, TooLittleMemoryIsOneSentence) {
  EXPECT_EQ(Run("tpcc --symmetric --warehouses 2 --nodes 1 --replicas 1 --memory 300 --seconds 1"), 1)
      << output_;
  EXPECT_THAT(output_, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(output_, HasSubstr("--memory"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(CommandTest, DataThatCannotFitIsRefusedBeforeTheLoad) {
  EXPECT_EQ(Run("tpcc --symmetric --warehouses 65535 --memory 400 --seconds 1"), 1) << output_;
  EXPECT_THAT(output_, HasSubstr("65,535 warehouses need at least 22.5 TB in all, with 3 copies"));
  EXPECT_THAT(output_, HasSubstr("enough for about 3 --warehouses"));
  EXPECT_THAT(output_, Not(HasSubstr("starting")));
}

TEST_F(CommandTest, WrongFlagsAreOneSentenceThatSaysWhatToDo) {
  struct Case {
    const char* arguments;
    const char* says;
    int code;
  };
  const Case cases[] = {
      {"", "usage: furrow-bench SUBCOMMAND", 2},
      {"tpcd", "there is no subcommand 'tpcd'", 2},
      {"tpcc", "say where to run: --cluster", 2},
      {"tpcc --symmetric --cluster x", "and not both", 2},
      {"tpcc --symmetric --no-load", "leave --no-load out", 2},
      {"tpcc --symmetric --reload", "--reload does not go with --symmetric", 2},
      {"tpcc --cluster x --no-load --reload", "--reload does not go with --no-load", 2},
      {"tpcc --symmetric --nodes 2 --replicas 3", "needs at least as many --nodes", 2},
      {"tpcc --symmetric --durability sync", "use --durability replicated", 2},
      {"tpcc --symmetric --warehouses 0", "--warehouses must be a whole number from 1", 2},
      {"tpcc --symmetric --scale 101", "--scale must be a whole number from 1 to 100", 2},
      {"tpcc --symmetric --warehouse 1", "unknown flag --warehouse", 2},
      {"tpcc --cluster /nonexistent --seconds 1", "/nonexistent", 1},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Run(c.arguments), c.code) << c.arguments << ": " << output_;
    EXPECT_THAT(output_, HasSubstr(c.says)) << c.arguments;
  }
}

TEST_F(CommandTest, HelpListsTheFlags) {
  EXPECT_EQ(Run("tpcc --help"), 0);
  for (const char* flag : {"--cluster", "--symmetric", "--seconds", "--workers", "--json", "--check",
                           "--no-load", "--warehouses", "--scale", "--rate"}) {
    EXPECT_THAT(output_, HasSubstr(flag));
  }
  EXPECT_THAT(output_, Not(HasSubstr("--agent-fd")));
}

}  // namespace
}  // namespace furrow::bench::tpcc
