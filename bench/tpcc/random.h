// The random values of TPC-C (revision 5.11, clauses 2.1.6 and 4.3.2): NURand, last names, a-strings and
// n-strings. One owner; seeded, so that a terminal's sequence is the same in every run with the same seed.
#ifndef FURROW_BENCH_TPCC_RANDOM_H_
#define FURROW_BENCH_TPCC_RANDOM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace furrow::bench::tpcc {

// The constants C of NURand (clause 2.1.6.1). The one for last names differs between load and run by a delta
// in [65, 119] other than 96 and 112, so that the run does not ask for the very names that the load made
// frequent.
struct NurandConstants {
  uint32_t last_load = 0;  // [0, 255]
  uint32_t last_run = 0;   // [0, 255]
  uint32_t customer = 0;   // [0, 1023]
  uint32_t item = 0;       // [0, 8191]

  static NurandConstants FromSeed(uint64_t seed);
  static bool ValidDelta(uint32_t load, uint32_t run);
};

class TpccRandom {
 public:
  TpccRandom(uint64_t seed, const NurandConstants& constants) : random_(seed), constants_(constants) {}

  // Uniform in [low, high].
  uint32_t Uniform(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_.Below(uint64_t{high} - low + 1));
  }
  bool Percent(uint32_t percent) { return Uniform(1, 100) <= percent; }

  // Clause 2.1.6: (((random(0, A) | random(x, y)) + C) % (y - x + 1)) + x.
  uint32_t Nurand(uint32_t a, uint32_t x, uint32_t y, uint32_t c) {
    return ((Uniform(0, a) | Uniform(x, y)) + c) % (y - x + 1) + x;
  }
  uint32_t CustomerId(uint32_t customers) { return Nurand(1023, 1, customers, constants_.customer); }
  uint32_t ItemId(uint32_t items) { return Nurand(8191, 1, items, constants_.item); }
  // Numbers of last names, [0, 999].
  uint32_t LastNameForRun() { return Nurand(255, 0, 999, constants_.last_run); }
  uint32_t LastNameForLoad() { return Nurand(255, 0, 999, constants_.last_load); }

  // Random a-string [x .. y]: fills `to` with between `low` and to.size() alphanumeric characters, zero after
  // them. Returns the length.
  size_t AString(std::span<char> to, size_t low);
  // Random n-string of exactly to.size() digits.
  void NString(std::span<char> to);
  // Clause 4.3.2.7: four random digits and "11111".
  void Zip(std::span<char, 9> to);
  // Clause 4.3.3.1: an a-string [26 .. 50] that contains "ORIGINAL" in one of ten.
  void Data(std::span<char, 50> to);

  Random& raw() { return random_; }

 private:
  Random random_;
  NurandConstants constants_;
};

// Clause 4.3.2.3: the last name of `number` (0..999), three syllables, zero-padded to 16.
void LastName(uint32_t number, std::span<char, 16> to);

// A random permutation of 1..n (clause 4.3.3.1, O_C_ID).
std::vector<uint32_t> Permutation(uint32_t n, Random& random);

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_RANDOM_H_
