// The furrow executable.
#include <cstdio>
#include <string>
#include <vector>

#include "base/strings.h"
#include "node/commands.h"

namespace furrow::node {
namespace {

constexpr char kVersion[] = "0.1.0";
constexpr char kHelp[] =
    "furrow: a distributed transactional in-memory database\n"
    "\n"
    "  furrow node      run a storage member of a cluster\n"
    "  furrow status    show a cluster's members, regions, memory and transaction rates\n"
    "  furrow doctor    say whether this host is ready for the nodes that are planned for it\n"
    "  furrow version   print the version\n"
    "\n"
    "\"furrow COMMAND --help\" lists the flags of a command. deploy/local-cluster runs a whole cluster on "
    "this host.\n";

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  const std::string& command = arguments[0];
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (command == "node") return RunNode(rest);
  if (command == "status") return RunStatus(rest);
  if (command == "doctor") return RunDoctor(rest);
  const bool version = command == "version" || command == "--version";
  const bool help = command == "help" || command == "--help" || command == "-h";
  if ((version || help) && !rest.empty()) {
    std::fprintf(stderr, "furrow %s: takes no argument \"%s\"\n", command.c_str(), rest[0].c_str());
    return 2;
  }
  if (version) {
    std::printf("furrow %s\n", kVersion);
    return 0;
  }
  if (help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  std::fprintf(stderr, "furrow: there is no command \"%s\": \"furrow help\" lists them\n", command.c_str());
  return 2;
}

}  // namespace

}  // namespace furrow::node

int main(int argc, char** argv) {
  return furrow::node::Main(std::vector<std::string>(argv + 1, argv + argc));
}
