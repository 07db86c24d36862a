#include "rdma/ring/ring.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/mutation.h"
#include "rdma/shared_copy.h"

namespace furrow::rdma {
namespace {

// What the checksum of a record covers, hashed as these 32 bytes.
struct ChecksumInput {
  uint64_t body_hash;
  uint64_t length_and_sequence;
  uint64_t position;
  uint64_t nonce;
};
static_assert(sizeof(ChecksumInput) == 32);

constexpr uint64_t kPaddingBodyHash = 0;

uint32_t SequenceOf(uint64_t position) { return static_cast<uint32_t>(position / kRecordAlign); }

RecordHeader MakeHeader(uint32_t length, uint64_t position, uint64_t body_hash, uint64_t nonce) {
  RecordHeader header{length, SequenceOf(position), 0};
  const ChecksumInput input{body_hash, uint64_t{header.sequence} << 32 | length, position, nonce};
  header.checksum = Hash64(std::as_bytes(std::span(&input, 1)));
  return header;
}

bool IsPowerOfTwo(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

uint64_t HashBody(std::span<const std::byte> body) { return Hash64(body); }

RingWriter::RingWriter(Connection& connection, RingDescriptor ring, const uint64_t* head_word,
                       uint32_t max_record)
    : connection_(&connection), ring_(ring), head_word_(head_word), max_record_(max_record) {
  FURROW_CHECK(IsPowerOfTwo(ring_.capacity) && uint64_t{2} * max_record_ <= ring_.capacity);
}

RingWriter::RingWriter(std::span<std::byte> ring_memory, uint64_t nonce, uint32_t max_record)
    : local_(ring_memory.subspan(kRingHeadBytes)),
      head_word_(reinterpret_cast<const uint64_t*>(ring_memory.data())),
      max_record_(max_record) {
  ring_.capacity = static_cast<uint32_t>(local_.size());
  ring_.nonce = nonce;
  FURROW_CHECK(IsPowerOfTwo(ring_.capacity) && uint64_t{2} * max_record_ <= ring_.capacity);
}

uint64_t RingWriter::free_bytes() const {
  // The head comes from the peer: one that lies ahead of the tail gives no room.
  const uint64_t used = tail_ - __atomic_load_n(head_word_, __ATOMIC_ACQUIRE);
  if (used > ring_.capacity) return 0;
  const uint64_t taken = used + reserved_ + max_record_;
  return taken < ring_.capacity ? ring_.capacity - taken : 0;
}

bool RingWriter::Reserve(uint64_t bytes) {
  if (bytes > free_bytes() && !Mutated(Mutation::kSkipReservation)) return false;
  reserved_ += bytes;
  return true;
}

void RingWriter::Detach() {
  last_head_ = __atomic_load_n(head_word_, __ATOMIC_ACQUIRE);
  head_word_ = &last_head_;
}

void RingWriter::Unreserve(uint64_t bytes) {
  FURROW_CHECK(bytes <= reserved_);
  reserved_ -= bytes;
}

absl::Status RingWriter::Append(const RecordBody& record, uint64_t done_id, WorkRequest::Notify notify) {
  const uint64_t bytes = RecordBytes(record.body.size());
  FURROW_CHECK(bytes <= max_record_);
  FURROW_CHECK(bytes <= reserved_);
  const uint64_t to_lap_end = ring_.capacity - (tail_ & (ring_.capacity - 1));
  const uint64_t position = bytes <= to_lap_end ? tail_ : tail_ + to_lap_end;
  if (absl::Status status = Write(position, record, done_id, notify); !status.ok()) return status;
  reserved_ -= bytes;
  tail_ = position + bytes;
  return absl::OkStatus();
}

absl::Status RingWriter::Write(uint64_t position, const RecordBody& record, uint64_t done_id,
                               WorkRequest::Notify notify) {
  const uint64_t mask = ring_.capacity - 1;
  const size_t bytes = RecordBytes(record.body.size());
  const RecordHeader header =
      MakeHeader(static_cast<uint32_t>(record.body.size()), position, record.hash, ring_.nonce);
  const RecordHeader padding = MakeHeader(kPadding, tail_, kPaddingBodyHash, ring_.nonce);
  const auto bytes_of = [](const RecordHeader& h) {
    // The request type has one span for both directions; a WRITE only reads it.
    return std::span(const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&h)), sizeof(RecordHeader));
  };
  std::byte* const start = record.body.data() - sizeof(RecordHeader);

  if (connection_ == nullptr) {
    if (position != tail_)
      CopyToShared(&local_[tail_ & mask], bytes_of(padding).data(), sizeof(RecordHeader));
    std::memcpy(start, &header, sizeof(header));
    CopyToShared(&local_[position & mask], start, bytes);
    if (done_id != 0) Operation::Complete(done_id, CompletionStatus::kOk);
    return absl::OkStatus();
  }

