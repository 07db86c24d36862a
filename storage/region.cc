#include "storage/region.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace furrow::storage {

namespace {

constexpr uint64_t kMagic = 0x6f69676572'777266;  // "frwregio"
constexpr size_t kMaxBlocks = 4096;
static_assert(kMaxBlocks * kBlockBytes == size_t{4} << 30);  // offsets have 32 bits
static_assert(kRegionHeaderBytes + kMaxBlocks * sizeof(BlockHeader) <= kBlockBytes);
static_assert(kBlockBytes % kLineBytes == 0 && kMaxSlotBytes <= kBlockBytes);

// Block headers are words that peers may READ at any time.
uint64_t Load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
void Store(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

uint64_t* SizeWord(BlockHeader* header) { return reinterpret_cast<uint64_t*>(&header->slot_bytes); }
uint64_t PackSize(uint32_t slot_bytes, uint32_t slots) { return uint64_t{slots} << 32 | slot_bytes; }

absl::Status CheckSize(const MemoryFile& file, RegionId id) {
  if (file.size() % kBlockBytes == 0 && file.size() >= 2 * kBlockBytes &&
      file.size() / kBlockBytes <= kMaxBlocks) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("region ", id.value(), " of ", file.size(),
                   " bytes: the size must be a multiple of 1 MB between 2 MB and 4 GB"));
}

absl::Status Damaged(const MemoryFile& file, RegionId id, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("memory file '", file.path(), "' of region ", id.value(), ": ", what,
                   "; remove the file to let the region be copied from another replica"));
}

absl::Status Foreign(const MemoryFile& file, RegionId id, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("memory file '", file.path(), "' cannot serve as region ", id.value(), ": ", what,
                   "; check that the memory directory belongs to this cluster"));
}

}  // namespace

Region::Shape Region::Shape::Of(uint32_t slot_bytes, uint32_t slots) {
  if (slot_bytes == 0) return Shape();
  Shape shape;
  shape.lines = static_cast<uint16_t>(slot_bytes / kLineBytes);
  shape.slots = static_cast<uint16_t>(slots);
  shape.reciprocal = ((uint32_t{1} << 31) + shape.lines - 1) / shape.lines;
  return shape;
}

Region::Region(MemoryFile file, RegionId id)
    : file_(std::move(file)),
      id_(id),
      shapes_(std::make_unique<std::atomic<uint64_t>[]>(blocks())),
      activity_(std::make_unique<Activity[]>(blocks())) {}

BlockHeader* Region::block_header(uint32_t block) const {
  return reinterpret_cast<BlockHeader*>(base() + kRegionHeaderBytes) + block;
}

absl::StatusOr<std::unique_ptr<Region>> Region::Create(MemoryFile file, RegionId id, ConfigId created_in,
                                                       uint64_t cluster_hash) {
  FURROW_RETURN_IF_ERROR(CheckSize(file, id));
  RegionHeader header = {};
  header.magic = kMagic;
  header.format = kRegionFormat;
  header.region = id.value();
  header.bytes = file.size();
  header.cluster_hash = cluster_hash;
  header.created_in = created_in.value();
  ClearSlot(file.data(), kBlockBytes);
  std::memcpy(file.data(), &header, sizeof header);
  return std::unique_ptr<Region>(new Region(std::move(file), id));
}

absl::StatusOr<std::unique_ptr<Region>> Region::Attach(MemoryFile file, RegionId id, uint64_t cluster_hash) {
  FURROW_RETURN_IF_ERROR(CheckSize(file, id));
  RegionHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != kMagic) return Damaged(file, id, "it does not start with a region header");
  if (header.format != kRegionFormat) {
    return Foreign(file, id,
                   absl::StrCat("it has format ", header.format, ", this build reads ", kRegionFormat));
  }
  if (header.cluster_hash != cluster_hash) return Foreign(file, id, "it belongs to another cluster");
  if (header.region != id.value()) return Foreign(file, id, absl::StrCat("it holds region ", header.region));
  if (header.bytes != file.size()) {
    return Damaged(file, id, absl::StrCat("it has ", file.size(), " bytes but was made with ", header.bytes));
  }
  std::unique_ptr<Region> region(new Region(std::move(file), id));
  FURROW_RETURN_IF_ERROR(region->LoadBlocks());
  return region;
}

absl::Status Region::LoadBlocks() {
  for (uint32_t block = 1; block < blocks(); ++block) {
    BlockHeader header = ReadBlock(block);
    if (header.slot_bytes == 0 && header.slots == 0) continue;
    if (!ClassForSlotBytes(header.slot_bytes) || header.slots != kBlockBytes / header.slot_bytes ||
        header.version == 0) {
      return Damaged(file_, id_,
                     absl::StrCat("block ", block, " has an impossible header: ", header.slots, " slots of ",
                                  header.slot_bytes, " bytes"));
    }
    shapes_[block].store(Shape::Of(header.slot_bytes, header.slots).bits(), std::memory_order_release);
    activity_[block].writers.store(0, std::memory_order_release);
  }
  return absl::OkStatus();
}

BlockHeader Region::ReadBlock(uint32_t block) const {
  FURROW_CHECK(block < blocks());
  BlockHeader* from = block_header(block);
  BlockHeader header = {};
  uint64_t size;
  do {
    header.version = Load(&from->version);
    size = Load(SizeWord(from));
  } while (Load(&from->version) != header.version);
  header.slot_bytes = static_cast<uint32_t>(size);
  header.slots = static_cast<uint32_t>(size >> 32);
  return header;
}

