// What the .cc files of Manager share: the scopes in which configuration and regions change, and the sending
// to many members.
#ifndef FURROW_CLUSTER_MANAGER_INTERNAL_H_
#define FURROW_CLUSTER_MANAGER_INTERNAL_H_

#include <latch>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cluster/manager.h"

namespace furrow::cluster {

// One change of configuration at a time, and none while regions are being allocated: those belong to one
// configuration.
class Manager::ChangeScope {
 public:
  explicit ChangeScope(Manager& manager) : manager_(manager) {
    MutexLock lock(&manager_.mutex_);
    while (manager_.changing_) manager_.progress_.Wait(&manager_.mutex_);
    manager_.changing_ = true;  // from here on no allocation begins
    while (manager_.allocations_ > 0) manager_.progress_.Wait(&manager_.mutex_);
  }
  ~ChangeScope() {
    MutexLock lock(&manager_.mutex_);
    manager_.changing_ = false;
    manager_.progress_.SignalAll();
  }

 private:
  Manager& manager_;
};

class Manager::AllocationScope {
 public:
  explicit AllocationScope(Manager& manager) : manager_(manager) {
    MutexLock lock(&manager_.mutex_);
    while (manager_.changing_) manager_.progress_.Wait(&manager_.mutex_);
    ++manager_.allocations_;
  }
  ~AllocationScope() {
    MutexLock lock(&manager_.mutex_);
    --manager_.allocations_;
    manager_.progress_.SignalAll();
  }

 private:
  Manager& manager_;
};

template <class Request, class Reply>
std::vector<absl::Status> Manager::SendAll(const std::vector<Member>& members,
                                           const std::vector<Request>& requests, std::vector<Reply>* replies,
                                           Nanos timeout_ns) {
  std::vector<absl::Status> results(members.size());
  replies->resize(members.size());
  std::latch left(static_cast<ptrdiff_t>(members.size()));
  size_t local = members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].id == options_.self) {
      local = i;  // last, while the others work
      continue;
    }
    client_.Start(members[i].control_address, requests[i], &(*replies)[i], timeout_ns,
                  [&results, &left, i](absl::Status s) {
                    results[i] = std::move(s);
                    left.count_down();
                  });
  }
  if (local < members.size()) {
    Reply& reply = (*replies)[local];
    const Request& request = requests[local];
    if constexpr (std::is_same_v<Request, pb::NewConfigRequest>)
      results[local] = local_.NewConfig(request, &reply);
    if constexpr (std::is_same_v<Request, pb::NewConfigCommitRequest>)
      results[local] = local_.NewConfigCommit(request, &reply);
    if constexpr (std::is_same_v<Request, pb::PrepareRegionRequest>)
      results[local] = local_.PrepareRegion(request, &reply);
    if constexpr (std::is_same_v<Request, pb::CommitRegionRequest>)
      results[local] = local_.CommitRegion(request, &reply);
    if constexpr (std::is_same_v<Request, pb::AbortRegionRequest>)
      results[local] = local_.AbortRegion(request, &reply);
    if constexpr (std::is_same_v<Request, pb::MemberStatusRequest>)
      results[local] = local_.MemberStatus(request, &reply);
    left.count_down();
  }
  left.wait();
  return results;
}

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_MANAGER_INTERNAL_H_
