#include "index/inline_hash.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/row_access.h"

namespace furrow::index {
namespace {

absl::Status NotReadHere() {
  return absl::FailedPreconditionError(
      "a row must be read by the transaction that changes it, and not be deleted by it before");
}

}  // namespace

absl::StatusOr<const std::byte*> InlineHash::CheckNumber(const txn::ReadResult& read, uint32_t number) const {
  if (read.ok()) [[likely]] {
    const InlineBucketHeader header = InlineBucket(read->data(), geometry_).header();
    if (header.index == id_ && header.number == number) [[likely]] {
      return read->data();
    }
  } else if (!IsMissing(read.status())) {
    return read.status();
  }
  return nullptr;
}

// Rows of a bucket that the transaction writes are copied: a deletion clears their slot, which another row
// may take.
absl::StatusOr<Row> InlineHash::RowAt(txn::Transaction& tx, const InlineBucket& bucket, uint32_t slot,
                                      Address at) const {
  if (!bucket.Sound(slot)) [[unlikely]] {
    return absl::DataLossError(absl::StrCat("hash index ", id_, ": a row of the bucket at ", ToString(at),
                                            " is longer than its slot: run furrow doctor"));
  }
  Row row{.address = at, .key = bucket.key(slot), .value = bucket.value(slot)};
  const txn::Access* access = tx.has_writes() ? tx.FindAccess(at) : nullptr;
  if (access == nullptr || access->write == nullptr) return row;
  auto* copy = reinterpret_cast<char*>(tx.Memory(geometry_.key_room + row.value.size()));
  std::memcpy(copy, row.key.data(), row.key.size());
  std::memcpy(copy + geometry_.key_room, row.value.data(), row.value.size());
  row.key = std::string_view(copy, row.key.size());
  row.value = std::string_view(copy + geometry_.key_room, row.value.size());
  return row;
}

bool InlineHash::TryFind(txn::Transaction& tx, uint64_t hash, std::string_view key,
                         absl::StatusOr<Row>* result) const {
  if (key.size() <= geometry_.key_room) [[likely]] {
    const InlineKey probe(key);
    for (Address at = Home(hash); !at.is_null();) {
      auto read = tx.Read(at, read_bytes());
      if (!read.await_ready()) return false;
      const absl::StatusOr<const std::byte*> payload = Check(read.await_resume(), hash);
      if (!payload.ok()) {
        *result = payload.status();
        return true;
      }
      if (*payload == nullptr) return false;
      const InlineBucket bucket(*payload, geometry_);
      const int slot = bucket.Find(probe);
      if (slot >= 0) {
        *result = RowAt(tx, bucket, static_cast<uint32_t>(slot), at);
        return true;
      }
      at = Address::FromBits(bucket.header().next);
    }
  }
  *result = NotFound();
  return true;
}

Task<absl::StatusOr<Row>> InlineHash::FindSlow(txn::Transaction& tx, uint64_t hash,
                                               std::string_view key) const {
  if (key.size() > geometry_.key_room) co_return NotFound();
  const InlineKey probe(key);
  for (Address at = Home(hash); !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::byte* found, Check(co_await tx.Read(at, read_bytes()), hash));
    if (found == nullptr) co_return co_await NoBucket(tx, hash, at);
    const InlineBucket bucket(found, geometry_);
    const int slot = bucket.Find(probe);
    if (slot >= 0) co_return RowAt(tx, bucket, static_cast<uint32_t>(slot), at);
    at = Address::FromBits(bucket.header().next);
  }
  co_return NotFound();
}

Task<absl::Status> InlineHash::ReadChain(txn::Transaction& tx, uint32_t number,
                                         std::vector<Row>* rows) const {
  for (Address at = BucketAt(number); !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::byte* found,
                               CheckNumber(co_await tx.Read(at, read_bytes()), number));
    if (found == nullptr) co_return co_await WhyNoBucket(life_, tx, id_, number, at);
    const InlineBucket bucket(found, geometry_);
    for (uint32_t slot = 0; slot < geometry_.slots; ++slot) {
      if (!bucket.used(slot)) continue;
      FURROW_CO_ASSIGN_OR_RETURN(const Row row, RowAt(tx, bucket, slot, at));
      rows->push_back(row);
    }
    at = Address::FromBits(bucket.header().next);
  }
  co_return absl::OkStatus();
}

