// LeaseBook: the leases between the manager and its members, as the manager sees them (SOSP'15 section 5.1).
// By a handshake of three messages each side holds a lease of the other:
//
//   member                                   manager
//     REQUEST: sent at s         ------------>
//                                <------------ GRANT of `term`, and COUNTER-REQUEST sent at c
//     GRANT: c                   ------------>
//
// The member's lease runs for `term` from s, by its clock (MemberLease); the manager's, as far as this member
// is concerned, for a lease from c, by the manager's clock. The manager has the right to serve for as long as
// more than half of the storage members, itself included, have granted it that; and what it grants ends with
// its own right. So all that a manager has granted, and its own right, is over a lease after the last of half
// of the storage members has turned away from it, whatever it itself knows of that. (Initiator, invariant 2.)
//
// A member that is admitted helps no other manager, and answers none of its messages, before this one has
// answered its first REQUEST: until that comes, its grant has no end.
//
// Times are those of the manager's clock. Allocates nothing but in Add(). Not thread-safe.
#ifndef FURROW_CLUSTER_LEASE_BOOK_H_
#define FURROW_CLUSTER_LEASE_BOOK_H_

#include <algorithm>
#include <array>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "cluster/configuration.h"
#include "cluster/member_lease.h"

namespace furrow::cluster {

class LeaseBook {
 public:
  static constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
  // `lease_ns`: how long a lease runs at most; all clocks keep to `drift_ppm`.
  LeaseBook(Nanos lease_ns, int64_t drift_ppm) : lease_ns_(lease_ns), drift_ppm_(drift_ppm) {}

  // One that this manager admits: before its configuration is announced. / One that was a member of another
  // manager's: it has granted this one nothing yet.
  void AddNew(NodeId node, Role role) { Add(node, role, kForever); }
  void AddKnown(NodeId node, Role role) { Add(node, role, kNothing); }
  // It has left, or was evicted and its lease is over.
  void Remove(NodeId node) { entries_.erase(node); }
  // It is suspected: it gets nothing any more.
  void Revoke(NodeId node) {
    if (auto it = entries_.find(node); it != entries_.end()) it->second.revoked = true;
  }

  // REQUEST, received `now`; `counter`: of the last COUNTER-REQUEST that the member has granted, 0: of none.
  // Returns the term of the GRANT; 0: it gets none, since it is no member, is suspected, or this manager has
  // lost its right.
  Nanos OnRequest(NodeId node, Nanos now, Nanos counter) {
    auto it = entries_.find(node);
    if (it == entries_.end()) return 0;
    Entry& entry = it->second;
    if (entry.held_until == kForever) entry.held_until = now + TermOf(lease_ns_, drift_ppm_);
    if (counter > 0 && counter <= now) {
      entry.held_until = std::max(entry.held_until, counter + TermOf(lease_ns_, drift_ppm_));
    }
    const Nanos right = this->right();
    if (entry.revoked || right <= now) return 0;
    const Nanos term = right == kForever ? lease_ns_ : std::min(lease_ns_, right - now);
    entry.granted_until = std::max(entry.granted_until, now + term);
    return term;
  }

  // The end of this manager's right to serve; kForever: there is no other storage member.
  Nanos right() const {
    std::array<Nanos, kMaxMembers> held;
    size_t others = 0;
    for (const auto& [node, entry] : entries_) {
      if (entry.role == Role::kStorage && others < held.size()) held[others++] = entry.held_until;
    }
    // More than half of all, of which this one is one.
    const size_t needed = (others + 1) / 2;
    if (needed == 0) return kForever;
    std::nth_element(held.begin(), held.begin() + needed - 1, held.begin() + others, std::greater<>());
    return held[needed - 1];
  }
  // What the member holds is over by then.
  Nanos lease_end(NodeId node) const {
    auto it = entries_.find(node);
    return it == entries_.end() ? kNothing : it->second.granted_until;
  }

 private:
  static constexpr Nanos kNothing = std::numeric_limits<Nanos>::min();
  struct Entry {
    Role role;
    Nanos held_until;                // by the manager, of this member
    Nanos granted_until = kNothing;  // by the manager, to this member
    bool revoked = false;
  };
  void Add(NodeId node, Role role, Nanos held_until) {
    entries_.insert_or_assign(node, Entry{.role = role, .held_until = held_until});
  }

  const Nanos lease_ns_;
  const int64_t drift_ppm_;
  absl::flat_hash_map<NodeId, Entry> entries_;
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_LEASE_BOOK_H_
