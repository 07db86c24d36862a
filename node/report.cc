#include <cstdio>
#include <string>

#include "node/commands.h"

namespace furrow::node {

int Report(const char* command, const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsOutOfRange(status)) {
    std::fputs(message.c_str(), stdout);
    return 0;
  }
  std::fprintf(stderr, "furrow %s: %s\n", command, message.c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace furrow::node
