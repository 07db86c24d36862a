// RegionDirectory: this process's cache of region mappings. Find() from any thread without a lock; mappings
// that were replaced stay allocated until the directory dies, so a pointer that was found stays valid.
#ifndef FURROW_CLUSTER_REGION_DIRECTORY_H_
#define FURROW_CLUSTER_REGION_DIRECTORY_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "cluster/view.h"

namespace furrow::cluster {

class RegionDirectory {
 public:
  static constexpr uint32_t kMaxRegions = 1 << 22;  // ids are below
  RegionDirectory() = default;
  ~RegionDirectory();

  // Null: not known here; ask the ControlPlane.
  const RegionMapping* Find(RegionId id) const {
    if (id.value() >= kMaxRegions) return nullptr;
    const Chunk* chunk = chunks_[id.value() / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk->mappings[id.value() % kChunk].load(std::memory_order_acquire);
  }
  // Adds or replaces; an older mapping (lower config) than the known one is ignored.
  const RegionMapping* Put(RegionMapping mapping);
  // REGION-ACTIVE: the primary of this mapping serves from now on, and nothing below `floor`. Null: the known
  // mapping is another configuration's, or there is none; otherwise the active one.
  const RegionMapping* Activate(RegionId id, ConfigId config, Timestamp floor);
  // The known regions of a locality group, newest last.
  std::vector<RegionId> Group(RegionId locality) const;
  // All known mappings, by id.
  std::vector<const RegionMapping*> All() const;

 private:
  std::atomic<const RegionMapping*>& PlaceOf(RegionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const RegionMapping* Replace(std::atomic<const RegionMapping*>& place, RegionMapping mapping)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr uint32_t kChunk = 4096;
  struct Chunk {
    std::atomic<const RegionMapping*> mappings[kChunk] = {};
  };
  std::atomic<Chunk*> chunks_[kMaxRegions / kChunk] = {};
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<const RegionMapping>> owned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::cluster

#endif  // FURROW_CLUSTER_REGION_DIRECTORY_H_
