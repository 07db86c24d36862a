#include "storage/object.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/mutation.h"
#include "base/store_point.h"
#include "storage/object_copy.h"

namespace furrow::storage {

static_assert(std::endian::native == std::endian::little,
              "line versions are the low 16 bits of a line's first word");

namespace {

using internal::kLineMask;
using internal::kWordBytes;
using internal::PrivateWord;
using internal::SharedWord;

inline void Store(std::byte* p, uint64_t w) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(p), w, __ATOMIC_RELEASE);
  StorePoint();
}

// --- writing ---

// A payload that goes on with zeros for ever, read in words.
class Source {
 public:
  explicit Source(std::span<const std::byte> payload) : data_(payload.data()), size_(payload.size()) {}
  uint64_t WordAt(size_t i) const {
    if (i + kWordBytes <= size_) [[likely]]
      return PrivateWord::Load(data_ + i);
    if (i >= size_) return 0;
    uint64_t w = 0;
    std::memcpy(&w, data_ + i, size_ - i);
    return w;
  }

 private:
  const std::byte* const data_;
  const size_t size_;
};

}  // namespace

bool TryLock(std::byte* slot, ObjectWord expected) {
  if (expected.locked()) return false;
  uint64_t bits = expected.bits();
  return __atomic_compare_exchange_n(reinterpret_cast<uint64_t*>(slot), &bits, expected.WithLock(true).bits(),
                                     /*weak=*/false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void Unlock(std::byte* slot) { Store(slot, LoadWord(slot).WithLock(false).bits()); }

void Install(std::byte* slot, size_t slot_bytes, std::span<const std::byte> payload, ObjectWord word,
             OldVersionPointer ovp) {
  FURROW_CHECK(payload.size() <= PayloadCapacity(slot_bytes));
  const Source source(payload);
  const uint16_t old_line = VersionWord::FromBits(PrivateWord::Load(slot + kWordBytes)).line();
  const uint16_t line = old_line + 1 == kInvalidLine ? 0 : old_line + 1;
  const uint16_t invalid = Mutated(Mutation::kSkipInvalidLineVersions) ? old_line : kInvalidLine;
  std::byte* const end = slot + slot_bytes;

  // Nobody accepts a line from here on. Its first six bytes of payload share the word: they are the new ones
  // at once.
  size_t i = kFirstLinePayload;
  for (std::byte* at = slot + kLineBytes; at < end; at += kLineBytes, i += kLinePayload) {
    Store(at, source.WordAt(i) << 16 | invalid);
  }
  for (i = 0; i < kFirstLinePayload; i += kWordBytes) Store(slot + kHeaderBytes + i, source.WordAt(i));
  for (std::byte* at = slot + kLineBytes; at < end; at += kLineBytes, i += kLinePayload) {
    for (size_t w = kWordBytes; w < kLineBytes; w += kWordBytes) Store(at + w, source.WordAt(i + w - 2));
  }
  for (std::byte* at = slot + kLineBytes; at < end; at += kLineBytes) {
    Store(at, (PrivateWord::Load(at) & ~kLineMask) | line);
  }
  Store(slot + kWordBytes, VersionWord(line, ovp).bits());
  __atomic_store_n(reinterpret_cast<uint64_t*>(slot), word.bits(), __ATOMIC_RELEASE);
}

void CopyImage(const std::byte* slot, size_t slot_bytes, std::byte* image) {
  Store(image, LoadWord(slot).WithLock(false).bits());
  for (size_t i = kWordBytes; i < slot_bytes; i += kWordBytes) Store(image + i, PrivateWord::Load(slot + i));
}

void ClearSlot(std::byte* slot, size_t slot_bytes) {
  for (size_t i = 0; i < slot_bytes; i += kWordBytes) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(slot + i), 0, __ATOMIC_RELEASE);
  }
}

CopyResult CopyObject(const std::byte* slot, std::span<std::byte> dst, ObjectHeader* header) {
  return internal::CopyObject<SharedWord>(slot, dst, header);
}

CopyResult StripImage(std::span<const std::byte> image, ObjectWord before, ObjectWord after,
                      std::span<std::byte> dst, ObjectHeader* header) {
  FURROW_CHECK(image.size() >= SpanBytes(dst.size()));
  internal::LoadHeader<PrivateWord>(image.data(), header);
  if (before != after || header->word != before) return CopyResult::kTorn;
  if (header->word.locked()) return CopyResult::kHeader;
  uint64_t difference = internal::Strip<PrivateWord>(image.data(), dst, header->version.line());
  return internal::LinesAgree(difference, header->version) ? CopyResult::kObject : CopyResult::kHeader;
}

bool CopyHeader(const std::byte* slot, ObjectHeader* header) {
  return internal::CopyHeader<SharedWord>(slot, header);
}

}  // namespace furrow::storage
