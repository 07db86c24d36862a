#include "bench/tpcc/random.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace furrow::bench::tpcc {
namespace {

constexpr std::string_view kAlphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kSyllables[] = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
                                           "ESE", "ANTI",  "CALLY", "ATION", "EING"};

}  // namespace

bool NurandConstants::ValidDelta(uint32_t load, uint32_t run) {
  const uint32_t delta = load > run ? load - run : run - load;
  return delta >= 65 && delta <= 119 && delta != 96 && delta != 112;
}

NurandConstants NurandConstants::FromSeed(uint64_t seed) {
  Random random(seed);
  NurandConstants c;
  c.last_load = static_cast<uint32_t>(random.Below(256));
  do {
    c.last_run = static_cast<uint32_t>(random.Below(256));
  } while (!ValidDelta(c.last_load, c.last_run));
  c.customer = static_cast<uint32_t>(random.Below(1024));
  c.item = static_cast<uint32_t>(random.Below(8192));
  return c;
}

size_t TpccRandom::AString(std::span<char> to, size_t low) {
  const size_t length = Uniform(static_cast<uint32_t>(low), static_cast<uint32_t>(to.size()));
  uint64_t bits = 0;
  for (size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) bits = random_.Next();
    to[i] = kAlphanumeric[((bits & 0xff) * kAlphanumeric.size()) >> 8];
    bits >>= 8;
  }
  std::fill(to.begin() + static_cast<ptrdiff_t>(length), to.end(), '\0');
  return length;
}

void TpccRandom::NString(std::span<char> to) {
  for (char& c : to) c = static_cast<char>('0' + Uniform(0, 9));
}

void TpccRandom::Zip(std::span<char, 9> to) {
  NString(to.first(4));
  std::fill(to.begin() + 4, to.end(), '1');
}

void TpccRandom::Data(std::span<char, 50> to) {
  constexpr std::string_view kOriginal = "ORIGINAL";
  const size_t length = AString(to, 26);
  if (!Percent(10)) return;
  const size_t place = Uniform(0, static_cast<uint32_t>(length - kOriginal.size()));
  std::copy(kOriginal.begin(), kOriginal.end(), to.begin() + static_cast<ptrdiff_t>(place));
}

void LastName(uint32_t number, std::span<char, 16> to) {
  FURROW_CHECK(number <= 999);
  std::fill(to.begin(), to.end(), '\0');
  auto out = to.begin();
  for (const uint32_t digit : {number / 100, number / 10 % 10, number % 10}) {
    out = std::copy(kSyllables[digit].begin(), kSyllables[digit].end(), out);
  }
}

std::vector<uint32_t> Permutation(uint32_t n, Random& random) {
  std::vector<uint32_t> values(n);
  std::iota(values.begin(), values.end(), 1u);
  for (size_t i = n; i > 1; --i) std::swap(values[i - 1], values[random.Below(i)]);
  return values;
}

}  // namespace furrow::bench::tpcc
