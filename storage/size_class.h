// Slot sizes: by 64 B up to 1 KB, then by an eighth of the power of two below, up to 1 MB.
#ifndef FURROW_STORAGE_SIZE_CLASS_H_
#define FURROW_STORAGE_SIZE_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace furrow::storage {

using SizeClass = StrongId<struct SizeClassTag, uint8_t>;

inline constexpr size_t kSizeClasses = 16 + 10 * 8;  // 64..1024, then 8 per doubling up to 1 MB

// Bytes of a slot of this class; multiple of 64.
size_t SlotBytes(SizeClass size_class);
// The smallest class whose slots hold `payload` bytes. payload <= MaxPayload().
SizeClass ClassForPayload(size_t payload);
// The class whose slots have exactly `slot_bytes` bytes; nothing when there is none (a bad header from a peer
// or file).
std::optional<SizeClass> ClassForSlotBytes(size_t slot_bytes);
// The largest payload of any object.
size_t MaxPayload();

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_SIZE_CLASS_H_
