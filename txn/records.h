// Log records and messages of transactions: their bytes, builders and parsers (SOSP'15 tables 1 and 2).
// Parsers take bytes of a peer: everything is checked, nothing is trusted, no exceptions, no allocation.
//
// A log record (body of a ring record; little-endian):
//   off  size  field          meaning
//   0    1     type           LogType
//   1    1     format         kRecordFormat
//   2    2     truncate_count ids to truncate that follow the header
//   4    4     object_count   objects that follow
//   8    8     config         of the transaction's id
//   16   8     local          of the transaction's id; 0 in TRUNCATE
//   24   4     node           of the transaction's id: the coordinator
//   28   2     worker         of the transaction's id: its thread
//   30   2     region_count   ids of all regions that the transaction writes (LOCK, COMMIT-BACKUP)
//   32   8     low_bound      all transactions of this coordinator thread with smaller local ids are over
//   40   8     timestamp      W; 0 in LOCK, ABORT and TRUNCATE
//   48   16    reserved       zero
//   64   8*t   truncate ids   local ids, none of them 0
//        4*r   region ids     padded to 8
//        ...   objects        each an ObjectEntry and its payload, padded to 8
//
//   record          to              carries                              released
//   LOCK            each primary    regions; objects of this primary     by truncation
//   COMMIT-BACKUP   each backup     W; regions; objects of this backup   by truncation, which applies it
//   COMMIT-PRIMARY  each primary    W                                    by truncation
//   ABORT           each primary                                         at once, with the LOCK
//   TRUNCATE        any             low bound and ids                    at once
#ifndef FURROW_TXN_RECORDS_H_
#define FURROW_TXN_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "base/ids.h"
#include "storage/object.h"

