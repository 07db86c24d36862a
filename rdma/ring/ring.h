// Rings: byte streams of records in the receiver's memory, appended by one sender with one-sided WRITEs
// (SOSP'15 section 2). A ring gives its records no meaning.
//
// Layout of a ring (all little-endian; offsets from the start of the ring's memory):
//   off  size  field      written by          meaning
//   0    64    head line  receiver            8 bytes: records before this position are released
//   64   cap   data       sender (WRITE)      records, 16-byte aligned
// The head line survives a restart with the rest of the file.
//
// Layout of a record at `position` (an ever-growing byte count; its place is position mod capacity):
//   off  size  field      meaning
//   0    4     length     bytes of the body; kPadding: the rest of the lap is unused
//   4    4     sequence   low 32 bits of position / 16, so that a restarted reader needs only the head
//   8    8     checksum   XXH3 of (hash of body, header, position, nonce): it says that the record is there
//   16   len   body       padded to 16 bytes
// A record never wraps: a padding record fills the rest of a lap. Nothing relies on the order in which a NIC
// places bytes; stale bytes of an earlier lap do not pass, since position and sequence are in the checksum,
// and forged ones do not, since the nonce is. Lengths are checked against the ring before they are used.
//
// The head returns to the sender as an 8-byte WRITE into the sender's memory (its "head word"), never through
// a ring.
#ifndef FURROW_RDMA_RING_RING_H_
#define FURROW_RDMA_RING_RING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "rdma/fabric.h"
#include "rdma/operation.h"

namespace furrow::rdma {

struct RecordHeader {
  uint32_t length;
  uint32_t sequence;
  uint64_t checksum;
};
static_assert(sizeof(RecordHeader) == 16);

inline constexpr size_t kRingHeadBytes = 64;
inline constexpr size_t kRecordAlign = 16;
inline constexpr uint32_t kPadding = 0xffffffff;

// Bytes that a record with this body takes in a ring, without padding at the end of a lap.
constexpr size_t RecordBytes(size_t body) {
  return sizeof(RecordHeader) + (body + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

// What a sender must know of a ring in a receiver's memory; fits the private data of a connection.
struct RingDescriptor {
  RemoteAddress data;     // of the data area (after the head line)
  uint32_t capacity = 0;  // bytes of the data area, a power of two
  uint8_t channel = 0;    // notification channel on the connection
  uint64_t nonce = 0;
};

// Body of a record under construction: built once, hashed once, copied once per ring. The buffer must lie in
// memory registered with the fabric, with sizeof(RecordHeader) bytes of headroom in front and be 16-byte
// padded behind.
struct RecordBody {
  std::span<std::byte> body;  // headroom lies in front of body.data()
  uint64_t hash = 0;          // HashBody(body)
};
uint64_t HashBody(std::span<const std::byte> body);

// The sending side. Owner thread only. It owns the tail; room is reserved before it is used.
//   invariant: (tail - head) + reserved + max_record <= capacity. Records never wrap, and between tail and
//   head + capacity lies at most one lap end, so one max_record of slack pays for its padding in advance.
class RingWriter {
 public:
  // Over `connection`, which outlives the writer. `head_word` lies in memory registered with kWrite at this
  // node. `max_record`: RecordBytes() of the largest record; at most half of the ring.
  RingWriter(Connection& connection, RingDescriptor ring, const uint64_t* head_word, uint32_t max_record);
  // Into a ring in this process's own memory (records of a node to itself).
  RingWriter(std::span<std::byte> ring_memory, uint64_t nonce, uint32_t max_record);
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Room for records of `bytes` in all (sums of RecordBytes). False: not now; nothing is reserved.
  bool Reserve(uint64_t bytes);
  // Gives unused reserved room back.
  void Unreserve(uint64_t bytes);
  uint64_t free_bytes() const;
  uint32_t capacity() const { return ring_.capacity; }
  uint32_t max_record() const { return max_record_; }
  // True when nothing is appended that was not released by the reader, and nothing is reserved.
  bool empty() const { return free_bytes() == ring_.capacity - max_record_; }
  // The head word goes away: the room stays what it is now. For a ring whose reader is gone.
  void Detach();
  // True if Append() needs the body no longer than it runs.
  bool completes_at_once() const { return connection_ == nullptr || connection_->completes_at_once(); }

  // Appends one record out of reserved room. The body is read until `done_id`'s completion (0: nobody is
  // told; the WRITE is unsignaled and the caller keeps the body until a later signaled one completes). For a
  // local ring the record is there on return, and `done_id` is completed inside the call. ResourceExhausted:
  // the connection's request queue is full; the reservation stays.
  absl::Status Append(const RecordBody& record, uint64_t done_id, WorkRequest::Notify notify);

 private:
  // Turns the record's headroom into its header for `position`; see ring.cc.
  absl::Status Write(uint64_t position, const RecordBody& record, uint64_t done_id,
                     WorkRequest::Notify notify);

  Connection* connection_ = nullptr;  // null: local
  std::span<std::byte> local_;        // data area of a local ring
  RingDescriptor ring_;
  const uint64_t* head_word_ = nullptr;
  uint64_t last_head_ = 0;  // where head_word_ points after Detach()
  uint32_t max_record_ = 0;
  uint64_t tail_ = 0;
  uint64_t reserved_ = 0;
};

// One record as the receiver sees it; the bytes stay valid until Release() passes `end`.
struct RingRecord {
  std::span<const std::byte> body;
  uint64_t position = 0;
  uint64_t end = 0;
};

// The receiving side. Owner thread only. Reading and releasing are apart: a log record stays until its
// transaction is truncated.
class RingReader {
 public:
  // `ring_memory` is head line and data area; reading starts at the head found there.
  RingReader(std::span<std::byte> ring_memory, uint64_t nonce);

  // The next record, if it is there.
  std::optional<RingRecord> Next();
  // Everything before `position` may be overwritten: stores the head in the ring's memory (release order).
  void Release(uint64_t position);
  // The ring's memory goes away: nothing is read or released there any more.
  void Detach() { memory_ = {}; }
  uint64_t released() const { return head_; }
  uint64_t read_position() const { return next_; }
  uint32_t capacity() const { return capacity_; }
  // Bytes read but not released.
  uint64_t held() const { return next_ - head_; }

 private:
  std::span<std::byte> memory_;
  uint32_t capacity_ = 0;
  uint64_t nonce_ = 0;
  uint64_t head_ = 0;
  uint64_t next_ = 0;
};

// Returns heads to a sender: one 8-byte inline WRITE when at least an eighth of the ring was released since
// the last.
class HeadReturner {
 public:
  HeadReturner(Connection* connection, RemoteAddress head_word, uint32_t capacity)
      : connection_(connection), word_(head_word), threshold_(capacity / 8) {}
  // `force`: also a smaller advance (the ring is idle, or a sender waits for room).
  void Return(uint64_t released, bool force);

 private:
  Connection* connection_;
  RemoteAddress word_;
  uint64_t threshold_;
  uint64_t returned_ = 0;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_RING_RING_H_
