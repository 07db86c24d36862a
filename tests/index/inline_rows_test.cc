// Tables whose rows lie in the buckets of their hash index.
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;
using Body = std::function<Task<absl::Status>(Transaction&, const Table&)>;

TableSpec Spec(uint64_t rows, RowLayout layout = RowLayout::kInline) {
  TableSpec spec;
  spec.name = "t";
  spec.primary = IndexKind::kHash;
  spec.row_layout = layout;
  spec.max_key_bytes = 8;
  spec.max_value_bytes = 40;
  spec.expected_rows_per_partition = rows;
  return spec;
}

std::string Key(uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof(n)); }
std::string Value(uint64_t n) { return "value" + std::to_string(n); }

// A table on node 0, seen by all three.
struct Cluster : IndexCluster {
  explicit Cluster(TableSpec spec) : IndexCluster(1) {
    Create(0, std::move(spec));
    for (uint32_t n = 0; n < 3; ++n) tables.push_back(Open(n, "t"));
  }
  absl::Status Do(uint32_t node, const Body& body) {
    absl::Status status;
    RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      status = (co_await worker.Run([&](Transaction& tx) { return body(tx, *tables[node]); })).status;
    });
    return status;
  }
  void Fill(uint64_t from, uint64_t to) {
    for (uint64_t first = from; first < to; first += 100) {
      Check(Do(0, [&](Transaction& tx, const Table& table) -> Task<absl::Status> {
        for (uint64_t n = first; n < std::min(first + 100, to); ++n) {
          const absl::Status status = (co_await table.Insert(tx, Key(n), Value(n))).status();
          if (!status.ok()) co_return status;
        }
        co_return absl::OkStatus();
      }));
    }
  }
  // Lookups of [from, to) by a node that has no copy, by the number of objects that they read.
  std::map<uint32_t, uint64_t> RemoteReads(uint64_t from, uint64_t to, bool exist) {
    std::map<uint32_t, uint64_t> counts;
    for (uint64_t n = from; n < to; ++n) {
      uint32_t reads = 0;
      Check(Do(1, [&](Transaction& tx, const Table& table) -> Task<absl::Status> {
        const RowResult row = co_await table.Get(tx, Key(n));
        EXPECT_EQ(row.status().code(), exist ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
        if (row.ok()) EXPECT_EQ(row->value, Value(n));
        EXPECT_EQ(tx.local_reads(), 0u);
        reads = tx.remote_reads();
        co_return absl::OkStatus();
      }));
      ++counts[reads];
    }
    return counts;
  }
  uint64_t AllocatedSlots() {
    Check(sim().DrainAndCompare());
    return sim().node(0).allocator.usage().allocated_slots;
  }

  std::vector<std::shared_ptr<const Table>> tables;
};

uint64_t Total(const std::map<uint32_t, uint64_t>& counts) {
  uint64_t total = 0;
  for (const auto& [reads, lookups] : counts) total += reads * lookups;
  return total;
}

TEST(InlineRows, ALookupOnAnotherNodeIsOneReadOfOneObject) {
  Cluster cluster(Spec(100));
  cluster.Fill(0, 1);
  EXPECT_EQ(cluster.RemoteReads(0, 1, true), (std::map<uint32_t, uint64_t>{{1, 1}}));
  EXPECT_EQ(cluster.RemoteReads(1, 2, false), (std::map<uint32_t, uint64_t>{{1, 1}}));
  Cluster separate(Spec(100, RowLayout::kSeparate));
  separate.Fill(0, 1);
  EXPECT_EQ(separate.RemoteReads(0, 1, true), (std::map<uint32_t, uint64_t>{{2, 1}}));
}

TEST(InlineRows, LookupsOfAFullTableNeedLittleMoreThanOneRead) {
  constexpr uint64_t kRows = 1000;
  Cluster cluster(Spec(kRows));
  cluster.Fill(0, kRows);
  // Poisson with 5 rows per bucket of 8 slots: 2.4 rows of 100 lie in an overflow bucket.
  std::map<uint32_t, uint64_t> found = cluster.RemoteReads(0, kRows, true);
  EXPECT_GE(found[1], kRows * 96 / 100);
  EXPECT_LE(Total(found), kRows * 104 / 100);
  // Who finds nothing reads the whole chain, which 6.8 of 100 buckets have.
  EXPECT_LE(Total(cluster.RemoteReads(kRows, kRows + 300, false)), 300 * 112 / 100);
}

