// Exact accounting of a node's memory against its configured limit: regions, rings, old versions, staging. A
// reserve stays back for what must work when memory is full (DELETE, DROP, TRUNCATE, ROLLBACK). Thread-safe.
#ifndef FURROW_STORAGE_MEMORY_BUDGET_H_
#define FURROW_STORAGE_MEMORY_BUDGET_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace furrow::storage {

class MemoryBudget {
 public:
  // `setting` is what the user turns to raise the limit. reserve_bytes <= limit_bytes.
  MemoryBudget(uint64_t limit_bytes, uint64_t reserve_bytes,
               std::string setting = "MemberOptions::memory_bytes");

  // Charges `bytes` to `kind` ("regions", "rings", ...). ResourceExhausted names limit, use by kind and the
  // setting.
  absl::Status Charge(std::string_view kind, uint64_t bytes, bool may_use_reserve = false);
  // At most what `kind` was charged.
  void Release(std::string_view kind, uint64_t bytes);
  uint64_t used() const;
  uint64_t limit() const { return limit_; }
  absl::btree_map<std::string, uint64_t> UseByKind() const;

 private:
  const uint64_t limit_;
  const uint64_t reserve_;
  const std::string setting_;
  mutable Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<std::string, uint64_t> by_kind_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_MEMORY_BUDGET_H_