namespace furrow::txn {

inline constexpr uint8_t kRecordFormat = 1;

enum class LogType : uint8_t { kLock = 1, kCommitBackup = 2, kCommitPrimary = 3, kAbort = 4, kTruncate = 5 };

struct LogHeader {
  LogType type;
  uint8_t format;
  uint16_t truncate_count;
  uint32_t object_count;
  uint64_t config;
  uint64_t local;
  uint32_t node;
  uint16_t worker;
  uint16_t region_count;
  uint64_t low_bound;
  uint64_t timestamp;
  uint64_t reserved[2];
};
static_assert(sizeof(LogHeader) == 64 && std::is_trivially_copyable_v<LogHeader>);
static_assert(offsetof(LogHeader, local) == 16 && offsetof(LogHeader, timestamp) == 40);

inline constexpr uint32_t kEntryAllocates = 1;
inline constexpr uint32_t kEntryFrees = 2;

//   off size field
//   0   8    address
//   8   8    expected  word 0 that LOCK must find
//   16  4    payload   bytes that follow
//   20  4    flags     kEntryAllocates, kEntryFrees
struct ObjectEntry {
  uint64_t address;
  uint64_t expected;
  uint32_t payload;
  uint32_t flags;
};
static_assert(sizeof(ObjectEntry) == 24 && std::is_trivially_copyable_v<ObjectEntry>);

constexpr size_t Pad8(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
constexpr size_t EntryBytes(size_t payload) { return sizeof(ObjectEntry) + Pad8(payload); }

// A parsed log record: views into the ring.
class LogView {
 public:
  // Nothing: malformed (short, unknown type or format, counts that do not fit, nonzero reserved bytes, a
  // local id of 0). The ids to truncate lie where the peer can still change them.
  static std::optional<LogView> Parse(std::span<const std::byte> body);

  const LogHeader& header() const { return header_; }
  TxId id() const {
    return TxId{ConfigId(header_.config), NodeId(header_.node), WorkerId(header_.worker), header_.local};
  }
  Timestamp timestamp() const { return Timestamp(header_.timestamp); }
  uint64_t truncate_id(uint32_t i) const {
    uint64_t id;
    std::memcpy(&id, truncates_ + 8 * i, 8);
    return id;
  }

  // Of the regions that the transaction writes; i < header().region_count.
  RegionId region_id(uint32_t i) const {
    uint32_t id;
    std::memcpy(&id, truncates_ + size_t{8} * header_.truncate_count + 4 * i, 4);
    return RegionId(id);
  }

  // Calls fn(const ObjectEntry&, std::span<const std::byte> payload) for each object; stops when it returns
  // false.
  template <class Fn>
  bool ForEachObject(Fn fn) const {
    const std::byte* p = objects_;
    for (uint32_t i = 0; i < header_.object_count; ++i) {
      ObjectEntry entry;
      std::memcpy(&entry, p, sizeof entry);
      if (!fn(entry, std::span<const std::byte>(p + sizeof entry, entry.payload))) return false;
      p += EntryBytes(entry.payload);
    }
    return true;
  }

 private:
  LogHeader header_;
  const std::byte* truncates_ = nullptr;
  const std::byte* objects_ = nullptr;
};

// Messages: requests on the message ring, answers on the reply ring.
//   off size field
//   0   1    type     MessageType
//   1   1    code     of an answer: AnswerCode
//   2   2    reserved zero
//   4   4    count    elements that follow
//   8   8    request  echoed in the answer; for LOCK-REPLY the transaction's local id
enum class MessageType : uint8_t {
  kLockReply = 1,  // answer: LockReply
  kValidate = 2,   // count x {address, expected word 0}
  kLease = 3,      // LeaseRequest
  kUnlease = 4,    // count x LeasedSlot; no answer
  kCutBlock = 5,   // CutRequest, primary to backup
  kAnswer = 6,     // answer to kValidate, kLease (count x LeasedSlot), kCutBlock
  kRecovery = 7,   // a part of a message of recovery (recovery/records.h); no answer
};
// The most slots of one lease.
inline constexpr uint16_t kMaxLeaseBatch = 1024;

// Why a request was refused. The answer to a refused LEASE carries the cause in words, `count` bytes of text,
// at most kMaxRefusalText.
enum class AnswerCode : uint8_t {
  kOk = 0,
  kConflict = 1,
  kNotPrimary = 2,  // this node does not serve that region as its primary: the asker's mapping is out of date
  kNoMemory = 3,    // a limit is reached: deleting data or raising it helps
  kBadRequest = 4,  // malformed, or not possible in this state
  kUnavailable = 5,  // a member that is needed for it does not answer, or the cluster is changing
  kFailed = 6,       // an error there, which trying again does not help
};
inline constexpr size_t kMaxRefusalText = 256;

struct MessageHeader {
  MessageType type;
  AnswerCode code;
  uint16_t reserved;
  uint32_t count;
  uint64_t request;
};
static_assert(sizeof(MessageHeader) == 16 && std::is_trivially_copyable_v<MessageHeader>);

// LOCK-REPLY, after its MessageHeader: what was in the way (zeros when the code is kOk).
struct LockReply {
  uint64_t address = 0;
  uint8_t allocation = 0;  // 1: a leased slot was no longer free
  uint8_t locked = 0;      // 1: locked by `holder`; 0: changed
  uint16_t holder_worker = 0;
  uint32_t holder_node = 0;
  uint64_t holder_local = 0;
  uint64_t holder_config = 0;
};
static_assert(sizeof(LockReply) == 32 && std::is_trivially_copyable_v<LockReply>);

struct ValidateEntry {
  uint64_t address;
  uint64_t expected;
};
static_assert(sizeof(ValidateEntry) == 16);

struct LeaseRequest {
  uint32_t locality;
  uint16_t size_class;
  uint16_t count;
};
static_assert(sizeof(LeaseRequest) == 8);

struct LeasedSlot {
  uint64_t address;
  uint64_t expected;
  uint32_t slot_bytes;
  uint32_t reserved;
};
static_assert(sizeof(LeasedSlot) == 24);

struct CutRequest {
  uint64_t config;
  uint64_t version;
  uint32_t region;
  uint32_t block;
  uint32_t slot_bytes;
  uint32_t reserved = 0;
};
static_assert(sizeof(CutRequest) == 32);

// Reads a T at `offset` of bytes that a peer wrote; false when they are too short.
template <class T>
bool ReadAt(std::span<const std::byte> bytes, size_t offset, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(out, bytes.data() + offset, sizeof(T));
  return true;
}
template <class T>
void WriteAt(std::span<std::byte> bytes, size_t offset, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

}  // namespace furrow::txn

#endif  // FURROW_TXN_RECORDS_H_
