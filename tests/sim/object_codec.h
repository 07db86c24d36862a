// Payloads of the simulated workloads' objects: words, and a hash of them in the last word.
#ifndef FURROW_TESTS_SIM_OBJECT_CODEC_H_
#define FURROW_TESTS_SIM_OBJECT_CODEC_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace furrow::sim {

inline uint64_t HashWords(std::span<const int64_t> words) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (int64_t word : words) hash = (hash ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccd + (hash >> 31);
  return hash | 1;  // never 0, so that zeroed memory does not pass
}

// The words of a payload, without the hash. False: the hash is another one's.
inline bool Decode(std::span<const std::byte> payload, std::vector<int64_t>* words) {
  words->resize(payload.size() / 8 - 1);
  std::memcpy(words->data(), payload.data(), words->size() * 8);
  uint64_t hash;
  std::memcpy(&hash, payload.data() + words->size() * 8, 8);
  return hash == HashWords(*words);
}

// `words` must leave room for the hash; missing ones become 0.
inline void Encode(std::vector<int64_t> words, std::span<std::byte> payload) {
  words.resize(payload.size() / 8 - 1);
  uint64_t hash = HashWords(words);
  std::memcpy(payload.data(), words.data(), words.size() * 8);
  std::memcpy(payload.data() + words.size() * 8, &hash, 8);
}

}  // namespace furrow::sim

#endif  // FURROW_TESTS_SIM_OBJECT_CODEC_H_
