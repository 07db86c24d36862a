// The seam for randomness. Only base/ reads entropy; all else receives a Random or a seed.
#ifndef FURROW_BASE_RANDOM_H_
#define FURROW_BASE_RANDOM_H_

#include <cstdint>

namespace furrow {

// xoshiro256** seeded by splitmix64. Same seed, same sequence, on every machine. One owner; not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t Next();
  // Uniform in [0, bound); bound > 0. No modulo bias.
  uint64_t Below(uint64_t bound);
  // Uniform in [low, high], both included.
  int64_t Between(int64_t low, int64_t high);
  // True once in `one_in` on average; one_in > 0.
  bool OneIn(uint64_t one_in) { return Below(one_in) == 0; }
  double NextDouble();  // [0, 1)
  // An independent generator: for a component that must not disturb its siblings' sequences.
  Random Fork() { return Random(Next()); }

 private:
  uint64_t state_[4];
};

// 64 bits of the kernel's entropy: seeds, nonces, rkeys, secrets. Thread-safe.
uint64_t EntropySeed();

// For simulation: EntropySeed() of the calling thread draws from `source` (null: from the kernel again), so
// that a seed determines nonces and keys too. Returns the previous source.
Random* SetEntropySource(Random* source);

}  // namespace furrow

#endif  // FURROW_BASE_RANDOM_H_
