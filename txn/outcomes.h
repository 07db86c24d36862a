// OutcomeBits: what a replica remembers of the last transactions of one coordinator thread: one bit each,
// committed or not, so that an unknown outcome can be asked for. The query itself comes later; the bits are
// kept from now on.
#ifndef FURROW_TXN_OUTCOMES_H_
#define FURROW_TXN_OUTCOMES_H_

#include <cstdint>
#include <vector>

namespace furrow::txn {

enum class RememberedOutcome : uint8_t { kNotCommittedHere, kCommitted, kExpired };

// Owner thread only. 8 KB per coordinator thread.
class OutcomeBits {
 public:
  static constexpr uint64_t kRemembered = 65536;

  OutcomeBits() : bits_(kRemembered / 64) {}

  void SetCommitted(uint64_t local) {
    Advance(local);
    if (local + kRemembered <= newest_) return;  // its bit is another's by now
    bits_[Word(local)] |= Bit(local);
  }
  // Makes room for `local`, which is new: what lies kRemembered behind is forgotten.
  void Advance(uint64_t local) {
    if (local <= newest_) return;
    if (local - newest_ >= kRemembered) {
      bits_.assign(bits_.size(), 0);
    } else {
      for (uint64_t l = newest_ + 1; l <= local; ++l) bits_[Word(l)] &= ~Bit(l);
    }
    newest_ = local;
  }
  // No transaction of the thread was ever seen.
  bool empty() const { return newest_ == 0; }
  RememberedOutcome Find(uint64_t local) const {
    if (local + kRemembered <= newest_) return RememberedOutcome::kExpired;
    if (local > newest_ || (bits_[Word(local)] & Bit(local)) == 0)
      return RememberedOutcome::kNotCommittedHere;
    return RememberedOutcome::kCommitted;
  }

 private:
  static uint64_t Word(uint64_t local) { return local % kRemembered / 64; }
  static uint64_t Bit(uint64_t local) { return uint64_t{1} << (local % 64); }
  std::vector<uint64_t> bits_;
  uint64_t newest_ = 0;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_OUTCOMES_H_