absl::StatusOr<Row> InlineHash::Put(txn::Transaction& tx, Address at, std::span<std::byte> payload,
                                    uint32_t slot, std::string_view key, std::string_view value) const {
  PutInlineRow(payload, geometry_, slot, key, value);
  return RowAt(tx, InlineBucket(payload.data(), geometry_), slot, at);
}

Task<absl::StatusOr<Row>> InlineHash::Insert(txn::Transaction& tx, uint64_t hash, std::string_view key,
                                             std::string_view value) const {
  const InlineKey probe(key);
  const Address home = Home(hash);
  Address with_space;
  uint32_t space = 0;
  uint64_t home_next = 0;
  for (Address at = home; !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::byte* found, Check(co_await tx.Read(at, read_bytes()), hash));
    if (found == nullptr) co_return co_await NoBucket(tx, hash, at);
    const InlineBucket bucket(found, geometry_);
    if (bucket.Find(probe) >= 0) co_return AlreadyExists();
    if (const int free = bucket.FirstFree(); free >= 0 && with_space.is_null()) {
      with_space = at;
      space = static_cast<uint32_t>(free);
    }
    const uint64_t next = bucket.header().next;
    if (at == home) home_next = next;
    at = Address::FromBits(next);
  }
  if (!with_space.is_null()) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(with_space, read_bytes()));
    co_return Put(tx, with_space, payload, space, key, value);
  }
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation overflow,
                             co_await tx.Alloc(locality_, read_bytes()));
  const InlineBucketHeader header{.index = id_, .number = directory_.NumberOf(hash), .next = home_next};
  std::memcpy(overflow.payload.data(), &header, sizeof(header));
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(home, read_bytes()));
  SetInlineNext(payload, overflow.address.bits());
  co_return Put(tx, overflow.address, overflow.payload, 0, key, value);
}

absl::StatusOr<InlineHash::Place> InlineHash::Open(txn::Transaction& tx, const Row& row) const {
  const txn::Access* access = tx.FindAccess(row.address);
  if (access == nullptr || !access->found || row.key.size() > geometry_.key_room) return NotReadHere();
  const std::byte* now = access->write != nullptr ? access->write : access->read;
  const uint32_t have = access->write != nullptr ? access->write_bytes : access->read_bytes;
  if (have != read_bytes()) return NotReadHere();
  const int slot = InlineBucket(now, geometry_).Find(InlineKey(row.key));
  if (slot < 0) return NotReadHere();
  FURROW_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(row.address, read_bytes()));
  return Place{payload, static_cast<uint32_t>(slot)};
}

absl::StatusOr<std::span<std::byte>> InlineHash::OpenForWrite(txn::Transaction& tx, const Row& row) const {
  FURROW_ASSIGN_OR_RETURN(const Place place, Open(tx, row));
  const InlineBucket bucket(place.payload.data(), geometry_);
  return place.payload.subspan(geometry_.slot_at(place.slot) + geometry_.key_room,
                               bucket.value(place.slot).size());
}

absl::StatusOr<Row> InlineHash::Update(txn::Transaction& tx, const Row& row, std::string_view value) const {
  FURROW_ASSIGN_OR_RETURN(const Place place, Open(tx, row));
  PutInlineValue(place.payload, geometry_, place.slot, value);
  return RowAt(tx, InlineBucket(place.payload.data(), geometry_), place.slot, row.address);
}

Task<absl::Status> InlineHash::Remove(txn::Transaction& tx, uint64_t hash, Row row) const {
  if (row.key.size() > geometry_.key_room) co_return NotReadHere();
  const InlineKey probe(row.key);
  const Address home = Home(hash);
  Address before;
  for (Address at = home; !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::byte* found, Check(co_await tx.Read(at, read_bytes()), hash));
    if (found == nullptr) co_return co_await NoBucket(tx, hash, at);
    const InlineBucket bucket(found, geometry_);
    const uint64_t next = bucket.header().next;
    const int slot = bucket.Find(probe);
    if (slot < 0) {
      before = at;
      at = Address::FromBits(next);
      continue;
    }
    if (at != home && bucket.used_slots() == 1) {
      FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(before, read_bytes()));
      SetInlineNext(payload, next);
      co_return tx.Free(at);
    }
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload, tx.OpenForWrite(at, read_bytes()));
    ClearInlineRow(payload, geometry_, static_cast<uint32_t>(slot));
    co_return absl::OkStatus();
  }
  co_return NotReadHere();
}

}  // namespace furrow::index
