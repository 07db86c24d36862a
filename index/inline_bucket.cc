#include "index/inline_bucket.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace furrow::index {

static_assert(kMaxInlineRowBytes < 255, "lengths are bytes, and that of a key is kept plus 1");

uint32_t InlineGeometry::BucketsFor(uint64_t rows) const {
  const uint64_t bounded = std::min<uint64_t>(rows, uint64_t{1} << 40);
  const uint64_t buckets = bounded * 8 / (uint64_t{slots} * kMeanInlineEighths) + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(buckets, 1u << 30));
}

InlineKey::InlineKey(std::string_view key) : bytes_(static_cast<uint32_t>(key.size())) {
  FURROW_CHECK(key.size() <= sizeof(words_));
  if (!key.empty()) std::memcpy(words_, key.data(), key.size());
}

InlineBucketHeader InlineBucket::header() const {
  InlineBucketHeader header;
  std::memcpy(&header, payload_, sizeof(header));
  return header;
}

int InlineBucket::Find(const InlineKey& key) const {
  const auto stored = static_cast<std::byte>(key.bytes() + 1);
  for (uint32_t slot = 0; slot < geometry_.slots; ++slot) {
    if (lengths(slot)[0] == stored && key.Is(payload_ + geometry_.slot_at(slot), geometry_.key_room)) {
      return static_cast<int>(slot);
    }
  }
  return -1;
}

int InlineBucket::FirstFree() const {
  for (uint32_t slot = 0; slot < geometry_.slots; ++slot) {
    if (!used(slot)) return static_cast<int>(slot);
  }
  return -1;
}

uint32_t InlineBucket::used_slots() const {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < geometry_.slots; ++slot) count += used(slot) ? 1 : 0;
  return count;
}

std::string_view InlineBucket::key(uint32_t slot) const {
  return {reinterpret_cast<const char*>(payload_ + geometry_.slot_at(slot)),
          std::to_integer<size_t>(lengths(slot)[0]) - 1};
}

std::string_view InlineBucket::value(uint32_t slot) const {
  return {reinterpret_cast<const char*>(payload_ + geometry_.slot_at(slot) + geometry_.key_room),
          std::to_integer<size_t>(lengths(slot)[1])};
}

bool InlineBucket::Sound(uint32_t slot) const {
  return key(slot).size() <= geometry_.key_room && value(slot).size() <= geometry_.value_room;
}

namespace {

std::byte* LengthsIn(std::span<std::byte> payload, uint32_t slot) {
  return payload.data() + sizeof(InlineBucketHeader) + 2 * size_t{slot};
}

}  // namespace

void PutInlineRow(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot,
                  std::string_view key, std::string_view value) {
  FURROW_CHECK(payload.size() >= geometry.payload_bytes() && slot < geometry.slots);
  FURROW_CHECK(key.size() <= geometry.key_room);
  LengthsIn(payload, slot)[0] = static_cast<std::byte>(key.size() + 1);
  std::byte* out = payload.data() + geometry.slot_at(slot);
  if (!key.empty()) std::memcpy(out, key.data(), key.size());
  PutInlineValue(payload, geometry, slot, value);
}

void PutInlineValue(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot,
                    std::string_view value) {
  FURROW_CHECK(payload.size() >= geometry.payload_bytes() && slot < geometry.slots);
  FURROW_CHECK(value.size() <= geometry.value_room);
  LengthsIn(payload, slot)[1] = static_cast<std::byte>(value.size());
  std::byte* out = payload.data() + geometry.slot_at(slot) + geometry.key_room;
  if (!value.empty()) std::memmove(out, value.data(), value.size());
  std::memset(out + value.size(), 0, geometry.value_room - value.size());
}

void ClearInlineRow(std::span<std::byte> payload, const InlineGeometry& geometry, uint32_t slot) {
  FURROW_CHECK(payload.size() >= geometry.payload_bytes() && slot < geometry.slots);
  std::memset(LengthsIn(payload, slot), 0, 2);
  std::memset(payload.data() + geometry.slot_at(slot), 0, geometry.slot_bytes());
}

void SetInlineNext(std::span<std::byte> payload, uint64_t next) {
  std::memcpy(payload.data() + offsetof(InlineBucketHeader, next), &next, sizeof(next));
}

}  // namespace furrow::index
