// Making the buckets of a hash partition, and reading its directory.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "index/hash_index.h"
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

// Makes buckets [first, first + count) empty.
Task<absl::Status> MakeBuckets(txn::Transaction& tx, uint32_t id, RegionId locality, uint32_t first,
                               uint32_t count, uint32_t bucket_bytes, std::vector<Address>* out) {
  out->clear();
  for (uint32_t i = 0; i < count; ++i) {
    FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation bucket,
                               co_await tx.Alloc(locality, bucket_bytes));
    const uint32_t name[] = {id, first + i};
    std::memcpy(bucket.payload.data(), name, sizeof(name));
    out->push_back(bucket.address);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> MakeChunk(txn::Transaction& tx, RegionId locality, ChunkHeader header,
                             const std::vector<Address>& buckets, Address* out) {
  FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation chunk,
                             co_await tx.Alloc(locality, ChunkBytes(static_cast<uint32_t>(buckets.size()))));
  std::memcpy(chunk.payload.data(), &header, sizeof(header));
  for (size_t i = 0; i < buckets.size(); ++i) {
    const uint64_t bits = buckets[i].bits();
    std::memcpy(chunk.payload.data() + kChunkHeaderBytes + 8 * i, &bits, 8);
  }
  *out = chunk.address;
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
    if (!read.ok() && read.status().code() != absl::StatusCode::kNotFound) co_return read.status();
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

Task<absl::StatusOr<IndexPartition>> HashIndex::Create(txn::Worker& worker, uint32_t id, RegionId locality,
                                                       uint32_t buckets, uint32_t bucket_bytes) {
  const uint32_t at_once = std::max(1u, kBytesPerTransaction / bucket_bytes);
  Address before;
  for (uint32_t first = 0; first < buckets; first += kChunkBuckets) {
    const uint32_t count = std::min(kChunkBuckets, buckets - first);
    std::vector<Address> chunk;
    for (uint32_t done = 0; done < count; done += at_once) {
      std::vector<Address> made;
      const uint32_t now = std::min(at_once, count - done);
      const txn::CommitResult result = co_await worker.Run([&, now, done](txn::Transaction& tx) {
        return MakeBuckets(tx, id, locality, first + done, now, bucket_bytes, &made);
      });
      FURROW_CO_RETURN_IF_ERROR(result.status);
      chunk.insert(chunk.end(), made.begin(), made.end());
    }
    Address address;
    const txn::CommitResult result = co_await worker.Run([&](txn::Transaction& tx) {
      return MakeChunk(tx, locality, ChunkHeader{id, first, before.bits()}, chunk, &address);
    });
    FURROW_CO_RETURN_IF_ERROR(result.status);
    before = address;
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
