#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

#include <bit>
#include <utility>

#include "base/check.h"

namespace furrow {
namespace {

uint64_t SplitMix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

thread_local Random* entropy_source = nullptr;

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = SplitMix64(seed);
}

uint64_t Random::Next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Random::Below(uint64_t bound) {
  FURROW_DCHECK(bound > 0);
  // The upper half of Next() * bound is uniform once the products that some results own one more of are
  // redrawn.
  unsigned __int128 product = static_cast<unsigned __int128>(Next()) * bound;
  if (static_cast<uint64_t>(product) < bound) [[unlikely]] {
    const uint64_t surplus = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < surplus) product = static_cast<unsigned __int128>(Next()) * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

int64_t Random::Between(int64_t low, int64_t high) {
  FURROW_DCHECK(low <= high);
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t offset = width == 0 ? Next() : Below(width);  // 0: all 2^64 values
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

double Random::NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

uint64_t EntropySeed() {
  if (entropy_source != nullptr) return entropy_source->Next();
  uint64_t seed;
  ssize_t got;
  do {
    got = getrandom(&seed, sizeof(seed), 0);
  } while (got < 0 && errno == EINTR);
  FURROW_CHECK(got == sizeof(seed));  // the kernel promises up to 256 bytes at once
  return seed;
}

Random* SetEntropySource(Random* source) { return std::exchange(entropy_source, source); }

}  // namespace furrow
