// ClockFailover: how cluster time outlives its master (FaRMv2 section 4.1, "fast-forward"), at the new
// manager. A plain state machine over what the members report:
//
//   new manager                                        every member
//     Disable() its clock
//     NEW-CONFIG ------------------------------------>  Disable(), and with the acknowledgement what that
//     returns
//     <---------------------------- acknowledged: FF --
//     all have, and no evicted member can have a lease (Initiator): NEW-CONFIG-COMMIT
//     FF := the greatest of all
//     ADVANCE: FF ----------------------------------->  FastForward(FF): it outlives this manager, too
//     <---------------------------------- advanced ---
//     all have: RestartMaster(): time goes on at FF
//     answers beats, with samples or its origin ----->  RestartShared() or RestartSampled()
//
// Nobody has seen a time above FF: who acknowledged had disabled its clock before it reported, and who was
// evicted has no lease, so that what it sees is used by nobody. Nobody will see a time below: a member that
// becomes manager next has FF from ADVANCE. With a manager that stays nothing of this is done.
// Not thread-safe.
#ifndef FURROW_CLUSTER_CLOCK_FAILOVER_H_
#define FURROW_CLUSTER_CLOCK_FAILOVER_H_

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "base/ids.h"

namespace furrow::cluster {

class ClockFailover {
 public:
  enum class State { kIdle, kReporting, kAdvancing };

  // A configuration with this member as its new manager is announced to `members`, this one included. What
  // was reported for an earlier one still counts.
  void Begin(ConfigId config, std::span<const NodeId> members) {
    config_ = config;
    members_ = {members.begin(), members.end()};
    waiting_ = members_;
    state_ = State::kReporting;
  }
  // A member has acknowledged NEW-CONFIG; its clock is disabled and has said nothing above `fast_forward`.
  void Reported(NodeId node, ConfigId config, Timestamp fast_forward) {
    if (state_ != State::kReporting || config != config_ || waiting_.erase(node) == 0) return;
    fast_forward_ = std::max(fast_forward_, fast_forward);
  }
  // NEW-CONFIG-COMMIT has been decided. The time for ADVANCE, to every member; null: not all have reported,
  // and the commit is another configuration's.
  std::optional<Timestamp> Committed(ConfigId config) {
    if (state_ != State::kReporting || config != config_ || !waiting_.empty()) return std::nullopt;
    waiting_ = members_;
    state_ = State::kAdvancing;
    return fast_forward_;
  }
  // A member, perhaps this one, has advanced. True once: all have, and the clock may go on.
  bool Advanced(NodeId node, ConfigId config) {
    if (state_ != State::kAdvancing || config != config_ || waiting_.erase(node) == 0) return false;
    if (!waiting_.empty()) return false;
    state_ = State::kIdle;
    return true;
  }
  State state() const { return state_; }

 private:
  State state_ = State::kIdle;
  ConfigId config_;
  std::set<NodeId> members_;
  std::set<NodeId> waiting_;
  Timestamp fast_forward_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_CLOCK_FAILOVER_H_
