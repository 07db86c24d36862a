#include "txn/lock_table.h"

#include <algorithm>

namespace furrow::txn {

bool LockTable::TryLock(Address address, std::byte* slot, storage::ObjectWord expected, const TxId& tx,
                        TxId* holder) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  if (storage::TryLock(slot, expected)) {
    shard.held[address].push_back(tx);
    return true;
  }
  auto it = shard.held.find(address);
  *holder = it == shard.held.end() ? TxId{} : it->second.front();
  return false;
}

bool LockTable::Remove(Shard& shard, Address address, const TxId& tx) {
  auto it = shard.held.find(address);
  if (it == shard.held.end()) return false;
  Holders& holders = it->second;
  holders.erase(std::remove(holders.begin(), holders.end(), tx), holders.end());
  if (!holders.empty()) return true;
  shard.held.erase(it);
  return false;
}

void LockTable::Unlock(Address address, std::byte* slot, const TxId& tx) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  if (!shard.held.contains(address)) return;
  if (!Remove(shard, address, tx)) storage::Unlock(slot);
}

bool LockTable::ReleaseForInstall(Address address, const TxId& tx) {
  Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  return Remove(shard, address, tx);
}

TxId LockTable::Holder(Address address) const {
  const Shard& shard = ShardOf(address);
  MutexLock lock(&shard.mutex);
  auto it = shard.held.find(address);
  return it == shard.held.end() ? TxId{} : it->second.front();
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
