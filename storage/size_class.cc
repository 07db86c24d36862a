#include "storage/size_class.h"

#include <bit>

#include "base/check.h"
#include "storage/object.h"

namespace furrow::storage {

namespace {

constexpr size_t kSmallClasses = 16;  // steps of one line
constexpr size_t kSmallest = 64;
constexpr size_t kLargestSmall = kSmallClasses * kSmallest;  // 1 KB
constexpr size_t kSteps = 8;                                 // per doubling above it

constexpr size_t BytesOf(size_t index) {
  if (index < kSmallClasses) return (index + 1) * kSmallest;
  size_t doubling = (index - kSmallClasses) / kSteps;
  size_t step = (index - kSmallClasses) % kSteps + 1;
  return (kLargestSmall << doubling) * (kSteps + step) / kSteps;
}

// The smallest class of at least `bytes` bytes, which is not 0.
constexpr size_t IndexFor(size_t bytes) {
  if (bytes <= kLargestSmall) return (bytes + kSmallest - 1) / kSmallest - 1;
  size_t doubling = std::bit_width((bytes - 1) / kLargestSmall) - 1;
  size_t unit = (kLargestSmall << doubling) / kSteps;
  size_t step = (bytes - (kLargestSmall << doubling) + unit - 1) / unit;  // 1..8
  return kSmallClasses + doubling * kSteps + step - 1;
}

static_assert(BytesOf(0) == kLineBytes);
static_assert(BytesOf(kSmallClasses) == 1152);
static_assert(BytesOf(kSizeClasses - 1) == kMaxSlotBytes);
static_assert(IndexFor(kMaxSlotBytes) == kSizeClasses - 1);

}  // namespace

size_t SlotBytes(SizeClass size_class) {
  FURROW_CHECK(size_class.value() < kSizeClasses);
  return BytesOf(size_class.value());
}

SizeClass ClassForPayload(size_t payload) {
  FURROW_CHECK(payload <= MaxPayload());
  return SizeClass(static_cast<uint8_t>(IndexFor(SpanBytes(payload))));
}

std::optional<SizeClass> ClassForSlotBytes(size_t slot_bytes) {
  if (slot_bytes == 0 || slot_bytes > kMaxSlotBytes) return std::nullopt;
  size_t index = IndexFor(slot_bytes);
  if (BytesOf(index) != slot_bytes) return std::nullopt;
  return SizeClass(static_cast<uint8_t>(index));
}

size_t MaxPayload() { return PayloadCapacity(kMaxSlotBytes); }

}  // namespace furrow::storage
