#include "index/hash_index.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/row_access.h"

namespace furrow::index {

absl::Status HashDirectory::Add(Address bucket) {
  size_t which = regions_.size();
  // Buckets come in runs from one region: the last one is nearly always it.
  for (size_t i = regions_.size(); i-- > 0 && which == regions_.size();) {
    if (regions_[i] == bucket.region()) which = i;
  }
  if (which == 64)
    return absl::ResourceExhaustedError("the buckets of a hash partition lie in more than 64 regions");
  if (which == regions_.size()) regions_.push_back(bucket.region());
  buckets_.push_back(static_cast<uint32_t>(which << 26 | bucket.offset() / storage::kLineBytes));
  return absl::OkStatus();
}

Task<absl::Status> WhyNoBucket(const TableLife* life, txn::Transaction& tx, uint32_t index, uint32_t number,
                               Address address) {
  return WhyMissing(life, tx, index, absl::StrCat("bucket ", number, " is not at ", ToString(address)));
}

uint32_t HashIndex::BucketsFor(uint64_t rows) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows / kMeanBucketEntries + 1, 1, 1u << 30));
}

absl::StatusOr<const Bucket*> HashIndex::CheckNumber(const txn::ReadResult& read, uint32_t number) const {
  if (read.ok()) [[likely]] {
    const auto* bucket = reinterpret_cast<const Bucket*>(read->data());
    if (bucket->index == id_ && bucket->number == number) [[likely]] {
      return bucket;
    }
  } else if (!IsMissing(read.status())) {
    return read.status();
  }
  return nullptr;
}

bool HashIndex::TryFind(txn::Transaction& tx, uint64_t hash, const RowMatcher& match,
                        absl::StatusOr<Row>* result) const {
  const uint32_t tag = Tag(hash);
  for (Address at = Home(hash); !at.is_null();) {
    auto read = tx.Read(at, sizeof(Bucket));
    if (!read.await_ready()) return false;
    const absl::StatusOr<const Bucket*> bucket = Check(read.await_resume(), hash);
    if (!bucket.ok()) {
      *result = bucket.status();
      return true;
    }
    if (*bucket == nullptr) return false;
    for (const uint64_t entry : (*bucket)->entries) {
      const RowPointer pointer = RowPointer::FromBits(entry);
      if (pointer.is_null() || pointer.tag() != tag) continue;
      if (!TryReadRow(tx, match.table->table_id, pointer, result)) return false;
      if (!result->ok() || match(**result)) return true;
    }
    at = Address::FromBits((*bucket)->next);
  }
  *result = NotFound();
  return true;
}

Task<absl::StatusOr<Row>> HashIndex::FindSlow(txn::Transaction& tx, uint64_t hash, RowMatcher match) const {
  for (Address at = Home(hash); !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const Bucket* bucket, Check(co_await tx.Read(at, sizeof(Bucket)), hash));
    if (bucket == nullptr) co_return co_await NoBucket(tx, hash, at);
    for (const uint64_t entry : bucket->entries) {
      const RowPointer pointer = RowPointer::FromBits(entry);
      if (pointer.is_null() || pointer.tag() != Tag(hash)) continue;
      const txn::ReadResult read = co_await tx.Read(pointer.address(), RowReadBytes(tx, pointer));
      FURROW_CO_ASSIGN_OR_RETURN(const Row row, RowFrom(read, match.table->table_id, pointer));
      if (match(row)) co_return row;
    }
    at = Address::FromBits(bucket->next);
  }
  co_return NotFound();
}

Task<absl::Status> HashIndex::ReadChain(txn::Transaction& tx, uint32_t number,
                                        std::vector<RowPointer>* rows) const {
  for (Address at = BucketAt(number); !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const Bucket* bucket,
                               CheckNumber(co_await tx.Read(at, sizeof(Bucket)), number));
    if (bucket == nullptr) co_return co_await WhyNoBucket(life_, tx, id_, number, at);
    for (const uint64_t entry : bucket->entries) {
      if (entry != 0) rows->push_back(RowPointer::FromBits(entry));
    }
    at = Address::FromBits(bucket->next);
  }
  co_return absl::OkStatus();
}

