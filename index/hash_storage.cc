// Making the buckets of a hash partition, and reading its directory.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/hash_index.h"
#include "index/row_access.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

// Payload of the buckets that one transaction makes: far below what a log record holds.
constexpr uint32_t kBytesPerTransaction = 26'000;

uint32_t ChunkBytes(uint32_t buckets) { return kChunkHeaderBytes + 8 * buckets; }

struct ChunkHeader {
  uint32_t index;
  uint32_t first;
  uint64_t before;
};
static_assert(sizeof(ChunkHeader) == kChunkHeaderBytes && offsetof(ChunkHeader, before) == 8);

// Makes an empty chunk, for `count` buckets from `header.first` on.
Task<absl::Status> MakeChunk(txn::Transaction& tx, RegionId locality, ChunkHeader header, uint32_t count,
                             const HashIndex::Recorder& record, Address* out) {
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation chunk,
                             co_await tx.Alloc(locality, ChunkBytes(count)));
  std::memcpy(chunk.payload.data(), &header, sizeof(header));
  *out = chunk.address;
  co_return co_await record(tx, IndexPartition{.root = chunk.address, .buckets = header.first + count});
}

// Makes buckets [from, from + made) of a chunk empty, and enters them there.
Task<absl::Status> MakeBuckets(txn::Transaction& tx, RegionId locality, Address chunk, uint32_t count,
                               uint32_t from, uint32_t made, uint32_t bucket_bytes) {
  const txn::ReadResult read = co_await tx.Read(chunk, ChunkBytes(count));
  if (!read.ok()) co_return read.status();
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, tx.OpenForWrite(chunk, ChunkBytes(count)));
  ChunkHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (uint32_t i = from; i < from + made; ++i) {
    FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation bucket,
                               co_await tx.Alloc(locality, bucket_bytes));
    const uint32_t name[] = {header.index, header.first + i};
    std::memcpy(bucket.payload.data(), name, sizeof(name));
    const uint64_t bits = bucket.address.bits();
    std::memcpy(bytes.data() + kChunkHeaderBytes + 8 * size_t{i}, &bits, 8);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> ReadChunks(txn::Transaction& tx, uint32_t id, IndexPartition partition,
                              std::vector<Address>* buckets) {
  buckets->assign(partition.buckets, Address());
  uint32_t end = partition.buckets;
  Address at = partition.root;
  while (end > 0) {
    const uint32_t count = (end - 1) % kChunkBuckets + 1;
    const txn::ReadResult read = co_await tx.Read(at, ChunkBytes(count));
    if (!read.ok() && !IsMissing(read.status())) co_return read.status();
    ChunkHeader header{};
    if (read.ok()) std::memcpy(&header, read->data(), sizeof(header));
    if (!read.ok() || header.index != id || header.first != end - count) {
      co_return absl::DataLossError(absl::StrCat("hash index ", id, ": the directory of buckets ",
                                                 end - count, " to ", end - 1, " is not at ", ToString(at),
                                                 ": run furrow doctor"));
    }
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t bits;
      std::memcpy(&bits, read->data() + kChunkHeaderBytes + 8 * size_t{i}, 8);
      (*buckets)[header.first + i] = Address::FromBits(bits);
    }
    at = Address::FromBits(header.before);
    end -= count;
  }
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> HashIndex::ReadChunk(txn::Transaction& tx, uint32_t id, IndexPartition partition,
                                        HashChunk* out) {
  *out = HashChunk{};
  if (partition.buckets == 0) co_return absl::OkStatus();
  const uint32_t count = (partition.buckets - 1) % kChunkBuckets + 1;
  const txn::ReadResult read = co_await tx.Read(partition.root, ChunkBytes(count));
  if (!read.ok()) co_return IsMissing(read.status()) ? absl::OkStatus() : read.status();
  ChunkHeader header;
  std::memcpy(&header, read->data(), sizeof(header));
  if (header.index != id || header.first != partition.buckets - count) co_return absl::OkStatus();
  out->first = header.first;
  out->count = count;
  out->before = Address::FromBits(header.before);
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t bits;
    std::memcpy(&bits, read->data() + kChunkHeaderBytes + 8 * size_t{i}, 8);
    out->buckets.push_back(Address::FromBits(bits));
  }
  co_return absl::OkStatus();
}

Task<absl::StatusOr<IndexPartition>> HashIndex::Create(txn::Worker& worker, uint32_t id, RegionId locality,
                                                       uint32_t buckets, uint32_t bucket_bytes,
                                                       const Recorder& record) {
  const uint32_t at_once = std::max(1u, kBytesPerTransaction / bucket_bytes);
  Address before;
  for (uint32_t first = 0; first < buckets; first += kChunkBuckets) {
    const uint32_t count = std::min(kChunkBuckets, buckets - first);
    Address chunk;
    const txn::CommitResult made = co_await worker.Run([&](txn::Transaction& tx) {
      return MakeChunk(tx, locality, ChunkHeader{id, first, before.bits()}, count, record, &chunk);
    });
    FURROW_CO_RETURN_IF_ERROR(made.status);
    for (uint32_t done = 0; done < count; done += at_once) {
      const uint32_t now = std::min(at_once, count - done);
      const txn::CommitResult result = co_await worker.Run([&, now, done](txn::Transaction& tx) {
        return MakeBuckets(tx, locality, chunk, count, done, now, bucket_bytes);
      });
      FURROW_CO_RETURN_IF_ERROR(result.status);
    }
    before = chunk;
  }
  co_return IndexPartition{.root = before, .buckets = buckets};
}

Task<absl::StatusOr<HashDirectory>> HashIndex::ReadDirectory(txn::Worker& worker, uint32_t id,
                                                             IndexPartition partition) {
  std::vector<Address> buckets;
  const txn::CommitResult result =
      co_await worker.Run([&](txn::Transaction& tx) { return ReadChunks(tx, id, partition, &buckets); },
                          {.transaction = {.read_only = true}});
  FURROW_CO_RETURN_IF_ERROR(result.status);
  HashDirectory directory;
  for (const Address bucket : buckets) FURROW_CO_RETURN_IF_ERROR(directory.Add(bucket));
  co_return directory;
}

}  // namespace furrow::index
