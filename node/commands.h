// The subcommands of `furrow`. Each gets the arguments after its name and returns the exit code: 0 all is
// well; 1 it failed, and one sentence on standard error says why and what to do; 2 it was called wrongly.
#ifndef FURROW_NODE_COMMANDS_H_
#define FURROW_NODE_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/member_options.h"

namespace furrow::node {

int RunNode(const std::vector<std::string>& arguments);
int RunStatus(const std::vector<std::string>& arguments);
int RunDoctor(const std::vector<std::string>& arguments);

// Prints "furrow COMMAND: sentence" to standard error, with flags for the options that the library names;
// returns 2 for InvalidArgument, 0 for OutOfRange (help, to standard output), else 1.
int Report(const char* command, const absl::Status& status);
// The flags of a command by the options that they set.
const client::OptionNames& FlagsOf(const std::string& command);

}  // namespace furrow::node

#endif  // FURROW_NODE_COMMANDS_H_
