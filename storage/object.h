// The object: what every slot of a slab holds, and how it is locked, installed and read (FaRMv2 section 5,
// FaRM NSDI'14 section 3 for the line versions). Remote readers fetch it with one-sided READs while the
// primary's CPU installs. docs/internals/memory.md shows why a reader never accepts a torn object.
//
// Layout of a slot (multiple of 64 bytes, 64-aligned, little-endian):
//   off     size  field       written by             order
//   0       8     word 0      primary's CPU          CAS acquire to lock; release store to install, to unlock
//   8       8     word 1      primary's CPU, locked  release store, before word 0
//   16      48    payload     primary's CPU, locked  release stores
//   64*i    2     version_i   primary's CPU, locked  release store (i >= 1), in one 8-byte word with payload
//   64*i+2  62    payload     primary's CPU, locked  release stores
//
// word 0: bit 63 locked, bit 62 allocated, bits 0..61 write timestamp. Compared, swapped and validated whole.
//
// word 1: bits 48..63 line version, bits 0..47 old-version pointer (OVP; 0: no older version).
//
// Install, holding the lock: every version_i := kInvalidLine; payload; every version_i := v; word 1 (v, OVP);
// word 0. v is the previous line version + 1, skipping kInvalidLine. Each store is a release store of an
// aligned 8-byte word, each load of a reader an acquire load: no fences. Between two stores stands
// StorePoint() (base/store_point.h), where the simulator lets other nodes read.
//
// A reader accepts a copy when word 0 is unlocked and the same before and after the copy (needed where a
// piece of the copy is smaller than a line), and every version_i equals word 1's and is not kInvalidLine. For
// following the OVP it is enough that the pair (word 0, word 1) was read with word 0 the same before and
// after; the lock bit may be set.
#ifndef FURROW_STORAGE_OBJECT_H_
#define FURROW_STORAGE_OBJECT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace furrow::storage {

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kHeaderBytes = 16;
inline constexpr size_t kFirstLinePayload = kLineBytes - kHeaderBytes;  // 48
inline constexpr size_t kLinePayload = kLineBytes - 2;                  // 62
inline constexpr uint16_t kInvalidLine = 0xffff;
inline constexpr size_t kMaxSlotBytes = size_t{1} << 20;

