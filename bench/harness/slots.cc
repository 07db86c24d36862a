#include "bench/harness/slots.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "storage/object.h"

namespace furrow::bench {
namespace {

using storage::kLineBytes;
using storage::ObjectWord;

ObjectWord WordOf(std::span<const std::byte> slot) {
  uint64_t bits;
  std::memcpy(&bits, slot.data(), sizeof(bits));
  return ObjectWord::FromBits(bits);
}

}  // namespace

std::string CompareSlots(std::span<const std::byte> primary, std::span<const std::byte> backup) {
  const ObjectWord p = WordOf(primary);
  const ObjectWord b = WordOf(backup);
  if (p.locked() || b.locked()) return p.locked() ? "locked at the primary" : "locked at the backup";
  if (p != b) {
    return absl::StrCat("timestamp ", p.timestamp().value(), p.allocated() ? "" : " free",
                        " at the primary, ", b.timestamp().value(), b.allocated() ? "" : " free",
                        " at the backup");
  }
  if (!p.allocated()) return {};
  for (size_t at = storage::kHeaderBytes; at < primary.size();) {
    const size_t end = at / kLineBytes * kLineBytes + kLineBytes;
    if (std::memcmp(primary.data() + at, backup.data() + at, end - at) != 0) {
      return absl::StrCat("the payload differs in the 64 bytes from ", end - kLineBytes);
    }
    at = end + 2;
  }
  return {};
}

bool StripSlot(std::span<const std::byte> slot, std::vector<std::byte>* payload) {
  if (!WordOf(slot).allocated()) return false;
  payload->resize(storage::PayloadCapacity(slot.size()));
  std::byte* out = payload->data();
  out = std::copy(slot.begin() + storage::kHeaderBytes, slot.begin() + kLineBytes, out);
  for (size_t line = kLineBytes; line < slot.size(); line += kLineBytes) {
    out = std::copy(slot.begin() + static_cast<ptrdiff_t>(line) + 2,
                    slot.begin() + static_cast<ptrdiff_t>(line + kLineBytes), out);
  }
  return true;
}

bool FlipBit(const storage::Region& region, absl::FunctionRef<bool(std::span<const std::byte>)> choose) {
  std::vector<std::byte> payload;
  for (uint32_t number = 1; number < region.blocks(); ++number) {
    const storage::BlockHeader block = region.ReadBlock(number);
    for (uint32_t i = 0; block.slot_bytes != 0 && i < block.slots; ++i) {
      std::byte* slot = region.base() + size_t{number} * storage::kBlockBytes + size_t{i} * block.slot_bytes;
      if (!StripSlot(std::span<const std::byte>(slot, block.slot_bytes), &payload) || !choose(payload))
        continue;
      // The last byte of the first line: in a row of some length a byte of its value.
      slot[kLineBytes - 1] ^= std::byte{1};
      return true;
    }
  }
  return false;
}

}  // namespace furrow::bench
