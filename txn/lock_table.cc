#include "txn/lock_table.h"

namespace furrow::txn {

bool LockTable::TryLock(Address address, std::byte* slot, storage::ObjectWord expected, const TxId& tx,
                        TxId* holder) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  if (storage::TryLock(slot, expected)) {
    shard.held.push_back({address, tx});
    return true;
  }
  *holder = HolderIn(shard, address);
  return false;
}

void LockTable::AddHolder(Address address, std::byte* slot, const TxId& tx) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  bool others = false;
  for (const Lock& held : shard.held) {
    if (held.address != address) continue;
    if (held.holder == tx) return;
    others = true;
  }
  shard.held.push_back({address, tx});
  // Where nobody is a holder the bit, if it is set, is that of an install or an apply on its way, which needs
  // no mutex to end and will clear it: we set our own.
  while (!others) {
    const storage::ObjectWord word = storage::LoadWord(slot);
    if (!word.locked() && storage::TryLock(slot, word)) return;
  }
}

LockTable::Removal LockTable::Remove(Shard& shard, Address address, const TxId& tx) {
  std::vector<Lock>& held = shard.held;
  Removal removal;
  for (size_t i = held.size(); i-- > 0;) {
    if (held[i].address != address) continue;
    if (held[i].holder == tx) {
      held[i] = held.back();
      held.pop_back();
      removal.was_holder = true;
    } else {
      removal.others_remain = true;
    }
  }
  return removal;
}

void LockTable::Unlock(Address address, std::byte* slot, const TxId& tx) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  const Removal removal = Remove(shard, address, tx);
  if (removal.was_holder && !removal.others_remain) storage::Unlock(slot);
}

bool LockTable::ReleaseForInstall(Address address, const TxId& tx) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  return Remove(shard, address, tx).others_remain;
}

TxId LockTable::HolderIn(const Shard& shard, Address address) {
  for (const Lock& lock : shard.held) {
    if (lock.address == address) return lock.holder;
  }
  return TxId{};
}

TxId LockTable::Holder(Address address) const {
  const Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  return HolderIn(shard, address);
}

size_t LockTable::size() const {
  size_t total = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    total += shard.held.size();
  }
  return total;
}

}  // namespace furrow::txn
