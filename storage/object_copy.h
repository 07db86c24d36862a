// The code of object.h's readers, over a way to load a word: from memory that others are storing to, from
// memory of our own, or, in tests, from recorded states of a slot in every possible order. Internal to
// storage/.
#ifndef FURROW_STORAGE_OBJECT_COPY_H_
#define FURROW_STORAGE_OBJECT_COPY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/mutation.h"
#include "storage/object.h"

namespace furrow::storage::internal {

inline constexpr uint64_t kLineMask = 0xffff;
inline constexpr size_t kWordBytes = 8;

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

template <class Word>
inline void LoadHeader(const std::byte* slot, ObjectHeader* header) {
  header->word = ObjectWord::FromBits(Word::Load(slot));
  header->version = VersionWord::FromBits(Word::Load(slot + kWordBytes));
}

template <class Word>
inline bool WordIs(const std::byte* slot, ObjectWord word) {
  return Word::Load(slot) == word.bits();
}

// CopyObject(): all loads in ascending order, word 0 again at the end.
template <class Word>
inline CopyResult CopyObject(const std::byte* slot, std::span<std::byte> dst, ObjectHeader* header) {
  LoadHeader<Word>(slot, header);
  if (header->word.locked())
    return WordIs<Word>(slot, header->word) ? CopyResult::kHeader : CopyResult::kTorn;
  uint64_t difference = Strip<Word>(slot, dst, header->version.line());
  if (!WordIs<Word>(slot, header->word)) return CopyResult::kTorn;
  return LinesAgree(difference, header->version) ? CopyResult::kObject : CopyResult::kHeader;
}

template <class Word>
inline bool CopyHeader(const std::byte* slot, ObjectHeader* header) {
  LoadHeader<Word>(slot, header);
  return WordIs<Word>(slot, header->word);
}

}  // namespace furrow::storage::internal

#endif  // FURROW_STORAGE_OBJECT_COPY_H_