absl::Status Region::CutBlock(uint32_t block, uint32_t slot_bytes, uint64_t version) {
  if (block == 0 || block >= blocks() || (slot_bytes != 0 && !ClassForSlotBytes(slot_bytes))) {
    return absl::InvalidArgumentError(absl::StrCat("cannot cut block ", block, " of region ", id_.value(),
                                                   " (", blocks(), " blocks) into slots of ", slot_bytes,
                                                   " bytes"));
  }
  BlockHeader* header = block_header(block);
  uint64_t current = Load(&header->version);
  if (version <= current) {
    return absl::FailedPreconditionError(absl::StrCat("block ", block, " of region ", id_.value(),
                                                      " has header version ", current, ", not older than ",
                                                      version));
  }
  if (!CloseBlock(block)) {
    return absl::UnavailableError(absl::StrCat("block ", block, " of region ", id_.value(), " still has ",
                                               Writers(block * kBlockBytes),
                                               " writers here; try again later"));
  }
  // While it is zeroed the block is free. A process that dies in between leaves a free block of the old
  // version.
  const uint32_t slots = slot_bytes == 0 ? 0 : kBlockBytes / slot_bytes;
  shapes_[block].store(0, std::memory_order_release);
  Store(SizeWord(header), 0);
  // A block that was never cut is as the file was made: zero. Touching it would only fetch its pages early.
  if (current != 0) ClearSlot(base() + size_t{block} * kBlockBytes, kBlockBytes);
  Store(&header->version, version);
  Store(SizeWord(header), PackSize(slot_bytes, slots));
  activity_[block].newest.store(0, std::memory_order_relaxed);
  if (slot_bytes == 0) return absl::OkStatus();  // stays closed
  shapes_[block].store(Shape::Of(slot_bytes, slots).bits(), std::memory_order_release);
  activity_[block].writers.store(0, std::memory_order_release);
  return absl::OkStatus();
}

bool Region::AddWriter(uint32_t offset) {
  uint32_t block = offset / kBlockBytes;
  if (block >= blocks()) return false;
  std::atomic<uint32_t>& writers = activity_[block].writers;
  uint32_t count = writers.load(std::memory_order_relaxed);
  do {
    if ((count & kClosed) != 0) return false;
  } while (
      !writers.compare_exchange_weak(count, count + 1, std::memory_order_acquire, std::memory_order_relaxed));
  return true;
}

void Region::RemoveWriter(uint32_t offset) {
  uint32_t block = offset / kBlockBytes;
  FURROW_CHECK(block < blocks());
  uint32_t before = activity_[block].writers.fetch_sub(1, std::memory_order_release);
  FURROW_CHECK((before & kClosed) == 0 && before != 0);
}

uint32_t Region::Writers(uint32_t offset) const {
  uint32_t block = offset / kBlockBytes;
  FURROW_CHECK(block < blocks());
  return activity_[block].writers.load(std::memory_order_acquire) & ~kClosed;
}

void Region::NoteWrite(uint32_t offset, Timestamp write) {
  uint32_t block = offset / kBlockBytes;
  FURROW_CHECK(block < blocks());
  std::atomic<uint64_t>& newest = activity_[block].newest;
  uint64_t seen = newest.load(std::memory_order_relaxed);
  while (seen < write.value() &&
         !newest.compare_exchange_weak(seen, write.value(), std::memory_order_relaxed)) {
  }
}

Timestamp Region::NewestWrite(uint32_t block) const {
  FURROW_CHECK(block < blocks());
  return Timestamp(activity_[block].newest.load(std::memory_order_relaxed));
}

bool Region::CloseBlock(uint32_t block) {
  FURROW_CHECK(block < blocks());
  uint32_t none = 0;
  return activity_[block].writers.compare_exchange_strong(none, kClosed, std::memory_order_acq_rel) ||
         none == kClosed;
}

LocalRegions::~LocalRegions() {
  for (auto& c : chunks_) {
    Chunk* chunk = c.load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    for (auto& region : chunk->regions) delete region.load(std::memory_order_acquire);
    delete chunk;
  }
}

absl::Status LocalRegions::Add(std::unique_ptr<Region> region) {
  const uint32_t id = region->id().value();
  if (id == 0 || id >= kMaxRegions) {
    return absl::InvalidArgumentError(absl::StrCat("region id ", id, " is outside 1..", kMaxRegions - 1));
  }
  MutexLock lock(&mutex_);
  Chunk* chunk = chunks_[id / kChunk].load(std::memory_order_acquire);
  if (chunk == nullptr) {
    chunk = new Chunk;
    chunks_[id / kChunk].store(chunk, std::memory_order_release);
  }
  std::atomic<Region*>& entry = chunk->regions[id % kChunk];
  if (entry.load(std::memory_order_acquire) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("this node has a replica of region ", id, " already"));
  }
  entry.store(region.release(), std::memory_order_release);
  count_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

std::unique_ptr<Region> LocalRegions::Remove(RegionId id) {
  MutexLock lock(&mutex_);
  if (Find(id) == nullptr) return nullptr;
  std::atomic<Region*>& entry =
      chunks_[id.value() / kChunk].load(std::memory_order_acquire)->regions[id.value() % kChunk];
  count_.fetch_sub(1, std::memory_order_relaxed);
  return std::unique_ptr<Region>(entry.exchange(nullptr, std::memory_order_acq_rel));
}

}  // namespace furrow::storage
