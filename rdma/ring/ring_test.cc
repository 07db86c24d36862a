#include "rdma/ring/ring.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/mutation.h"
#include "base/random.h"
#include "gtest/gtest.h"

namespace furrow::rdma {
namespace {

constexpr uint64_t kNonce = 0x5eed'0000'1234'abcd;
constexpr uint32_t kCapacity = 1024;
constexpr uint32_t kMaxRecord = 256;

// Zeroed, 64-byte aligned memory of a ring.
class RingMemory {
 public:
  explicit RingMemory(uint32_t capacity = kCapacity) : lines_((kRingHeadBytes + capacity) / 64) {}
  std::span<std::byte> all() {
    return {reinterpret_cast<std::byte*>(lines_.data()), lines_.size() * sizeof(Line)};
  }
  std::span<std::byte> data() { return all().subspan(kRingHeadBytes); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> lines_;
};

// A body with headroom and padding.
class Body {
 public:
  explicit Body(std::string_view text) : buffer_(RecordBytes(text.size()) + 64) {
    std::memcpy(buffer_.data() + sizeof(RecordHeader), text.data(), text.size());
    record_.body = {buffer_.data() + sizeof(RecordHeader), text.size()};
    record_.hash = HashBody(record_.body);
  }
  const RecordBody& record() const { return record_; }

 private:
  std::vector<std::byte> buffer_;
  RecordBody record_;
};

std::string Text(const RingRecord& record) {
  return std::string(reinterpret_cast<const char*>(record.body.data()), record.body.size());
}

// A connection to memory of this test: it keeps WRITEs until they are let through, whole or in part.
class FakeConnection : public Connection {
 public:
  FakeConnection(std::span<std::byte> target, bool at_once) : target_(target), at_once_(at_once) {}

  using Connection::Post;
  absl::Status Post(std::span<const WorkRequest> requests) override {
    if (full) return absl::ResourceExhaustedError("the request queue is full");
    for (const WorkRequest& request : requests) {
      posted.push_back(request);
      bytes_.push_back(std::vector<std::byte>(request.local.begin(), request.local.end()));
      if (at_once_) Deliver(posted.size() - 1);
    }
    return absl::OkStatus();
  }
  // The bytes of the i-th WRITE; without `all`, leaves out the 8-byte pieces whose bit in `missing` is set.
  void Deliver(size_t i, uint64_t missing = 0) {
    const std::byte* from = bytes_[i].data();
    const size_t size = bytes_[i].size();
    for (size_t at = 0; at < size; at += 8) {
      if ((missing >> (at / 8) & 1) != 0) continue;
      std::memcpy(target_.data() + posted[i].remote.address + at, from + at, std::min<size_t>(8, size - at));
    }
  }
  void Clear() {
    posted.clear();
    bytes_.clear();
  }
  absl::Status PostReceive(uint64_t, std::span<std::byte>) override { return absl::OkStatus(); }
  NodeId peer() const override { return NodeId(2); }
  std::string_view peer_private_data() const override { return {}; }
  bool failed() const override { return false; }
  bool idle() const override { return true; }
  bool completes_at_once() const override { return at_once_; }

  bool full = false;
  std::vector<WorkRequest> posted;

 private:
  std::span<std::byte> target_;
  bool at_once_;
  std::vector<std::vector<std::byte>> bytes_;
};

RingDescriptor Descriptor(uint32_t capacity = kCapacity) {
  return {.data = {0, RemoteKey(7)}, .capacity = capacity, .channel = 1, .nonce = kNonce};
}

absl::Status Put(RingWriter& writer, std::string_view text) {
  Body body(text);
  if (!writer.Reserve(RecordBytes(text.size()))) return absl::ResourceExhaustedError("no room in the ring");
  return writer.Append(body.record(), 0, WorkRequest::Notify::kNone);
}

TEST(RingTest, LocalRingDeliversAtOnceAndCompletesInsideTheCall) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  EXPECT_FALSE(reader.Next().has_value());

  static int completed;
  completed = 0;
  Operation operation(
      [](Operation*, CompletionStatus status) { completed += status == CompletionStatus::kOk; });
  Body body("hello");
  ASSERT_TRUE(writer.Reserve(RecordBytes(5)));
  ASSERT_TRUE(writer.Append(body.record(), operation.id(), WorkRequest::Notify::kNone).ok());
  EXPECT_EQ(completed, 1);

