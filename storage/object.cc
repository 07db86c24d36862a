#include "storage/object.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/mutation.h"
#include "base/store_point.h"

namespace furrow::storage {

static_assert(std::endian::native == std::endian::little,
              "line versions are the low 16 bits of a line's first word");

namespace {

constexpr uint64_t kLineMask = 0xffff;
constexpr size_t kWordBytes = 8;

// --- words of memory that others read or write at the same time ---

struct SharedWord {
  static uint64_t Load(const std::byte* p) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(p), __ATOMIC_ACQUIRE);
  }
};

// --- words of memory that is ours alone ---

struct PrivateWord {
  static uint64_t Load(const std::byte* p) {
    uint64_t w;
    std::memcpy(&w, p, sizeof w);
    return w;
  }
};

inline void Store(std::byte* p, uint64_t w) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(p), w, __ATOMIC_RELEASE);
  StorePoint();
}

inline void Put(std::byte* dst, uint64_t w) { std::memcpy(dst, &w, sizeof w); }

// Puts the first `n` (0..7) bytes of `w`.
inline void PutTail(std::byte* dst, uint64_t w, size_t n) {
  if ((n & 4) != 0) {
    std::memcpy(dst, &w, 4);
    dst += 4;
    w >>= 32;
  }
  if ((n & 2) != 0) {
    std::memcpy(dst, &w, 2);
    dst += 2;
    w >>= 16;
  }
  if ((n & 1) != 0) std::memcpy(dst, &w, 1);
}

// --- reading ---

// Copies `n` bytes that start at the aligned word `words`.
template <class Word>
inline void StripPart(const std::byte* words, size_t n, std::byte* dst) {
  size_t i = 0;
  for (; i + kWordBytes <= n; i += kWordBytes) Put(dst + i, Word::Load(words + i));
  if (i < n) PutTail(dst + i, Word::Load(words + i), n - i);
}

// Copies the payload of a whole line after the first; returns its first word, whose low bits are the line
// version.
template <class Word>
inline uint64_t StripLine(const std::byte* line, std::byte* dst) {
  uint64_t w0 = Word::Load(line);
  uint64_t w1 = Word::Load(line + 8);
  uint64_t w2 = Word::Load(line + 16);
  uint64_t w3 = Word::Load(line + 24);
  uint64_t w4 = Word::Load(line + 32);
  uint64_t w5 = Word::Load(line + 40);
  uint64_t w6 = Word::Load(line + 48);
  uint64_t w7 = Word::Load(line + 56);
  Put(dst, w0 >> 16);  // two bytes too many: the next store puts the right ones there
  Put(dst + 6, w1);
  Put(dst + 14, w2);
  Put(dst + 22, w3);
  Put(dst + 30, w4);
  Put(dst + 38, w5);
  Put(dst + 46, w6);
  Put(dst + 54, w7);
  return w0;
}

// Copies payload up to dst's end. Returns 0 if the line versions of all lines touched are `line`.
template <class Word>
inline uint64_t Strip(const std::byte* slot, std::span<std::byte> dst, uint16_t line) {
  std::byte* out = dst.data();
  if (dst.size() < kFirstLinePayload) {
    StripPart<Word>(slot + kHeaderBytes, dst.size(), out);
    return 0;
  }
  for (size_t i = 0; i < kFirstLinePayload; i += kWordBytes) {
    Put(out + i, Word::Load(slot + kHeaderBytes + i));
  }
  size_t left = dst.size() - kFirstLinePayload;
  out += kFirstLinePayload;
  uint64_t difference = 0;
  const std::byte* at = slot + kLineBytes;
  for (; left >= kLinePayload; left -= kLinePayload, out += kLinePayload, at += kLineBytes) {
    difference |= StripLine<Word>(at, out) ^ line;
  }
  if (left > 0) {
    uint64_t first = Word::Load(at);
    difference |= first ^ line;
    size_t head = left < 6 ? left : 6;
    PutTail(out, first >> 16, head);
    StripPart<Word>(at + kWordBytes, left - head, out + head);
  }
  return difference & kLineMask;
}

inline bool LinesAgree(uint64_t difference, VersionWord version) {
  return (difference == 0 && version.line() != kInvalidLine) || Mutated(Mutation::kSkipLineVersionCheck);
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
  header->word = LoadWord(slot);
  header->version = VersionWord::FromBits(SharedWord::Load(slot + kWordBytes));
  if (header->word.locked()) return LoadWord(slot) == header->word ? CopyResult::kHeader : CopyResult::kTorn;
  uint64_t difference = Strip<SharedWord>(slot, dst, header->version.line());
  if (LoadWord(slot) != header->word) return CopyResult::kTorn;
  return LinesAgree(difference, header->version) ? CopyResult::kObject : CopyResult::kHeader;
}

CopyResult StripImage(std::span<const std::byte> image, ObjectWord before, ObjectWord after,
                      std::span<std::byte> dst, ObjectHeader* header) {
  FURROW_CHECK(image.size() >= SpanBytes(dst.size()));
  header->word = ObjectWord::FromBits(PrivateWord::Load(image.data()));
  header->version = VersionWord::FromBits(PrivateWord::Load(image.data() + kWordBytes));
  if (before != after || header->word != before) return CopyResult::kTorn;
  if (header->word.locked()) return CopyResult::kHeader;
  uint64_t difference = Strip<PrivateWord>(image.data(), dst, header->version.line());
  return LinesAgree(difference, header->version) ? CopyResult::kObject : CopyResult::kHeader;
}

bool CopyHeader(const std::byte* slot, ObjectHeader* header) {
  header->word = LoadWord(slot);
  header->version = VersionWord::FromBits(SharedWord::Load(slot + kWordBytes));
  return LoadWord(slot) == header->word;
}

}  // namespace furrow::storage
