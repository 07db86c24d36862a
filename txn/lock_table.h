// LockTable: who holds the lock of an object at its primary. The lock bit of word 0 is set while any holder
// remains; a transaction removes only itself. In normal operation an object has one holder, the one whose
// compare-and-swap set the bit; recovery may add others that were locked when their coordinator died.
// Thread-safe: the workers of a node lock objects of the same regions.
#ifndef FURROW_TXN_LOCK_TABLE_H_
#define FURROW_TXN_LOCK_TABLE_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "storage/object.h"

namespace furrow::txn {

class LockTable {
 public:
  // Locks `slot` at `address` for `tx` if word 0 is `expected`. False: `*holder` is a holder, null if the
  // object is not locked but has changed.
  bool TryLock(Address address, std::byte* slot, storage::ObjectWord expected, const TxId& tx, TxId* holder);
  // Lock recovery (SOSP'15 section 5.3, step 4): `tx` holds the object, besides others that may, and word 0
  // is locked. Nothing happens if it is a holder already.
  void AddHolder(Address address, std::byte* slot, const TxId& tx);
  // Removes `tx`; clears the lock bit unless another holder remains. Nothing happens if `tx` is no holder.
  void Unlock(Address address, std::byte* slot, const TxId& tx);
  // Removes `tx` because it is about to install: true if another holder remains, so that the new word 0 stays
  // locked.
  bool ReleaseForInstall(Address address, const TxId& tx);
  // A holder of the object, null without one.
  TxId Holder(Address address) const;
  size_t size() const;

 private:
  static constexpr size_t kShards = 64;  // as many as ShardNumber() has bits for
  struct Lock {
    Address address;
    TxId holder;
  };
  // A shard has a handful of locks at a time, those of the transactions that commit now: they are looked
  // through. The largest transaction, which fills a log record with small objects, has some hundreds in each.
  struct alignas(64) Shard {
    mutable Mutex mutex;
    std::vector<Lock> held ABSL_GUARDED_BY(mutex);
  };
  // All bits count: slots of one size class have many zeros in common.
  static size_t ShardNumber(Address address) { return (address.bits() * 0x9e3779b97f4a7c15u) >> 58; }
  Shard& ShardOf(Address address) { return shards_[ShardNumber(address)]; }
  const Shard& ShardOf(Address address) const { return shards_[ShardNumber(address)]; }
  struct Removal {
    bool was_holder = false;
    bool others_remain = false;
  };
  static Removal Remove(Shard& shard, Address address, const TxId& tx)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  static TxId HolderIn(const Shard& shard, Address address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);

  std::array<Shard, kShards> shards_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_LOCK_TABLE_H_
