// What the agent does when members that both live cannot reach each other's memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "cluster/agent.h"
#include "cluster/proto/cluster.pb.h"

namespace furrow::cluster {
namespace {

constexpr Nanos kTellTimeoutNs = 5 * kSecond;

}  // namespace

void Agent::OnDataLinkLost(NodeId peer) {
  Incarnation incarnation;
  {
    MutexLock lock(&mutex_);
    const Member* member = view_ == nullptr ? nullptr : view_->Find(peer);
    if (member == nullptr || stopped_ || data_link_told_) return;
    incarnation = member->incarnation;
  }
  // A peer that has crashed or hangs is the manager's to find, within a lease's time, and its reason is
  // better.
  loop_->Post([this, peer, incarnation] {
    loop_->CallAt(loop_->Now() + lease_ns_ * 3 / 2,
                  [this, peer, incarnation] { EndForDataLink(peer, incarnation); });
  });
}

void Agent::EndForDataLink(NodeId peer, Incarnation incarnation) {
  {
    MutexLock lock(&mutex_);
    const Member* member = view_ == nullptr ? nullptr : view_->Find(peer);
    if (member == nullptr || member->incarnation != incarnation) return;
    if (state_ != State::kMember || leaving_ || std::exchange(data_link_told_, true)) return;
  }
  std::string why =
      absl::StrCat("the data connection from node ", options_.self.id.value(), " to node ", peer.value(),
                   " has failed, though both are alive: transactions between them cannot end. The logs of "
                   "both nodes may say why; "
                   "start the cluster anew");
  FURROW_LOG(ERROR) << why;
  if (is_manager()) return End({false, std::move(why)});
  data_link_thread_ = Thread({.name = "data-link", .realtime_priority = 0, .cpu = {}}, [this, why] {
    pb::EndClusterRequest request;
    request.set_in_good_order(false);
    request.set_why(why);
    pb::EndClusterReply reply;
    const absl::Status told = client_.Call(control_plane_.manager(), request, &reply, kTellTimeoutNs);
    if (!told.ok()) End({false, why});
  });
}

}  // namespace furrow::cluster
