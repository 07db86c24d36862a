// Transaction: FaRMv2's, seen by the code that runs in it (SIGMOD'19): reads at one snapshot R, writes
// buffered until Commit(). Strictly serializable; opaque: also a transaction that will abort has only seen
// one snapshot.
//
// Lives on its worker's thread; at most one operation at a time. Spans that it returns stay valid, and at
// their place, until it is destroyed. Every operation that conflicts dooms the transaction: later ones return
// the same error. A transaction that is destroyed without Commit() is aborted; it holds no lock before
// Commit().
#ifndef FURROW_TXN_TRANSACTION_H_
#define FURROW_TXN_TRANSACTION_H_

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/task.h"
#include "storage/object.h"
#include "storage/slab_allocator.h"
#include "txn/access_set.h"
#include "txn/result.h"

namespace furrow::txn {}  // namespace furrow::txn

namespace furrow::storage {
class Region;
}
namespace furrow::cluster {
struct RegionMapping;
}

namespace furrow::txn {

class Worker;
class Coordinator;

struct TransactionOptions {
  bool read_only = false;            // writes are refused; it commits at R without a message
  Nanos deadline_ns = 10 * kSecond;  // from Begin(); finite
};

// What a read found.
using ReadResult = absl::StatusOr<std::span<const std::byte>>;

struct ReadSpec {
  Address address;
  uint32_t payload_bytes = 0;
  bool hint = false;  // as ReadHint()
};

class Transaction {
 public:
  Transaction(Worker& worker, TransactionOptions options);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // Takes the read timestamp and waits until it has passed everywhere. Before anything else, once.
  // Unavailable: no clock, or the lease is lost.
  Task<absl::Status> Begin();
  Timestamp read_timestamp() const { return read_ts_; }
  Nanos deadline() const { return deadline_; }  // on the loop's clock, once it has begun

  // --- reads ---
  struct ReadAwaiter {
    Transaction& tx;
    Address address;
    uint32_t bytes;
    bool hint = false;
    ReadResult result{std::span<const std::byte>()};
    Task<ReadResult> slow{};
    bool await_ready() { return tx.TryReadNow(address, bytes, hint, &result); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
      slow = tx.ReadSlow(address, bytes, hint);
      return (slow.operator co_await()).await_suspend(h);
    }
    ReadResult await_resume() {
      if (slow) return (slow.operator co_await()).await_resume();
      return std::move(result);
    }
  };
  // The first `bytes` of the object's payload at R (own writes included). Does not suspend for objects that
  // are not locked and are local, or remote where READs end inside the call. NotFound: not allocated at R.
  // Aborted: conflict. InvalidArgument: no such slot, or `bytes` exceeds it. A second read of the same object
  // must not ask for more bytes than the first one.
  ReadAwaiter Read(Address address, uint32_t bytes) { return ReadAwaiter{*this, address, bytes}; }
  // As Read(), along a route that may be out of date (a cached inner node). Where the address is no slot of
  // that size, holds nothing at R, or its version at R is gone ("snapshot too old"), the answer is NotFound;
  // that dooms nothing and leaves nothing in the read set. What is found may be another object: the caller
  // compares names.
  ReadAwaiter ReadHint(Address address, uint32_t bytes) { return ReadAwaiter{*this, address, bytes, true}; }
  // Reads many with their latencies overlapped; results[i] belongs to specs[i] (spans until the transaction
  // ends).
  Task<absl::Status> ReadMany(std::span<const ReadSpec> specs, std::span<ReadResult> results);
  // What this transaction has read or written there; null: nothing yet. An index must not share copies of
  // objects that are written here or were read in an old version.
  const Access* FindAccess(Address address) { return accesses_.Find(address); }
  // Memory that lives as long as the spans; 8-byte aligned, not zeroed.
  std::byte* Memory(size_t bytes) { return accesses_.arena().Allocate(bytes); }
  // Starts bringing an object into the cache, where reading it is this CPU's work; a hint.
  void Prefetch(Address address, uint32_t bytes);

  // --- writes: buffered; nothing is visible to others before Commit() ---
  // The object's payload for writing: its first `bytes` as read, changed in place by the caller until
  // Commit(). The object must have been read (or allocated) by this transaction with at least `bytes`; what
  // lies beyond becomes zero.
  absl::StatusOr<std::span<std::byte>> OpenForWrite(Address address, uint32_t bytes);