TEST(InlineRows, LocalLookupsDoNotSuspend) {
  Cluster cluster(Spec(10));
  cluster.Fill(0, 40);  // chains
  IndexCluster::Check(cluster.Do(0, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    for (uint64_t n = 0; n < 40; ++n) {
      const std::string key = Key(n);
      auto get = table.Get(tx, key);
      EXPECT_TRUE(get.await_ready());
      EXPECT_EQ(get.await_resume()->value, Value(n));
    }
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, GetManyReadsEachBucketOnce) {
  Cluster cluster(Spec(10));
  cluster.Fill(0, 10);
  IndexCluster::Check(cluster.Do(2, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    std::vector<std::string> keys;
    for (uint64_t n = 0; n < 12; ++n) keys.push_back(Key(n));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<RowResult> rows(keys.size(), RowResult(Row{}));
    const absl::Status status = co_await table.GetMany(tx, views, rows);
    if (!status.ok()) co_return status;
    for (uint64_t n = 0; n < 12; ++n) {
      EXPECT_EQ(rows[n].ok(), n < 10);
      if (rows[n].ok()) EXPECT_EQ(rows[n]->value, Value(n));
    }
    EXPECT_LE(tx.remote_reads(), table.descriptor().indexes[0].partitions[0].buckets + 1);
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, RowsThatWereHandedOutStayWhatTheyWere) {
  Cluster cluster(Spec(1));
  cluster.Fill(0, 8);
  IndexCluster::Check(cluster.Do(0, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    const RowResult before = co_await table.Get(tx, Key(2));
    if (!before.ok()) co_return before.status();
    const RowResult first = co_await table.Get(tx, Key(1));
    if (!first.ok()) co_return first.status();
    absl::Status status = co_await table.Delete(tx, *first);
    if (!status.ok()) co_return status;
    // Read from what the transaction has written; then its slot goes to others.
    const RowResult written = co_await table.Get(tx, Key(3));
    if (!written.ok()) co_return written.status();
    status = co_await table.Delete(tx, *written);
    if (!status.ok()) co_return status;
    for (uint64_t n = 0; n < 4; ++n) {
      const RowResult more = co_await table.Insert(tx, Key(100 + n), written->value);
      if (!more.ok()) co_return more.status();
      EXPECT_EQ(more->value, Value(3));
    }
    EXPECT_EQ(first->key, Key(1));
    EXPECT_EQ(first->value, Value(1));
    EXPECT_EQ(written->key, Key(3));
    EXPECT_EQ(written->value, Value(3));
    const RowResult updated = co_await table.Update(tx, *before, "another");
    if (!updated.ok()) co_return updated.status();
    EXPECT_EQ(updated->value, "another");
    EXPECT_EQ(before->value, Value(2));
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, AValueChangesInPlaceAndMayTakeItsNewValueFromItself) {
  Cluster cluster(Spec(1));
  cluster.Fill(0, 3);
  IndexCluster::Check(cluster.Do(1, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    const RowResult row = co_await table.Get(tx, Key(1));
    if (!row.ok()) co_return row.status();
    const absl::StatusOr<std::span<std::byte>> bytes = table.OpenForWrite(tx, *row);
    if (!bytes.ok()) co_return bytes.status();
    EXPECT_EQ(bytes->size(), Value(1).size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes->data()) % 8, 0u);
    (*bytes)[0] = std::byte{'V'};
    const std::string_view now(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    const RowResult updated = co_await table.Update(tx, *row, now.substr(1));
    if (!updated.ok()) co_return updated.status();
    EXPECT_EQ(updated->value, "alue1");
    co_return absl::OkStatus();
  }));
  IndexCluster::Check(cluster.Do(2, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    for (uint64_t n = 0; n < 3; ++n) {
      const RowResult row = co_await table.Get(tx, Key(n));
      if (!row.ok()) co_return row.status();
      EXPECT_EQ(row->value, n == 1 ? "alue1" : Value(n));
    }
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, ARowIsWrittenOnlyBetweenItsReadAndItsDeletion) {
  Cluster cluster(Spec(1));
  cluster.Fill(0, 3);
  IndexCluster::Check(cluster.Do(1, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    const std::string key = Key(1);
    const Row unread{.address = Address(RegionId(1), 64), .key = key, .value = {}};
    EXPECT_EQ(table.OpenForWrite(tx, unread).status().code(), absl::StatusCode::kFailedPrecondition);
    const RowResult row = co_await table.Get(tx, key);
    if (!row.ok()) co_return row.status();
    const absl::Status status = co_await table.Delete(tx, *row);
    if (!status.ok()) co_return status;
    EXPECT_EQ((co_await table.Get(tx, key)).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ((co_await table.Delete(tx, *row)).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ((co_await table.Update(tx, *row, "x")).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(table.OpenForWrite(tx, *row).status().code(), absl::StatusCode::kFailedPrecondition);
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, WhatIsTooLongIsRefusedAndDoomsNothing) {
  Cluster cluster(Spec(1));
  IndexCluster::Check(cluster.Do(0, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    const RowResult value = co_await table.Insert(tx, Key(1), std::string(41, 'v'));
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(value.status().message(), "table \"t\": a value has 41 bytes, the longest may have 40");
    const std::string key(9, 'k');
    EXPECT_EQ((co_await table.Insert(tx, key, "v")).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ((co_await table.Get(tx, key)).status().code(), absl::StatusCode::kNotFound);
    const std::string longest(200, 'k');
    EXPECT_EQ((co_await table.Get(tx, longest)).status().code(), absl::StatusCode::kNotFound);
    const RowResult row = co_await table.Insert(tx, Key(1), std::string(40, 'v'));
    if (!row.ok()) co_return row.status();
    EXPECT_EQ((co_await table.Update(tx, *row, std::string(41, 'w'))).status().code(),
              absl::StatusCode::kInvalidArgument);
    co_return absl::OkStatus();
  }));
}

TEST(InlineRows, OverflowBucketsComeAndGoWithTheirRows) {
  Cluster cluster(Spec(1));  // one bucket of eight slots
  const uint64_t empty = cluster.AllocatedSlots();
  cluster.Fill(0, 30);
  EXPECT_EQ(cluster.AllocatedSlots(), empty + 3) << "an insert takes the first free slot of the chain";
  // Emptied in an order in which buckets in the middle of the chain go first.
  for (const uint64_t n : {16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 8, 9, 10, 11, 12, 13, 14, 15}) {
    IndexCluster::Check(cluster.Do(1, [&](Transaction& tx, const Table& table) -> Task<absl::Status> {
      const RowResult row = co_await table.Get(tx, Key(n));
      if (!row.ok()) co_return row.status();
      co_return co_await table.Delete(tx, *row);
    }));
  }
  EXPECT_EQ(cluster.AllocatedSlots(), empty + 1);
  EXPECT_EQ(Total(cluster.RemoteReads(2, 8, true)), 6u);
  EXPECT_EQ(Total(cluster.RemoteReads(24, 30, true)), 12u);
  IndexCluster::Check(cluster.Do(2, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
    for (uint64_t n = 0; n < 30; ++n) {
      const RowResult row = co_await table.Get(tx, Key(n));
      if (row.status().code() == absl::StatusCode::kNotFound) continue;
      if (!row.ok()) co_return row.status();
      const absl::Status status = co_await table.Delete(tx, *row);
      if (!status.ok()) co_return status;
    }
    co_return absl::OkStatus();
  }));
  EXPECT_EQ(cluster.AllocatedSlots(), empty);
}

TEST(InlineRows, ABucketThatIsNotWhatItShouldBeIsDataLoss) {
  Cluster cluster(Spec(1));
  cluster.Fill(0, 1);
  Address bucket;
  const InlineGeometry geometry = cluster.tables[0]->descriptor().geometry();
  const auto write = [&](size_t at, uint8_t byte) {
    IndexCluster::Check(cluster.Do(0, [&](Transaction& tx, const Table& table) -> Task<absl::Status> {
      if (bucket.is_null()) bucket = (co_await table.Get(tx, Key(0)))->address;
      const txn::ReadResult read = co_await tx.Read(bucket, geometry.payload_bytes());
      if (!read.ok()) co_return read.status();
      const auto payload = tx.OpenForWrite(bucket, geometry.payload_bytes());
      if (!payload.ok()) co_return payload.status();
      (*payload)[at] = std::byte{byte};
      co_return absl::OkStatus();
    }));
  };
  const auto get = [&]() {
    return cluster.Do(1, [](Transaction& tx, const Table& table) -> Task<absl::Status> {
      co_return (co_await table.Get(tx, Key(0))).status();
    });
  };
  write(sizeof(InlineBucketHeader) + 1, 200);  // a value longer than its slot
  EXPECT_EQ(get().code(), absl::StatusCode::kDataLoss);
  write(sizeof(InlineBucketHeader) + 1, 4);
  IndexCluster::Check(get());
  write(4, 1);  // another bucket's number
  EXPECT_EQ(get().code(), absl::StatusCode::kDataLoss);
}

TEST(InlineRows, AreChosenWhereTheSpecAllowsThem) {
  IndexCluster cluster(1);
  const auto layout = [&](TableSpec spec) {
    const std::shared_ptr<const Table> table = cluster.Create(0, std::move(spec));
    EXPECT_EQ(table->spec().row_layout == RowLayout::kInline, table->descriptor().inline_rows());
    return table->spec().row_layout;
  };
  TableSpec spec = Spec(1, RowLayout::kAuto);
  EXPECT_EQ(layout(spec), RowLayout::kInline);
  spec.name = "separate";
  spec.row_layout = RowLayout::kSeparate;
  EXPECT_EQ(layout(spec), RowLayout::kSeparate);
  spec = Spec(1, RowLayout::kAuto);
  spec.name = "values of any size";
  spec.max_value_bytes = TableSpec::kAnyValueBytes;
  EXPECT_EQ(layout(spec), RowLayout::kSeparate);
  spec = Spec(1, RowLayout::kAuto);
  spec.name = "tree";
  spec.primary = IndexKind::kBtree;
  EXPECT_EQ(layout(spec), RowLayout::kSeparate);
  spec = Spec(1, RowLayout::kAuto);
  spec.name = "secondary";
  spec.secondaries.push_back({.name = "by_value",
                              .kind = IndexKind::kBtree,
                              .unique = false,
                              .parts = {{KeyPart::Source::kValue, 0, 4}}});
  EXPECT_EQ(layout(spec), RowLayout::kSeparate);
}

}  // namespace
}  // namespace furrow::index