  auto record = reader.Next();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(Text(*record), "hello");
  EXPECT_EQ(record->position, 0u);
  EXPECT_EQ(record->end, 32u);
  EXPECT_FALSE(reader.Next().has_value());
}

TEST(RingTest, RecordsOfAllSizesArriveInOrderOverManyLaps) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(seed);
  for (bool at_once : {true, false}) {
    Random random(seed);
    RingMemory memory;
    FakeConnection connection(memory.data(), at_once);
    RingWriter writer(connection, Descriptor(), reinterpret_cast<const uint64_t*>(memory.all().data()),
                      kMaxRecord);
    RingReader reader(memory.all(), kNonce);
    std::vector<std::string> sent;
    size_t received = 0;
    while (sent.size() < 2000) {
      std::string text(random.Below(kMaxRecord - sizeof(RecordHeader) + 1), 'a' + sent.size() % 26);
      if (Put(writer, text).ok()) {
        sent.push_back(text);
        if (!at_once) {
          for (size_t i = 0; i < connection.posted.size(); ++i) connection.Deliver(i);
          connection.Clear();
        }
      }
      if (random.OneIn(2)) continue;
      while (auto record = reader.Next()) {
        ASSERT_EQ(Text(*record), sent[received++]);
        if (!random.OneIn(3)) reader.Release(record->end);
      }
      reader.Release(reader.read_position());
    }
    while (auto record = reader.Next()) ASSERT_EQ(Text(*record), sent[received++]);
    EXPECT_EQ(received, sent.size());
    EXPECT_GT(reader.read_position(), 20u * kCapacity);
  }
}

TEST(RingTest, WriterKeepsTheRecordsOfSlowReader) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  int written = 0;
  while (Put(writer, std::string(100, 'x')).ok()) ++written;
  // 1024 bytes less 256 of slack hold six records of 128.
  EXPECT_EQ(written, 6);
  EXPECT_EQ(writer.free_bytes(), 0u);
  auto first = reader.Next();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(Put(writer, "y").ok());
  reader.Release(first->end);
  EXPECT_EQ(writer.free_bytes(), 128u);
  EXPECT_TRUE(Put(writer, "y").ok());
  int read = 1;
  while (auto record = reader.Next()) ++read;
  EXPECT_EQ(read, 7);
  EXPECT_EQ(reader.held(), 5 * 128u + 32);
}

TEST(RingTest, ReservationsAreHonouredAcrossLapEnd) {
  // Whatever was reserved can be written, though a lap ends in between and nothing is released.
  for (uint32_t start = 0; start < kCapacity; start += 16) {
    RingMemory memory;
    RingWriter writer(memory.all(), kNonce, kMaxRecord);
    RingReader reader(memory.all(), kNonce);
    for (uint32_t at = 0; at < start; at += 16) {
      ASSERT_TRUE(Put(writer, "").ok());
      ASSERT_TRUE(reader.Next().has_value());
      reader.Release(reader.read_position());
    }
    const std::vector<size_t> sizes = {240, 100, 240, 1, 60};
    uint64_t total = 0;
    for (size_t size : sizes) total += RecordBytes(size);
    ASSERT_TRUE(writer.Reserve(total)) << start;
    for (size_t size : sizes) {
      Body body(std::string(size, 'r'));
      ASSERT_TRUE(writer.Append(body.record(), 0, WorkRequest::Notify::kNone).ok());
    }
    for (size_t size : sizes) {
      auto record = reader.Next();
      ASSERT_TRUE(record.has_value()) << start;
      ASSERT_EQ(record->body.size(), size);
    }
    reader.Release(reader.read_position());
    EXPECT_EQ(writer.free_bytes(), kCapacity - kMaxRecord);
  }
}

TEST(RingTest, UnreservedRoomComesBack) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  const uint64_t room = writer.free_bytes();
  ASSERT_TRUE(writer.Reserve(room));
  EXPECT_FALSE(writer.Reserve(16));
  writer.Unreserve(100);
  EXPECT_EQ(writer.free_bytes(), 100u);
  writer.Unreserve(room - 100);
  EXPECT_EQ(writer.free_bytes(), room);
}

TEST(RingTest, HeadAheadOfTheTailGivesNoRoom) {
  RingMemory memory;
  uint64_t head = 4096;
  FakeConnection connection(memory.data(), true);
  RingWriter writer(connection, Descriptor(), &head, kMaxRecord);
  EXPECT_EQ(writer.free_bytes(), 0u);
  EXPECT_FALSE(writer.Reserve(16));
}