  struct Allocation {
    Address address;
    std::span<std::byte> payload;  // zeroed, for writing
  };
  struct AllocAwaiter {
    Transaction& tx;
    RegionId locality;
    uint32_t bytes;
    absl::StatusOr<Allocation> result{Allocation{}};
    Task<absl::StatusOr<Allocation>> slow{};
    bool await_ready() { return tx.TryAllocCached(locality, bytes, &result); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
      slow = tx.AllocSlow(locality, bytes);
      return (slow.operator co_await()).await_suspend(h);
    }
    absl::StatusOr<Allocation> await_resume() {
      if (slow) return (slow.operator co_await()).await_resume();
      return std::move(result);
    }
  };
  // A new object of `bytes` payload in the locality group of region `locality`. ResourceExhausted: no memory
  // there.
  AllocAwaiter Alloc(RegionId locality, uint32_t bytes) { return AllocAwaiter{*this, locality, bytes}; }
  // Frees an object that this transaction has read or allocated.
  absl::Status Free(Address address);

  // --- end ---
  // Once. Suspends only while it waits for somebody.
  Task<CommitResult> Commit();
  // Nothing of it happened. Idempotent.
  void Abort();

  // Dooms the transaction with a reason of the caller's (an index that found a stale route, say): later
  // operations and Commit() fail with it.
  void Doom(Conflict conflict);
  bool doomed() const { return conflict_.reason != AbortReason::kNone; }
  const Conflict& conflict() const { return conflict_; }

  Worker& worker() { return worker_; }
  bool has_writes() const { return writes_ > 0; }
  const TransactionOptions& options() const { return options_; }
  // Counters of this transaction, for reports: reads served by another node, and by this one.
  uint32_t remote_reads() const { return remote_reads_; }
  uint32_t local_reads() const { return local_reads_; }
  // True once Commit() has found that a primary or a backup-and-primary set spans nodes other than this one.
  bool distributed() const { return distributed_; }

 private:
  friend class Coordinator;
  friend class CommitRun;
  friend class RemoteRead;
  // What a look at an object that this node is primary of came to.
  enum class Look : uint8_t { kDone, kLocked, kTorn };
  Look LookLocal(const cluster::RegionMapping& mapping, storage::Region& region, Address address,
                 uint32_t bytes, bool hint, ReadResult* result);
  // The version at R, from the chain that begins at `ovp` in this node's memory.
  void FollowLocal(const cluster::RegionMapping& mapping, Address address, uint32_t bytes,
                   uint32_t slot_bytes, storage::OldVersionPointer ovp, bool hint, ReadResult* result);
  // Enters what was read into the read set and makes the answer. `data` is the payload in the arena.
  void Accept(Address address, storage::ObjectWord word, std::byte* data, uint32_t bytes, uint32_t slot_bytes,
              bool old_version, ReadResult* result);
  // The version at R is gone: dooms, or for a hint says NotFound.
  void TooOld(Address address, bool hint, ReadResult* result);
  ReadResult FromAccess(const Access& access, uint32_t bytes) const;
  ReadResult Fail(Conflict conflict);
  static ReadResult NoSuchObject(Address address, bool hint);
  // False: it has to be waited for.
  bool TryReadNow(Address address, uint32_t bytes, bool hint, ReadResult* result);
  Task<ReadResult> ReadSlow(Address address, uint32_t bytes, bool hint);
  bool TryAllocCached(RegionId locality, uint32_t bytes, absl::StatusOr<Allocation>* result);
  Task<absl::StatusOr<Allocation>> AllocSlow(RegionId locality, uint32_t bytes);

  Worker& worker_;
  const TransactionOptions options_;
  Timestamp read_ts_;
  ConfigId began_in_;
  Nanos deadline_ = 0;
  uint64_t open_id_ = 0;  // the coordinator's, of its list of open transactions
  AccessSet accesses_;
  uint32_t writes_ = 0;
  uint32_t remote_reads_ = 0;
  uint32_t local_reads_ = 0;
  bool begun_ = false;
  bool ended_ = false;
  bool distributed_ = false;
  Conflict conflict_;
};

}  // namespace furrow::txn

#endif  // FURROW_TXN_TRANSACTION_H_
