#include "base/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>

#include "absl/strings/str_cat.h"

namespace furrow {

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckDescriptors(uint64_t needed) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  uint64_t used = limit.rlim_cur;
  if (DIR* open = opendir("/proc/self/fd"); open != nullptr) {
    used = 0;
    while (const dirent* entry = readdir(open)) used += entry->d_name[0] != '.' ? 1 : 0;
    closedir(open);
    --used;  // that of the directory
  } else if (errno != EMFILE) {
    return absl::OkStatus();
  }
  if (used + needed <= limit.rlim_cur) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "this process may have ", limit.rlim_cur, " descriptors, has ", used, ", and needs ", needed,
      " more to begin with: raise the limit to ", used + needed, " or more (ulimit -n)"));
}

}  // namespace furrow