int HashIndex::TryCandidates(txn::Transaction& tx, uint64_t hash, RowPointer* out, int max) const {
  auto read = tx.Read(Home(hash), sizeof(Bucket));
  if (!read.await_ready()) return -1;
  const absl::StatusOr<const Bucket*> bucket = Check(read.await_resume(), hash);
  if (!bucket.ok() || *bucket == nullptr) return 0;  // the lookup will say why
  int found = 0;
  for (const uint64_t entry : (*bucket)->entries) {
    const RowPointer pointer = RowPointer::FromBits(entry);
    if (!pointer.is_null() && pointer.tag() == Tag(hash) && found < max) out[found++] = pointer;
  }
  return found;
}

Task<absl::Status> HashIndex::Insert(txn::Transaction& tx, uint64_t hash, RowMatcher match,
                                     RowPointer row) const {
  const Address home = Home(hash);
  Address with_space;
  size_t space = 0;
  uint64_t home_next = 0;
  for (Address at = home; !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const Bucket* bucket, Check(co_await tx.Read(at, sizeof(Bucket)), hash));
    if (bucket == nullptr) co_return co_await NoBucket(tx, hash, at);
    for (size_t i = 0; i < kBucketEntries; ++i) {
      const RowPointer pointer = RowPointer::FromBits(bucket->entries[i]);
      if (pointer.is_null()) {
        if (with_space.is_null()) {
          with_space = at;
          space = i;
        }
        continue;
      }
      if (pointer.tag() != Tag(hash)) continue;
      const txn::ReadResult read = co_await tx.Read(pointer.address(), RowReadBytes(tx, pointer));
      FURROW_CO_ASSIGN_OR_RETURN(const Row other, RowFrom(read, match.table->table_id, pointer));
      if (match(other)) co_return AlreadyExists();
    }
    if (at == home) home_next = bucket->next;
    at = Address::FromBits(bucket->next);
  }
  if (!with_space.is_null()) {
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(with_space, sizeof(Bucket)));
    reinterpret_cast<Bucket*>(bytes.data())->entries[space] = row.bits();
    co_return absl::OkStatus();
  }
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation overflow,
                             co_await tx.Alloc(locality_, sizeof(Bucket)));
  auto* bucket = reinterpret_cast<Bucket*>(overflow.payload.data());
  *bucket = Bucket{.index = id_, .number = BucketNumber(hash), .next = home_next, .entries = {row.bits()}};
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(home, sizeof(Bucket)));
  reinterpret_cast<Bucket*>(bytes.data())->next = overflow.address.bits();
  co_return absl::OkStatus();
}

Task<absl::Status> HashIndex::Replace(txn::Transaction& tx, uint64_t hash, Address row, RowPointer by) const {
  const Address home = Home(hash);
  Address before;
  for (Address at = home; !at.is_null();) {
    FURROW_CO_ASSIGN_OR_RETURN(const Bucket* bucket, Check(co_await tx.Read(at, sizeof(Bucket)), hash));
    if (bucket == nullptr) co_return co_await NoBucket(tx, hash, at);
    size_t place = kBucketEntries;
    size_t used = 0;
    for (size_t i = 0; i < kBucketEntries; ++i) {
      const RowPointer pointer = RowPointer::FromBits(bucket->entries[i]);
      if (pointer.is_null()) continue;
      ++used;
      if (pointer.address() == row) place = i;
    }
    if (place == kBucketEntries) {
      before = at;
      at = Address::FromBits(bucket->next);
      continue;
    }
    if (by.is_null() && used == 1 && at != home) {
      const uint64_t next = bucket->next;
      FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(before, sizeof(Bucket)));
      reinterpret_cast<Bucket*>(bytes.data())->next = next;
      co_return tx.Free(at);
    }
    FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(at, sizeof(Bucket)));
    reinterpret_cast<Bucket*>(bytes.data())->entries[place] = by.bits();
    co_return absl::OkStatus();
  }
  co_return absl::DataLossError(absl::StrCat("hash index ", id_, ": bucket ", BucketNumber(hash),
                                             " has no entry for the row at ", ToString(row)));
}

Task<absl::Status> HashIndex::Remove(txn::Transaction& tx, uint64_t hash, Address row) const {
  return Replace(tx, hash, row, RowPointer());
}

}  // namespace furrow::index
