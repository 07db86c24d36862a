// Scans of hash tables: bucket after bucket, in no order.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "index/row_access.h"
#include "index/table.h"

namespace furrow::index {
namespace {

// Home buckets that are read side by side.
constexpr uint32_t kBucketBatch = 16;
// Buckets after which a scan that never had to wait lets others run, as in table_scan.cc.
constexpr uint32_t kBucketsPerTurn = 64;

}  // namespace

Task<absl::Status> Table::ReadBucket(txn::Transaction& tx, ScanPosition at, std::vector<Row>* rows) const {
  const Index& index = indexes_[0];
  rows->clear();
  if (!index.rows.empty()) co_return co_await index.rows[at.partition].ReadChain(tx, at.bucket, rows);
  std::vector<RowPointer> pointers;
  FURROW_CO_RETURN_IF_ERROR(co_await index.hash[at.partition].ReadChain(tx, at.bucket, &pointers));
  for (size_t first = 0; first < pointers.size(); first += kRowBatch) {
    const int count = static_cast<int>(std::min<size_t>(kRowBatch, pointers.size() - first));
    FURROW_CO_RETURN_IF_ERROR(co_await Bring(tx, pointers.data() + first, count));
  }
  for (const RowPointer pointer : pointers) {
    FURROW_CO_ASSIGN_OR_RETURN(
        const Row row,
        RowFrom(co_await tx.Read(pointer.address(), RowReadBytes(tx, pointer)), id(), pointer));
    rows->push_back(row);
  }
  co_return absl::OkStatus();
}

Task<absl::StatusOr<ScanPosition>> Table::ScanBuckets(txn::Transaction& tx, ScanPosition from, uint32_t end,
                                                      uint64_t wanted, RowCallback each) const {
  const Index& index = indexes_[0];
  std::vector<Row> rows;
  uint32_t brought = 0;  // home buckets before this one are in the transaction
  uint32_t taken = 0;
  for (; from.partition < end; ++from.partition, from.bucket = 0, brought = 0) {
    const bool rows_inside = !index.rows.empty();
    const uint32_t buckets =
        rows_inside ? index.rows[from.partition].buckets() : index.hash[from.partition].buckets();
    while (from.bucket < buckets) {
      if (from.bucket >= brought) {
        txn::ReadSpec specs[kBucketBatch];
        txn::ReadResult results[kBucketBatch];
        const uint32_t count = std::min(kBucketBatch, buckets - from.bucket);
        for (uint32_t i = 0; i < count; ++i) {
          const uint32_t number = from.bucket + i;
          specs[i] = rows_inside ? txn::ReadSpec{index.rows[from.partition].BucketAt(number),
                                                 index.rows[from.partition].read_bytes()}
                                 : txn::ReadSpec{index.hash[from.partition].BucketAt(number),
                                                 uint32_t{sizeof(Bucket)}};
        }
        // What each of them came to, ReadBucket() finds out.
        FURROW_CO_RETURN_IF_ERROR(co_await tx.ReadMany(std::span(specs, count), std::span(results, count)));
        brought = from.bucket + count;
      }
      FURROW_CO_RETURN_IF_ERROR(co_await ReadBucket(tx, from, &rows));
      ++from.bucket;
      for (const Row& row : rows) {
        if (!each(row)) co_return from;
      }
      wanted -= std::min<uint64_t>(wanted, rows.size());
      if (wanted == 0) co_return from;
      if (++taken % kBucketsPerTurn == 0) FURROW_CO_RETURN_IF_ERROR(co_await NextTurn(tx));
    }
  }
  from.done = true;
  co_return from;
}

Task<absl::StatusOr<ScanPosition>> Table::ScanUnordered(txn::Transaction& tx, ScanPosition from,
                                                        uint64_t rows, RowCallback each) const {
  if (indexes_[0].kind != IndexKind::kHash) {
    co_return absl::FailedPreconditionError(
        absl::StrCat("table \"", spec().name, "\" is a B-tree: read it with Scan(), in order"));
  }
  if (from.done || rows == 0) co_return from;
  co_return co_await ScanBuckets(tx, from, spec().partitions, rows, each);
}

Task<absl::Status> Table::ScanHash(txn::Transaction& tx, const Index& index, ScanSpec scan,
                                   RowCallback each) const {
  const bool whole = scan.range.low.empty() && scan.range.end == KeyRange::End::kUnbounded &&
                     scan.direction == Direction::kForward;
  if (&index != &indexes_[0] || !whole) {
    co_return absl::FailedPreconditionError(absl::StrCat(
        "table \"", spec().name,
        "\": a hash index has no order: scan all rows of the table (KeyRange::All()), or make the index a "
        "B-tree"));
  }
  const auto first = static_cast<uint32_t>(std::max(scan.partition, 0));
  const uint32_t end = scan.partition >= 0 ? first + 1 : spec().partitions;
  uint64_t left = scan.limit;
  const auto count = [&](const Row& row) { return each(row) && --left > 0; };
  co_return (co_await ScanBuckets(tx, {.partition = first}, end, UINT64_MAX, count)).status();
}

}  // namespace furrow::index
