#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "node/doctor/gather.h"

namespace furrow::node {
namespace {

std::string FileSystemName(uint64_t magic) {
  constexpr struct {
    uint64_t magic;
    const char* name;
  } kNames[] = {{0xef53, "ext4"},        {0x58465342, "xfs"},       {0x9123683e, "btrfs"},
                {0x01021994, "tmpfs"},   {0x958458f6, "hugetlbfs"}, {0x6969, "nfs"},
                {0x794c7630, "overlay"}, {0x01021997, "9p"},        {0x2fc12fc1, "zfs"},
                {0xf2f52010, "f2fs"},    {0x65735546, "fuse"},      {0xff534d42, "cifs"},
                {0xfe534d42, "smb2"},    {0x858458f6, "ramfs"}};
  for (const auto& entry : kNames) {
    if (entry.magic == magic) return entry.name;
  }
  return absl::StrCat("type 0x", absl::Hex(magic));
}

PlaceFacts TryPlace(const std::string& path) {
  PlaceFacts place;
  place.path = path;
  struct statfs info;
  if (statfs(path.c_str(), &info) != 0) {
    place.problem = strerror(errno);
    return place;
  }
  place.file_system = FileSystemName(static_cast<uint64_t>(info.f_type) & 0xffffffff);
  place.bytes = static_cast<uint64_t>(info.f_blocks) * static_cast<uint64_t>(info.f_bsize);
  place.free_bytes = static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
  std::string name = path + "/furrow-doctor-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    place.problem = absl::StrCat("cannot make a file in it: ", strerror(errno));
    return place;
  }
  close(fd);
  const int direct = open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  place.direct_io = direct >= 0;
  if (direct >= 0) close(direct);
  unlink(name.c_str());
  return place;
}

ListenFacts TryListen(const Plan& plan) {
  ListenFacts listen{plan.listen, ""};
  const size_t colon = plan.listen.rfind(':');
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const int error = getaddrinfo(plan.Host().c_str(), plan.listen.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    listen.problem = gai_strerror(error);
    return listen;
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;  // as a server does: what a closed connection has left is no obstacle
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, 1) != 0) {
    listen.problem = strerror(errno);
  }
  if (fd >= 0) close(fd);
  return listen;
}

}  // namespace

void TryPlaces(const Plan& plan, HostFacts* facts) {
  if (!plan.directory.empty()) facts->state = TryPlace(plan.directory);
  facts->memory_directory = TryPlace(plan.memory_directory);
  facts->listen.push_back(TryListen(plan));
}

}  // namespace furrow::node
