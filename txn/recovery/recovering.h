// Who recovers, and who recovers it (docs/internals/recovery.md, "Who recovers"). Participants and
// coordinators judge alike, from the transaction's id, the regions that it writes, and the view.
#ifndef FURROW_TXN_RECOVERY_RECOVERING_H_
#define FURROW_TXN_RECOVERY_RECOVERING_H_

#include <span>

#include "base/ids.h"
#include "cluster/region_directory.h"
#include "cluster/view.h"

namespace furrow::txn {

// True if a transaction that began to commit in an older configuration recovers in `view`: its coordinator is
// no member any more (or another incarnation is), or a region that it writes has other replicas since. A
// region that is not in the directory has not changed since this member joined.
bool Recovers(const TxId& id, Incarnation coordinator, std::span<const RegionId> written,
              const cluster::ClusterView& view, const cluster::RegionDirectory& directory);

// The member that decides it: its coordinator if that is a storage member, else one that all agree on. Null:
// the view has no storage member.
const cluster::Member* RecoveryCoordinatorOf(const TxId& id, const cluster::ClusterView& view);

// The worker of a member with this many that serves a coordinator thread.
inline WorkerId WorkerFor(const TxId& id, uint16_t workers) {
  return WorkerId(static_cast<uint16_t>(id.worker.value() % workers));
}

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECOVERY_RECOVERING_H_
