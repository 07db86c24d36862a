// The subcommands of `furrow`. Each gets the arguments after its name and returns the exit code: 0 all is
// well; 1 it failed, and one sentence on standard error says why and what to do; 2 it was called wrongly.
#ifndef FURROW_NODE_COMMANDS_H_
#define FURROW_NODE_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace furrow::node {

int RunNode(const std::vector<std::string>& arguments);
int RunStatus(const std::vector<std::string>& arguments);

// Prints "furrow COMMAND: sentence" to standard error; returns 2 for InvalidArgument, 0 for OutOfRange (help,
// to standard output), else 1.
int Report(const char* command, const absl::Status& status);

}  // namespace furrow::node

#endif  // FURROW_NODE_COMMANDS_H_
