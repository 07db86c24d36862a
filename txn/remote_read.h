// RemoteRead: one object at a remote primary, read with READs: where they go, and what their bytes come to.
// No I/O: the fast path (all inside one call) and the coroutine that waits for completions both use it.
//
// The READs of one look: word 0, the image, word 0 again, in this order, where a piece may be smaller than a
// line; the image alone where pieces are whole lines (storage/object.h). Owner thread only.
#ifndef FURROW_TXN_REMOTE_READ_H_
#define FURROW_TXN_REMOTE_READ_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "cluster/view.h"
#include "rdma/fabric.h"
#include "storage/object.h"
#include "txn/transaction.h"

namespace furrow::txn {

class RemoteRead {
 public:
  static constexpr size_t kMaxReads = 3;
  // Bytes that the READs of an object with `payload` bytes bring.
  static constexpr size_t BufferBytes(size_t payload) { return storage::SpanBytes(payload) + 16; }

  // `whole_lines`: the fabric copies a line as one piece. The transaction outlives it.
  RemoteRead(Transaction& tx, Address address, uint32_t bytes, bool hint, bool whole_lines);

  // Where to look now. False: there cannot be such an object; `result` says so. `mapping` and `view` as they
  // are now: they may change between two looks.
  bool Aim(const cluster::RegionMapping& mapping, const cluster::ClusterView& view, ReadResult* result);
  // The READs of this look, into `buffer` of BufferBytes(). Returns how many.
  size_t Plan(std::span<std::byte> buffer, rdma::Connection::NowRead (&reads)[kMaxReads]) const;

  enum class Verdict : uint8_t {
    kDone,   // the result is there
    kBusy,   // locked, or torn: somebody commits to it; look again
    kAgain,  // an older version, or the header of the block: Aim() and look again
  };
  Verdict Judge(std::span<std::byte> buffer, ReadResult* result);
  // It stayed locked or torn for too long, or its older version is nowhere. kDone or kAgain.
  Verdict GiveUp(ReadResult* result);

 private:
  // An address from before its block was cut anew leads to any bytes, which may look like an object that is
  // locked, torn or too new for ever. So no such end is told before the header of the block has been read: is
  // the address that of a slot?
  enum class Doubt : uint8_t { kNone, kReadLocked, kTooOld };

  size_t image_bytes() const { return storage::SpanBytes(bytes_); }
  Verdict DoubtIt(Doubt end, ReadResult* result);
  // By the word of a block's header that has both of its sizes.
  bool IsSlot(uint64_t shape) const;

  Transaction& tx_;
  const Address address_;
  const uint32_t bytes_;
  const bool hint_;
  const bool whole_lines_;
  rdma::RemoteAddress at_;
  Timestamp floor_;
  Doubt doubt_ = Doubt::kNone;
  std::byte* data_ = nullptr;  // in the transaction's arena
  // Along the chain of versions: where the next one lies, and the timestamp of the one before.
  storage::OldVersionPointer ovp_;
  Timestamp newer_ = Timestamp::Max();
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_REMOTE_READ_H_
