#include "storage/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/strings.h"

namespace furrow::storage {

MemoryBudget::MemoryBudget(uint64_t limit_bytes, uint64_t reserve_bytes, std::string setting)
    : limit_(limit_bytes), reserve_(reserve_bytes), setting_(std::move(setting)) {
  FURROW_CHECK(reserve_bytes <= limit_bytes);
}

absl::Status MemoryBudget::Charge(std::string_view kind, uint64_t bytes, bool may_use_reserve) {
  MutexLock lock(&mutex_);
  const uint64_t limit = may_use_reserve ? limit_ : limit_ - reserve_;
  if (used_ > limit || bytes > limit - used_) {
    std::string message = absl::StrCat("out of memory: ", bytes, " bytes for ", Sv(kind), " do not fit into ",
                                       setting_, " = ", limit_, " bytes (in use:");
    for (const auto& [name, used] : by_kind_) {
      if (used != 0) absl::StrAppend(&message, " ", name, " ", used);
    }
    absl::StrAppend(&message, "; kept back for deletes: ", reserve_, "); delete data or raise ", setting_);
    return absl::ResourceExhaustedError(message);
  }
  used_ += bytes;
  by_kind_[std::string(kind)] += bytes;
  return absl::OkStatus();
}

void MemoryBudget::Release(std::string_view kind, uint64_t bytes) {
  MutexLock lock(&mutex_);
  auto it = by_kind_.find(std::string(kind));
  FURROW_CHECK(it != by_kind_.end() && it->second >= bytes);
  it->second -= bytes;
  used_ -= bytes;
}

uint64_t MemoryBudget::used() const {
  MutexLock lock(&mutex_);
  return used_;
}

absl::btree_map<std::string, uint64_t> MemoryBudget::UseByKind() const {
  MutexLock lock(&mutex_);
  return by_kind_;
}

}  // namespace furrow::storage
