#include "rdma/verbs/verbs_memory.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "rdma/verbs/verbs_device.h"
#include "rdma/verbs/verbs_errors.h"

namespace furrow::rdma {
namespace {

uint64_t MemlockLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

bool MayExceedMemlock() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_IPC_LOCK / 32].effective & (uint32_t{1} << (CAP_IPC_LOCK % 32))) != 0;
}

bool Before(const KeyRange& a, const KeyRange& b) { return a.begin < b.begin; }

}  // namespace

VerbsMemory::~VerbsMemory() { FURROW_DCHECK(ranges_.empty()); }

absl::StatusOr<ibv_mr*> VerbsMemory::Add(std::span<std::byte> bytes, Access access) {
  int rights = IBV_ACCESS_LOCAL_WRITE;
  if (access == Access::kRead || access == Access::kReadWrite) rights |= IBV_ACCESS_REMOTE_READ;
  if (access == Access::kWrite || access == Access::kReadWrite) rights |= IBV_ACCESS_REMOTE_WRITE;
  // iWARP's answer to a READ is a WRITE of the peer's device for cards, and this memory is for nothing else.
  if (access == Access::kNone && device_.iwarp() && !device_.software()) rights |= IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* registration = ibv_reg_mr(device_.domain(), bytes.data(), bytes.size(), rights);
  const int error = errno;
  MutexLock lock(&mutex_);
  if (registration == nullptr) {
    return RegistrationRefused(error, {.bytes = bytes.size(),
                                       .registered_bytes = bytes_,
                                       .registrations = ranges_.size(),
                                       .max_registrations = device_.limits().registrations,
                                       .max_bytes = device_.limits().registration_bytes,
                                       .memlock_limit = MemlockLimit(),
                                       .may_exceed_memlock = MayExceedMemlock()});
  }
  const KeyRange range{bytes.data(), bytes.data() + bytes.size(), registration->lkey};
  ranges_.insert(std::upper_bound(ranges_.begin(), ranges_.end(), range, Before), range);
  bytes_ += bytes.size();
  version_.fetch_add(1, std::memory_order_acq_rel);
  return registration;
}

void VerbsMemory::Remove(ibv_mr* registration) {
  {
    MutexLock lock(&mutex_);
    auto it = std::find_if(ranges_.begin(), ranges_.end(),
                           [&](const KeyRange& range) { return range.key == registration->lkey; });
    FURROW_CHECK(it != ranges_.end());
    bytes_ -= static_cast<size_t>(it->end - it->begin);
    ranges_.erase(it);
    version_.fetch_add(1, std::memory_order_acq_rel);
  }
  // Blocks until the device uses it no more.
  if (int error = ibv_dereg_mr(registration); error != 0) {
    FURROW_LOG(ERROR) << "memory stays registered: " << CallFailed("ibv_dereg_mr", error).message();
  }
}

RemoteAddress VerbsMemory::AddressOf(const ibv_mr* registration) {
  return {reinterpret_cast<uint64_t>(registration->addr), RemoteKey(registration->rkey)};
}

uint32_t VerbsMemory::LocalKey(const ibv_mr* registration) { return registration->lkey; }

std::vector<KeyRange> VerbsMemory::ranges() const {
  MutexLock lock(&mutex_);
  return ranges_;
}

size_t VerbsMemory::count() const {
  MutexLock lock(&mutex_);
  return ranges_.size();
}

const KeyRange* LocalKeys::FindSlowly(std::span<const std::byte> bytes) {
  if (const uint64_t version = memory_->version(); version != version_) {
    ranges_ = memory_->ranges();
    version_ = version;
    last_ = KeyRange();
  }
  auto it = std::upper_bound(ranges_.begin(), ranges_.end(), KeyRange{bytes.data(), nullptr, 0}, Before);
  // The same memory may be registered more than once, in pieces of different sizes.
  while (it != ranges_.begin()) {
    --it;
    if (bytes.data() < it->end && bytes.size() <= static_cast<size_t>(it->end - bytes.data())) {
      last_ = *it;
      return &last_;
    }
  }
  return nullptr;
}

}  // namespace furrow::rdma
