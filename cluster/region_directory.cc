#include "cluster/region_directory.h"

#include "base/check.h"

namespace furrow::cluster {

RegionDirectory::~RegionDirectory() {
  for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

std::atomic<const RegionMapping*>& RegionDirectory::PlaceOf(RegionId id) {
  FURROW_CHECK(id.value() > 0 && id.value() < kMaxRegions);
  std::atomic<Chunk*>& slot = chunks_[id.value() / kChunk];
  Chunk* chunk = slot.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new Chunk;
    slot.store(chunk, std::memory_order_release);
  }
  return chunk->mappings[id.value() % kChunk];
}

const RegionMapping* RegionDirectory::Replace(std::atomic<const RegionMapping*>& place,
                                              RegionMapping mapping) {
  owned_.push_back(std::make_unique<const RegionMapping>(std::move(mapping)));
  place.store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

const RegionMapping* RegionDirectory::Put(RegionMapping mapping) {
  FURROW_CHECK(!mapping.replicas.empty());
  MutexLock lock(&mutex_);
  std::atomic<const RegionMapping*>& place = PlaceOf(mapping.id);
  const RegionMapping* known = place.load(std::memory_order_relaxed);
  if (known != nullptr && known->config >= mapping.config) return known;
  return Replace(place, std::move(mapping));
}

const RegionMapping* RegionDirectory::Activate(RegionId id, ConfigId config, Timestamp floor) {
  MutexLock lock(&mutex_);
  std::atomic<const RegionMapping*>& place = PlaceOf(id);
  const RegionMapping* known = place.load(std::memory_order_relaxed);
  if (known == nullptr || known->config != config) return nullptr;
  if (known->active) return known;
  RegionMapping active = *known;
  active.active = true;
  active.floor = floor;
  return Replace(place, std::move(active));
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
