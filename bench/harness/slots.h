// Slots of replicas at rest: compared, and taken apart.
#ifndef FURROW_BENCH_HARNESS_SLOTS_H_
#define FURROW_BENCH_HARNESS_SLOTS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/region.h"

namespace furrow::bench {

// Compares one slot of two replicas: timestamp, allocated bit, no lock, and the payload of an allocated
// object. Line versions and old-version pointers may differ. Empty: the same; otherwise what differs.
std::string CompareSlots(std::span<const std::byte> primary, std::span<const std::byte> backup);

// The payload of a slot without its line versions. False: it is not allocated.
bool StripSlot(std::span<const std::byte> slot, std::vector<std::byte>* payload);

// Flips a bit in the payload of the first object of a region for which `choose` is true: damage for tests of
// the checks. False: there is none.
bool FlipBit(const storage::Region& region,
             absl::FunctionRef<bool(std::span<const std::byte> payload)> choose);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_SLOTS_H_
