// The row: one object, which names itself, and the pointer to it that index entries hold.
#ifndef FURROW_INDEX_ROW_H_
#define FURROW_INDEX_ROW_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/ids.h"
#include "storage/object.h"
#include "storage/size_class.h"

namespace furrow::index {

static_assert(std::endian::native == std::endian::little, "layouts are little-endian");

// Payload of a row's object (little-endian):
//   off          size  field
//   0            4     table id
//   4            4     lengths: bits 0..11 key, bits 12..31 value
//   8            k     key
//   align8(8+k)  v     value, 8-byte aligned in the copies that transactions hand out; the gap is zero
inline constexpr uint32_t kRowHeaderBytes = 8;
inline constexpr uint32_t kMaxRowKeyBytes = (1 << 12) - 1;
inline constexpr uint32_t kMaxRowValueBytes = (1 << 20) - 1;

struct RowHeader {
  uint32_t table;
  uint32_t lengths;
  uint32_t key_bytes() const { return lengths & kMaxRowKeyBytes; }
  uint32_t value_bytes() const { return lengths >> 12; }
};
static_assert(sizeof(RowHeader) == kRowHeaderBytes);

constexpr uint32_t RowValueOffset(size_t key_bytes) {
  return static_cast<uint32_t>((kRowHeaderBytes + key_bytes + 7) & ~size_t{7});
}
constexpr size_t RowBytes(size_t key_bytes, size_t value_bytes) {
  return RowValueOffset(key_bytes) + value_bytes;
}

// A row as a transaction sees it. Its bytes stay valid until the transaction is destroyed; they are those of
// the moment of the call, except that a row which the transaction itself writes may show what it has written.
struct Row {
  Address address;  // of its object, or of the bucket that it lies in (inline_hash.h)
  std::string_view key;
  std::string_view value;

  // Of a row that is an object of its own.
  uint32_t object_bytes() const { return static_cast<uint32_t>(RowBytes(key.size(), value.size())); }
};

// Takes a row's payload apart; false: the lengths do not fit in it, or it belongs to another table.
bool ParseRow(std::span<const std::byte> payload, uint32_t table, Address address, Row* row);
// Writes header, key and value into a payload of RowBytes() bytes.
void BuildRow(std::span<std::byte> payload, uint32_t table, std::string_view key, std::string_view value);
// Puts another value into a row's payload of at least RowBytes() bytes; `value` may lie in it.
void RewriteRow(std::span<std::byte> payload, std::string_view value);

// RowPointer: where a row lies and how much to read for it, so that one READ of the right length suffices,
// with a few bits of the key's hash, in 8 bytes. 0 is null.
//   bits    field
//   0..25   offset within the region / 64
//   26..47  region id
//   48..54  size class of the slot
//   55..63  tag
class RowPointer {
 public:
  static constexpr int kTagBits = 9;
  constexpr RowPointer() = default;
  constexpr RowPointer(Address address, storage::SizeClass size_class, uint32_t tag)
      : bits_(uint64_t{address.offset()} / storage::kLineBytes | uint64_t{address.region().value()} << 26 |
              uint64_t{size_class.value()} << 48 | uint64_t{tag} << 55) {
    FURROW_DCHECK(address.region().value() < (1u << 22) && tag < (1u << kTagBits));
  }
  static constexpr RowPointer FromBits(uint64_t bits) {
    RowPointer p;
    p.bits_ = bits;
    return p;
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr bool is_null() const { return bits_ == 0; }
  constexpr Address address() const {
    return Address(RegionId(static_cast<uint32_t>(bits_ >> 26) & ((1u << 22) - 1)),
                   static_cast<uint32_t>(bits_ & ((1u << 26) - 1)) * storage::kLineBytes);
  }
  constexpr storage::SizeClass size_class() const {
    return storage::SizeClass(static_cast<uint8_t>(bits_ >> 48) & 0x7f);
  }
  constexpr uint32_t tag() const { return static_cast<uint32_t>(bits_ >> 55); }
  // Payload of the whole slot: what a read of the row asks for.
  uint32_t read_bytes() const {
    return static_cast<uint32_t>(storage::PayloadCapacity(storage::SlotBytes(size_class())));
  }
  friend constexpr bool operator==(RowPointer, RowPointer) = default;

 private:
  uint64_t bits_ = 0;
};
static_assert(sizeof(RowPointer) == 8 && storage::kSizeClasses <= 128);

}  // namespace furrow::index

#endif  // FURROW_INDEX_ROW_H_