TEST(RingTest, FullRequestQueueKeepsReservationAndTail) {
  RingMemory memory;
  uint64_t head = 0;
  FakeConnection connection(memory.data(), true);
  RingWriter writer(connection, Descriptor(), &head, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  Body body("again");
  ASSERT_TRUE(writer.Reserve(RecordBytes(5)));
  const uint64_t room = writer.free_bytes();
  connection.full = true;
  EXPECT_TRUE(absl::IsResourceExhausted(writer.Append(body.record(), 0, WorkRequest::Notify::kNone)));
  EXPECT_EQ(writer.free_bytes(), room);
  connection.full = false;
  EXPECT_TRUE(writer.Append(body.record(), 0, WorkRequest::Notify::kNone).ok());
  auto record = reader.Next();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(Text(*record), "again");
}

TEST(RingTest, OnlyTheLastWriteNotifiesAndSignals) {
  for (bool at_once : {true, false}) {
    RingMemory memory;
    uint64_t head = 0;
    FakeConnection connection(memory.data(), at_once);
    RingWriter writer(connection, Descriptor(), &head, kMaxRecord);
    // 944 of 1,024 bytes are used, so a record of 216 follows a padding.
    for (size_t size : {240, 240, 0, 0, 0}) {
      ASSERT_TRUE(Put(writer, std::string(size, 'p')).ok());
      head += RecordBytes(size);
    }
    for (size_t size : {240, 100, 0}) {
      ASSERT_TRUE(Put(writer, std::string(size, 'p')).ok());
      head += RecordBytes(size);
    }
    connection.Clear();
    Body body(std::string(200, 'n'));
    ASSERT_TRUE(writer.Reserve(RecordBytes(200)));
    ASSERT_TRUE(writer.Append(body.record(), 99, WorkRequest::Notify::kWake).ok());
    ASSERT_EQ(connection.posted.size(), at_once ? 2u : 3u);
    for (size_t i = 0; i < connection.posted.size(); ++i) {
      const bool last = i + 1 == connection.posted.size();
      EXPECT_EQ(connection.posted[i].signaled, last);
      EXPECT_EQ(connection.posted[i].id, last ? 99u : 0u);
      EXPECT_EQ(connection.posted[i].notify, last ? WorkRequest::Notify::kWake : WorkRequest::Notify::kNone);
    }
    EXPECT_EQ(connection.posted.back().channel, 1);
  }
}

TEST(RingTest, ReaderRejectsTornRecordAndAcceptsItWhenWhole) {
  // Any set of missing 8-byte pieces: of a fresh ring, and with the bytes of an earlier lap in their place.
  for (bool second_lap : {false, true}) {
    RingMemory memory;
    uint64_t head = 0;
    FakeConnection connection(memory.data(), /*at_once=*/false);
    RingWriter writer(connection, Descriptor(), &head, kMaxRecord);
    RingReader reader(memory.all(), kNonce);
    if (second_lap) {
      for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(Put(writer, "").ok());
        connection.Deliver(connection.posted.size() - 1);
        head += 16;
        ASSERT_TRUE(reader.Next().has_value());
        reader.Release(reader.read_position());
      }
    }
    // One inlined WRITE of eight pieces, header included; no piece equals what lies there.
    ASSERT_TRUE(Put(writer, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL").ok());
    const size_t write = connection.posted.size() - 1;
    ASSERT_EQ(connection.posted[write].local.size(), 64u);
    std::vector<std::byte> before(memory.data().begin(), memory.data().end());
    for (uint64_t missing = 1; missing < 256; ++missing) {
      // The first word of a first lap's first record differs from zero only in its length.
      connection.Deliver(write, missing);
      ASSERT_FALSE(reader.Next().has_value()) << "missing pieces " << missing;
      std::copy(before.begin(), before.end(), memory.data().begin());
    }
    connection.Deliver(write);
    auto record = reader.Next();
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(Text(*record), "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL");
  }
}

TEST(RingTest, TornRecordPassesWithoutTheChecksum) {
#ifdef FURROW_MUTATIONS
  RingMemory memory;
  uint64_t head = 0;
  FakeConnection connection(memory.data(), /*at_once=*/false);
  RingWriter writer(connection, Descriptor(), &head, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  ASSERT_TRUE(Put(writer, "0123456789abcdef").ok());
  connection.Deliver(0, /*missing=*/4);
  ASSERT_FALSE(reader.Next().has_value());
  SetMutation(Mutation::kSkipRingChecksum);
  EXPECT_TRUE(reader.Next().has_value());
  SetMutation(Mutation::kNone);
#else
  GTEST_SKIP() << "built without mutation switches";
#endif
}

TEST(RingTest, WithoutReservationARecordIsOverwrittenBeforeItIsReleased) {
#ifdef FURROW_MUTATIONS
  auto first_survives = [](Mutation mutation) {
    RingMemory memory;
    RingWriter writer(memory.all(), kNonce, kMaxRecord);
    RingReader reader(memory.all(), kNonce);
    SetMutation(mutation);
    for (int i = 0; i < 9; ++i) Put(writer, std::string(112, static_cast<char>('a' + i))).IgnoreError();
    SetMutation(Mutation::kNone);
    std::optional<RingRecord> record = reader.Next();
    return record.has_value() && record->body[0] == std::byte{'a'};
  };
  EXPECT_TRUE(first_survives(Mutation::kNone));
  EXPECT_FALSE(first_survives(Mutation::kSkipReservation));
#else
  GTEST_SKIP() << "built without mutation switches";
#endif
}

TEST(RingTest, StaleBytesOfAnEarlierLapDoNotPass) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  // Equal records fill the ring exactly, so every old header stands where a new one is awaited.
  for (int lap = 0; lap < 3; ++lap) {
    for (int i = 0; i < 8; ++i) {
      ASSERT_FALSE(reader.Next().has_value());
      ASSERT_TRUE(Put(writer, std::string(112, 's')).ok());
      ASSERT_TRUE(reader.Next().has_value());
      reader.Release(reader.read_position());
    }
  }
}

TEST(RingTest, RecordOfAnotherNonceIsForged) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce + 1, kMaxRecord);
  RingReader reader(memory.all(), kNonce);
  ASSERT_TRUE(Put(writer, "forged").ok());
  EXPECT_FALSE(reader.Next().has_value());
}