// Word 0.
class ObjectWord {
 public:
  constexpr ObjectWord() = default;
  constexpr ObjectWord(Timestamp ts, bool allocated, bool locked)
      : bits_(ts.value() | (allocated ? kAllocated : 0) | (locked ? kLocked : 0)) {}
  static constexpr ObjectWord FromBits(uint64_t bits) {
    ObjectWord w;
    w.bits_ = bits;
    return w;
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr bool locked() const { return (bits_ & kLocked) != 0; }
  constexpr bool allocated() const { return (bits_ & kAllocated) != 0; }
  constexpr Timestamp timestamp() const { return Timestamp(bits_ & Timestamp::kMaxValue); }
  constexpr ObjectWord WithLock(bool locked) const {
    return FromBits(locked ? bits_ | kLocked : bits_ & ~kLocked);
  }
  friend constexpr bool operator==(ObjectWord, ObjectWord) = default;

 private:
  static constexpr uint64_t kLocked = uint64_t{1} << 63;
  static constexpr uint64_t kAllocated = uint64_t{1} << 62;
  uint64_t bits_ = 0;
};
static_assert(sizeof(ObjectWord) == 8);

// Where an old version lies: a byte offset into its primary's old-version arena (old_versions.h); 0 is none.
using OldVersionPointer = StrongId<struct OldVersionPointerTag, uint64_t>;

// Word 1.
class VersionWord {
 public:
  constexpr VersionWord() = default;
  constexpr VersionWord(uint16_t line, OldVersionPointer ovp)
      : bits_(uint64_t{line} << 48 | (ovp.value() & ((uint64_t{1} << 48) - 1))) {}
  static constexpr VersionWord FromBits(uint64_t bits) {
    VersionWord w;
    w.bits_ = bits;
    return w;
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr uint16_t line() const { return static_cast<uint16_t>(bits_ >> 48); }
  constexpr OldVersionPointer ovp() const { return OldVersionPointer(bits_ & ((uint64_t{1} << 48) - 1)); }

 private:
  uint64_t bits_ = 0;
};
static_assert(sizeof(VersionWord) == 8);

struct ObjectHeader {
  ObjectWord word;
  VersionWord version;
};
static_assert(sizeof(ObjectHeader) == kHeaderBytes);

// Payload bytes that a slot can hold.
constexpr size_t PayloadCapacity(size_t slot_bytes) {
  return kFirstLinePayload + (slot_bytes / kLineBytes - 1) * kLinePayload;
}
// Bytes at the front of a slot that hold the first `payload` bytes of payload (whole lines).
constexpr size_t SpanBytes(size_t payload) {
  return payload <= kFirstLinePayload
             ? kLineBytes
             : kLineBytes + (payload - kFirstLinePayload + kLinePayload - 1) / kLinePayload * kLineBytes;
}

// Starts to load the first `bytes` of a slot into the caches, for a copy or an install that comes after
// some other work. A cold object costs a few hundred nanoseconds, one that was prefetched in time a few
// dozen.
enum class PrefetchFor : uint8_t { kRead, kWrite };
inline void PrefetchObject(const std::byte* slot, size_t bytes, PrefetchFor purpose) {
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    if (purpose == PrefetchFor::kRead) {
      __builtin_prefetch(slot + i, 0);
    } else {
      __builtin_prefetch(slot + i, 1);
    }
  }
}

// --- by the primary's CPU, or by the owner of a backup copy ---

inline ObjectWord LoadWord(const std::byte* slot) {
  return ObjectWord::FromBits(
      std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(slot)))
          .load(std::memory_order_acquire));
}
// Locks if word 0 is `expected` (which is unlocked). False: it is locked or has changed.
bool TryLock(std::byte* slot, ObjectWord expected);
// Clears the lock bit and changes nothing else.
void Unlock(std::byte* slot);
// Replaces the object. The caller holds the lock (or owns a backup copy, which nobody else writes). `payload`
// may be shorter than the capacity; the rest becomes zero. `word` is stored last, as it is: its lock bit is
// set while another holder of the lock remains.
void Install(std::byte* slot, size_t slot_bytes, std::span<const std::byte> payload, ObjectWord word,
             OldVersionPointer ovp);
// Copies the locked slot, which nobody else may change, to `image` as the old version that it becomes:
// unlocked. `image` has room for slot_bytes, is 64-aligned and may have stale readers.
void CopyImage(const std::byte* slot, size_t slot_bytes, std::byte* image);
// Makes memory fresh: everything zero, line versions too. Nobody but stale readers looks at it.
void ClearSlot(std::byte* slot, size_t slot_bytes);

// --- by readers ---

enum class CopyResult : uint8_t {
  kObject,  // the payload is there and belongs to `header`, which is unlocked
  kHeader,  // only `header` is consistent: the object is locked, or was changing while it was copied
  kTorn,    // nothing is: try again
};
// Copies the first dst.size() bytes of payload, stripped of line versions, from memory that the primary may
// be changing now: own memory or memory shared with it.
CopyResult CopyObject(const std::byte* slot, std::span<std::byte> dst, ObjectHeader* header);
// The same for an image that a READ of SpanBytes(dst.size()) bytes has placed in `image`. `before` and
// `after` are word 0 read before and after it; with a fabric whose pieces are whole lines pass the image's
// own word for both.
CopyResult StripImage(std::span<const std::byte> image, ObjectWord before, ObjectWord after,
                      std::span<std::byte> dst, ObjectHeader* header);
// Reads only the pair (word 0, word 1). False: torn.
bool CopyHeader(const std::byte* slot, ObjectHeader* header);

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_OBJECT_H_