  std::array<WorkRequest, 3> requests;
  size_t count = 0;
  const auto add_write = [&](std::span<std::byte> local, bool inlined, uint64_t at) {
    WorkRequest& request = requests[count++];
    request.opcode = Opcode::kWrite;
    request.signaled = false;
    request.local = local;
    request.inlined = inlined;
    request.remote = ring_.data.Plus(at & mask);
  };
  if (position != tail_) add_write(bytes_of(padding), true, tail_);
  std::array<std::byte, WorkRequest::kMaxInline> small;
  if (connection_->completes_at_once()) {
    // The headroom is free again when Post() returns, so it serves the rings of a batch one after the other.
    std::memcpy(start, &header, sizeof(header));
    add_write({start, bytes}, false, position);
  } else if (bytes <= small.size()) {
    std::memcpy(small.data(), &header, sizeof(header));
    std::memcpy(small.data() + sizeof(header), record.body.data(), record.body.size());
    std::memset(small.data() + sizeof(header) + record.body.size(), 0,
                bytes - sizeof(header) - record.body.size());
    add_write({small.data(), bytes}, true, position);
  } else {
    // Other rings' WRITEs of the same body may be under way, so the header travels by itself.
    add_write({record.body.data(), bytes - sizeof(header)}, false, position + sizeof(header));
    add_write(bytes_of(header), true, position);
  }
  WorkRequest& last = requests[count - 1];
  last.signaled = done_id != 0;
  last.id = done_id;
  last.notify = notify;
  last.channel = ring_.channel;
  return connection_->Post(std::span(requests.data(), count));
}

RingReader::RingReader(std::span<std::byte> ring_memory, uint64_t nonce)
    : memory_(ring_memory),
      capacity_(static_cast<uint32_t>(ring_memory.size() - kRingHeadBytes)),
      nonce_(nonce) {
  FURROW_CHECK(ring_memory.size() > kRingHeadBytes && IsPowerOfTwo(capacity_));
  head_ = LoadWord(memory_.data());
  next_ = head_;
}

std::optional<RingRecord> RingReader::Next() {
  if (memory_.empty()) return std::nullopt;  // detached
  for (;;) {
    // A ring whose every byte is held has nothing new, whatever its oldest record looks like.
    if (next_ - head_ >= capacity_) return std::nullopt;
    const uint64_t offset = next_ & (capacity_ - 1);
    const std::byte* at = memory_.data() + kRingHeadBytes + offset;
    // A head line with a position that no reader stores (the file is damaged) yields no record.
    if (offset % kRecordAlign != 0) return std::nullopt;
    const uint64_t word = LoadWord(at);
    if (static_cast<uint32_t>(word >> 32) != SequenceOf(next_)) return std::nullopt;
    const uint32_t length = static_cast<uint32_t>(word);
    const uint64_t to_lap_end = capacity_ - offset;
    const bool padding = length == kPadding;
    if (!padding && RecordBytes(length) > to_lap_end) return std::nullopt;
    if (padding && offset == 0) return std::nullopt;
    const std::span<const std::byte> body(at + sizeof(RecordHeader), padding ? 0 : length);
    if (!Mutated(Mutation::kSkipRingChecksum)) {
      // Plain loads of the body: a writer whose stores are visible in this order has finished it when the
      // header is there, and bytes of any other writer pass the checksum only when they are final.
      const uint64_t body_hash = padding ? kPaddingBodyHash : HashBody(body);
      if (LoadWord(at + 8) != MakeHeader(length, next_, body_hash, nonce_).checksum) return std::nullopt;
    }
    const uint64_t position = next_;
    next_ += padding ? to_lap_end : RecordBytes(length);
    if (!padding) return RingRecord{body, position, next_};
  }
}

void RingReader::Release(uint64_t position) {
  FURROW_CHECK(position >= head_ && position <= next_);
  head_ = position;
  if (!memory_.empty()) StoreWord(memory_.data(), position);
}

void HeadReturner::Return(uint64_t released, bool force) {
  if (released == returned_ || (!force && released - returned_ < threshold_)) return;
  WorkRequest request;
  request.opcode = Opcode::kWrite;
  request.signaled = false;
  request.local = std::span(reinterpret_cast<std::byte*>(&released), sizeof(released));
  request.inlined = true;
  request.remote = word_;
  // A full request queue is no loss: the next call returns a later head.
  if (connection_->Post(request).ok()) returned_ = released;
}

}  // namespace furrow::rdma
