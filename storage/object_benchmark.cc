// What an object costs: ns per CopyObject, Install and CopyImage, by size, beside memcpy of the same payload.
//   hot   the same 16 objects again and again
//   cold  objects in random order over 256 MB; "chained": each address depends on the last copy, as in a
//   lookup;
//         "prefetch": PrefetchObject() four objects ahead
// Each figure is the least of many short batches, so that it holds on a machine that has other work.
// Run: build/release/bin/object-benchmark
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/memory_file.h"
#include "base/random.h"
#include "storage/object.h"

namespace furrow::storage {
namespace {

constexpr size_t kMemory = size_t{256} << 20;
constexpr size_t kHotObjects = 16;

struct Arena {
  std::byte* base;
  size_t slot_bytes;
  std::byte* at(size_t i) const { return base + i * slot_bytes; }
};

// Least ns per call of fn(i) over `batches` batches of `count` calls.
template <class Fn>
double Measure(int batches, size_t count, Fn fn) {
  double best = 1e9;
  for (int b = 0; b < batches; ++b) {
    Nanos start = MonotonicClock().Now();
    for (size_t i = 0; i < count; ++i) fn(static_cast<size_t>(b) * count + i);
    best = std::min(best, static_cast<double>(MonotonicClock().Now() - start) / static_cast<double>(count));
  }
  return best;
}

void Run(std::byte* memory, size_t slot_bytes) {
  const Arena arena{memory, slot_bytes};
  const size_t objects = kMemory / slot_bytes;
  const size_t size = PayloadCapacity(slot_bytes);
  std::vector<std::byte> payload(size, std::byte{7});
  std::vector<std::byte> got(size);
  for (size_t i = 0; i < objects; ++i) {
    ClearSlot(arena.at(i), slot_bytes);
    Install(arena.at(i), slot_bytes, payload, ObjectWord(Timestamp(1), true, false), OldVersionPointer());
  }
  Random random(1);
  std::vector<uint32_t> order(1 << 16);
  for (uint32_t& o : order) o = static_cast<uint32_t>(random.Below(objects));

  auto copy = [&](size_t i) {
    ObjectHeader header;
    if (CopyObject(arena.at(i), got, &header) != CopyResult::kObject) std::abort();
    asm volatile("" : : "r"(got.data()) : "memory");
    return header.word.bits();
  };
  auto plain = [&](size_t i) {
    std::memcpy(got.data(), arena.at(i), size);
    asm volatile("" : : "r"(got.data()) : "memory");
  };
  auto install = [&](size_t i) {
    std::byte* slot = arena.at(i);
    ObjectWord word = LoadWord(slot);
    if (!TryLock(slot, word)) std::abort();
    Install(slot, slot_bytes, payload, ObjectWord(word.timestamp().Next(), true, false), OldVersionPointer());
  };
  // A different part of the order in each batch, so that nothing is warm.
  auto cold = [&](size_t i) { return order[i % order.size()]; };
  uint64_t chain = 0;
  const int hot_batches = 2000;
  const int cold_batches = 200;
  constexpr size_t kAhead = 4;
  double f[9];
  f[0] = Measure(hot_batches, 256, [&](size_t i) { plain(i % kHotObjects); });
  f[1] = Measure(hot_batches, 256, [&](size_t i) { copy(i % kHotObjects); });
  f[2] = Measure(hot_batches, 256, [&](size_t i) { install(i % kHotObjects); });
  f[3] = Measure(cold_batches, 256, [&](size_t i) { plain(cold(i)); });
  f[4] = Measure(cold_batches, 256, [&](size_t i) { copy(cold(i + 20'000)); });
  f[5] = Measure(cold_batches, 256,
                 [&](size_t i) { chain = copy((cold(i + 40'000) + (chain >> 62)) % objects); });
  f[6] = Measure(cold_batches, 256, [&](size_t i) {
    PrefetchObject(arena.at(cold(i + 50'000 + kAhead)), slot_bytes, PrefetchFor::kRead);
    copy(cold(i + 50'000));
  });
  f[7] = Measure(cold_batches, 256, [&](size_t i) { install(cold(i + 10'000)); });
  f[8] = Measure(cold_batches, 256, [&](size_t i) {
    PrefetchObject(arena.at(cold(i + 30'000 + kAhead)), slot_bytes, PrefetchFor::kWrite);
    install(cold(i + 30'000));
  });
  std::printf("%6zu  %7.1f %7.1f %8.1f | %7.1f %7.1f %8.1f %8.1f | %8.1f %8.1f\n", slot_bytes, f[0], f[1],
              f[2], f[3], f[4], f[5], f[6], f[7], f[8]);
}

int Main() {
  absl::StatusOr<MemoryFile> memory = MemoryFile::Anonymous(kMemory);
  if (!memory.ok()) {
    std::fprintf(stderr, "object-benchmark needs 256 MB of memory: %s\n", memory.status().ToString().c_str());
    return 1;
  }
  std::printf("ns per object             hot  |                               cold |\n");
  std::printf(" bytes   memcpy    copy  install |  memcpy    copy  chained prefetch |  install prefetch\n");
  for (size_t slot_bytes : {64, 128, 384, 512, 704}) Run(memory->data(), slot_bytes);
  return 0;
}

}  // namespace
}  // namespace furrow::storage

int main() { return furrow::storage::Main(); }