TEST(RingTest, ForgedAndDamagedHeadersAreIgnored) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(seed);
  Random random(seed);
  RingMemory memory;
  RingReader reader(memory.all(), kNonce);
  auto put_header = [&](uint32_t length, uint32_t sequence, uint64_t checksum) {
    const RecordHeader header{length, sequence, checksum};
    std::memcpy(memory.data().data(), &header, sizeof(header));
  };
  // Lengths behind the end of the ring must not be read: under AddressSanitizer that would be an error.
  for (uint32_t length : {kCapacity - 15, kCapacity, 0x7fffffffu, 0xfffffffeu, kPadding}) {
    put_header(length, 0, random.Next());
    EXPECT_FALSE(reader.Next().has_value()) << length;
  }
  for (int i = 0; i < 10000; ++i) {
    put_header(static_cast<uint32_t>(random.Below(kCapacity)), 0, random.Next());
    ASSERT_FALSE(reader.Next().has_value());
  }
}

TEST(RingTest, RestartedReaderGoesOnAtTheHead) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  {
    RingReader reader(memory.all(), kNonce);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(Put(writer, std::to_string(i)).ok());
      auto record = reader.Next();
      ASSERT_TRUE(record.has_value());
      if (i < 17) reader.Release(record->end);
    }
  }
  RingReader again(memory.all(), kNonce);
  for (int i = 17; i < 20; ++i) {
    auto record = again.Next();
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(Text(*record), std::to_string(i));
  }
  EXPECT_FALSE(again.Next().has_value());
}

TEST(RingTest, DamagedHeadLineYieldsNoRecord) {
  RingMemory memory;
  RingWriter writer(memory.all(), kNonce, kMaxRecord);
  ASSERT_TRUE(Put(writer, "x").ok());
  const uint64_t odd = 8;
  std::memcpy(memory.all().data(), &odd, sizeof(odd));
  RingReader reader(memory.all(), kNonce);
  EXPECT_FALSE(reader.Next().has_value());
}

TEST(HeadReturnerTest, WritesAfterAnEighthOfTheRingOrWhenForced) {
  uint64_t word = 0;
  FakeConnection connection(std::as_writable_bytes(std::span(&word, 1)), /*at_once=*/true);
  HeadReturner heads(&connection, {0, RemoteKey(1)}, kCapacity);
  heads.Return(112, false);
  EXPECT_EQ(word, 0u);
  heads.Return(128, false);
  EXPECT_EQ(word, 128u);
  heads.Return(144, false);
  EXPECT_EQ(word, 128u);
  connection.full = true;
  heads.Return(144, true);
  EXPECT_EQ(word, 128u);
  connection.full = false;
  heads.Return(144, true);
  EXPECT_EQ(word, 144u);
  heads.Return(144, true);
  EXPECT_EQ(connection.posted.size(), 2u);
  for (const WorkRequest& request : connection.posted) EXPECT_FALSE(request.signaled);
}

}  // namespace
}  // namespace furrow::rdma
