#include "bench/harness/member_host.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace furrow::bench {
namespace {

constexpr RegionId kFirstRegion{1};

// Runs a task on a worker and waits for it.
absl::Status RunOn(EventLoop& loop, const std::function<Task<absl::Status>()>& make) {
  absl::Status status;
  std::latch ended(1);
  struct Waiting {
    static Task<void> For(const std::function<Task<absl::Status>()>& task, absl::Status* result,
                          std::latch* done) {
      *result = co_await task();
      done->count_down();
    }
  };
  loop.Post([&] { loop.Spawn(Waiting::For(make, &status, &ended)); });
  ended.wait();
  return status;
}

}  // namespace

absl::StatusOr<uint64_t> DefaultMemoryBytes(uint64_t processes) {
  struct statvfs shm = {};
  if (::statvfs("/dev/shm", &shm) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot look at /dev/shm: ", std::strerror(errno)));
  }
  uint64_t free_bytes = uint64_t{shm.f_bavail} * shm.f_frsize;
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::string unit;
  uint64_t kb = 0;
  while (meminfo >> name >> kb && std::getline(meminfo, unit)) {
    if (name == "MemAvailable:") free_bytes = std::min(free_bytes, kb * 1024);
  }
  return free_bytes / 10 * 8 / processes;
}

absl::StatusOr<std::unique_ptr<MemberHost>> MemberHost::Start(const CommonFlags& flags) {
  client::MemberOptions options;
  options.workers = static_cast<uint16_t>(flags.workers);
  options.huge_pages = flags.huge_pages;
  options.fabric = flags.fabric;
  const std::vector<std::string> addresses = absl::StrSplit(flags.addresses, ',');
  options.listen = addresses[flags.agent_index % addresses.size()] + ":0";
  if (flags.symmetric) {
    options.storage = true;
    options.id = static_cast<uint32_t>(flags.agent_index + 1);
    options.replicas = static_cast<uint32_t>(flags.replicas);
    options.socket_directory = flags.dir;
    options.directory = absl::StrCat(flags.dir, "/n", options.id);
    std::error_code error;
    if (!std::filesystem::create_directories(options.directory, error) && error) {
      return absl::UnavailableError(
          absl::StrCat("cannot make the directory ", options.directory, ": ", error.message()));
    }
    options.memory_bytes = flags.memory_mb << 20;
    options.region_bytes = flags.region_mb << 20;
    if (flags.agent_index == 0) {
      options.cluster_directory = flags.dir;
    } else {
      options.cluster = flags.dir;
    }
  } else {
    options.cluster = flags.cluster;
    options.secret_file = flags.secret_file;
  }
  auto host = std::unique_ptr<MemberHost>(new MemberHost());
  FURROW_ASSIGN_OR_RETURN(host->member_, client::Member::Start(std::move(options)));
  host->catalog_ = std::make_unique<index::Catalog>();
  return host;
}

MemberHost::~MemberHost() {
  if (member_ == nullptr) return;
  if (absl::Status stopped = member_->Stop(); !stopped.ok()) {
    FURROW_LOG(WARNING) << "leaving the cluster: " << stopped;
  }
}

Task<absl::StatusOr<std::vector<const cluster::RegionMapping*>>> MemberHost::Regions(txn::Worker& worker) {
  // Ids ascend from the first region's; gaps are left only by allocations that failed.
  constexpr uint32_t kMaxGap = 32;
  cluster::RegionDirectory& directory = worker.node().directory;
  uint32_t last = kFirstRegion.value();
  for (const cluster::RegionMapping* mapping : directory.All()) last = std::max(last, mapping->id.value());
  for (uint32_t id = kFirstRegion.value(); id <= last + kMaxGap; ++id) {
    if (directory.Find(RegionId(id)) != nullptr) continue;
    auto mapping = co_await worker.node().control->LookupRegion(RegionId(id));
    if (mapping.ok()) {
      last = std::max(last, id);
    } else if (!absl::IsNotFound(mapping.status())) {
      co_return mapping.status();
    }
  }
  co_return directory.All();
}

absl::StatusOr<std::string> MemberHost::ReadyLine(const CommonFlags& flags) {
  // The first region of a cluster is made when it has as many members as replicas.
  size_t replicas = flags.replicas;
  if (!flags.symmetric) {
    FURROW_RETURN_IF_ERROR(RunOn(member_->loop(0), [&]() -> Task<absl::Status> {
      FURROW_CO_ASSIGN_OR_RETURN(const cluster::RegionMapping* first,
                                 co_await member_->worker(0).node().control->LookupRegion(kFirstRegion));
      replicas = first->replicas.size();
      co_return absl::OkStatus();
    }));
  }
  size_t nodes = flags.symmetric ? flags.nodes : 0;
  for (const cluster::Member& member : member_->view()->members()) {
    if (!flags.symmetric && member.role == cluster::Role::kStorage) ++nodes;
  }
  return absl::StrCat("ready ", replicas, " ", nodes, " replicated ", member_->fabric());
}

bool MemberHost::HasHugePages() {
  const auto bytes = MemoryFile::HugePageBytesOfProcess();
  return bytes.ok() && *bytes > 0;
}

}  // namespace furrow::bench
