#include "cluster/region_directory.h"

#include "base/check.h"

namespace furrow::cluster {

RegionDirectory::~RegionDirectory() {
  for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

const RegionMapping* RegionDirectory::Put(RegionMapping mapping) {
  uint32_t id = mapping.id.value();
  FURROW_CHECK(id > 0 && id < kMaxRegions && !mapping.replicas.empty());
  MutexLock lock(&mutex_);
  std::atomic<Chunk*>& slot = chunks_[id / kChunk];
  Chunk* chunk = slot.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new Chunk;
    slot.store(chunk, std::memory_order_release);
  }
  std::atomic<const RegionMapping*>& place = chunk->mappings[id % kChunk];
  const RegionMapping* known = place.load(std::memory_order_relaxed);
  if (known != nullptr && known->config >= mapping.config) return known;
  owned_.push_back(std::make_unique<const RegionMapping>(std::move(mapping)));
  place.store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

std::vector<RegionId> RegionDirectory::Group(RegionId locality) const {
  std::vector<RegionId> group;
  for (const RegionMapping* m : All()) {
    if (m->locality == locality) group.push_back(m->id);
  }
  return group;
}

std::vector<const RegionMapping*> RegionDirectory::All() const {
  std::vector<const RegionMapping*> all;
  for (const auto& c : chunks_) {
    const Chunk* chunk = c.load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    for (const auto& place : chunk->mappings) {
      if (const RegionMapping* m = place.load(std::memory_order_acquire); m != nullptr) all.push_back(m);
    }
  }
  return all;
}

}  // namespace furrow::cluster
