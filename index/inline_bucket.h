// A bucket that holds rows: what a hash index with inline rows is made of (inline_hash.h). Here is the layout
// of one bucket, and nothing of transactions.
//
// Payload (little-endian):
//   off          size        field
//   0            4           index id
//   4            4           bucket number (overflow buckets: that of their home)
//   8            8           address of the next bucket of the chain; 0: this is the last
//   16           2 * slots   of each slot: key bytes + 1 (0: the slot is free), value bytes
//   align8       slots * (K + V)  the slots: key in K bytes, value in V bytes, the rest of both zero
//
// K and V are the table's longest key and value rounded up to 8, so that values are 8-byte aligned in the
// copies that transactions hand out and keys compare by words. A free slot is all zero. A row stays in its
// slot until it is deleted.
#ifndef FURROW_INDEX_INLINE_BUCKET_H_
#define FURROW_INDEX_INLINE_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "storage/object.h"

namespace furrow::index {

// The largest K + V. Beyond it the bytes that each update of a row logs and copies for its neighbours cost
// more than the second READ that is saved (docs/performance.md).
inline constexpr uint32_t kMaxInlineRowBytes = 64;
// Slots of a bucket, at least: what they average out decides how full buckets may be.
inline constexpr uint32_t kMinInlineSlots = 8;
// Rows per bucket that an array is sized for, in eighths of its slots: 5 of 8 leave 97.6 rows of 100 in
// their home bucket.
inline constexpr uint32_t kMeanInlineEighths = 5;
inline constexpr uint32_t kMaxInlineSlots = 64;

struct InlineBucketHeader {
  uint32_t index;
  uint32_t number;
  uint64_t next;
};
static_assert(sizeof(InlineBucketHeader) == 16 && offsetof(InlineBucketHeader, next) == 8);

// Where things lie in the buckets of a table.
struct InlineGeometry {
  uint32_t slots = 0;
  uint32_t key_room = 0;    // K
  uint32_t value_room = 0;  // V

  static constexpr uint32_t Room(uint32_t bytes) { return (bytes + 7) & ~uint32_t{7}; }
  // Of the buckets of a new table: as many slots as fit in the object that holds kMinInlineSlots. No slots:
  // such rows are too large.
  static constexpr InlineGeometry For(uint32_t max_key_bytes, uint32_t max_value_bytes);

  constexpr uint32_t slots_at() const { return sizeof(InlineBucketHeader) + Room(2 * slots); }
  constexpr uint32_t slot_bytes() const { return key_room + value_room; }
  constexpr uint32_t slot_at(uint32_t slot) const { return slots_at() + slot * slot_bytes(); }
  constexpr uint32_t payload_bytes() const { return slot_at(slots); }
  // Buckets for so many rows.
  uint32_t BucketsFor(uint64_t rows) const;
  friend constexpr bool operator==(const InlineGeometry&, const InlineGeometry&) = default;
};

constexpr InlineGeometry InlineGeometry::For(uint32_t max_key_bytes, uint32_t max_value_bytes) {
  if (max_key_bytes > kMaxInlineRowBytes || max_value_bytes > kMaxInlineRowBytes) return {};
  InlineGeometry g{
      .slots = kMinInlineSlots, .key_room = Room(max_key_bytes), .value_room = Room(max_value_bytes)};
  if (g.slot_bytes() > kMaxInlineRowBytes) return {};
  const size_t room = storage::PayloadCapacity(storage::SpanBytes(g.payload_bytes()));
  while (g.slots < kMaxInlineSlots) {
    InlineGeometry more = g;
    ++more.slots;
    if (more.payload_bytes() > room) break;
    g = more;
  }
  return g;
}

// Rows of 16 bytes: buckets of 192 bytes; of 64 bytes: buckets of 576 bytes, filled to the last byte.
static_assert(InlineGeometry::For(8, 8).slots == 8);
static_assert(storage::SpanBytes(InlineGeometry::For(8, 8).payload_bytes()) == 192);
static_assert(InlineGeometry::For(8, 56).payload_bytes() == storage::PayloadCapacity(576));
static_assert(InlineGeometry::For(8, 57).slots == 0 && InlineGeometry::For(UINT32_MAX, 1).slots == 0);

// A key as slots hold it, for comparing.
class InlineKey {
 public:
  // key.size() <= kMaxInlineRowBytes.
  explicit InlineKey(std::string_view key);
  uint32_t bytes() const { return bytes_; }
  // Whether `slot` begins with this key, padded to `room` bytes. 8-byte aligned; room <= kMaxInlineRowBytes.
  bool Is(const std::byte* slot, uint32_t room) const {
    uint64_t differ = 0;
    for (uint32_t i = 0; i < room / 8; ++i) differ |= words_[i] ^ Word(slot + 8 * size_t{i});
    return differ == 0;
  }

 private:
  static uint64_t Word(const std::byte* p) {
    uint64_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return word;
  }
  uint64_t words_[kMaxInlineRowBytes / 8] = {};
  uint32_t bytes_;
};

// A bucket's payload, which outlives this.
class InlineBucket {
 public:
  InlineBucket(const std::byte* payload, const InlineGeometry& geometry)
      : payload_(payload), geometry_(geometry) {}

  InlineBucketHeader header() const;
  bool used(uint32_t slot) const { return lengths(slot)[0] != std::byte{0}; }
  // Number of the slot; -1: there is none.
  int Find(const InlineKey& key) const;
  int FirstFree() const;
  uint32_t used_slots() const;
  // Of a slot that is in use.
  std::string_view key(uint32_t slot) const;
  std::string_view value(uint32_t slot) const;
  // Whether the lengths of a slot that is in use fit in it.
  bool Sound(uint32_t slot) const;

 private:
  const std::byte* lengths(uint32_t slot) const {
    return payload_ + sizeof(InlineBucketHeader) + 2 * size_t{slot};
  }
  const std::byte* payload_;
  const InlineGeometry& geometry_;
};

// --- changes of a payload of geometry.payload_bytes() ---
// Puts a row into a free slot.
void PutInlineRow(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot,
                  std::string_view key, std::string_view value);
// Replaces the value of a slot that is in use; `value` may lie in it.
void PutInlineValue(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot,
                    std::string_view value);
void ClearInlineRow(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot);
void SetInlineNext(std::span<std::byte> payload, uint64_t next);

}  // namespace furrow::index

#endif  // FURROW_INDEX_INLINE_BUCKET_H_
