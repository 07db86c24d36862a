// Many transactions at once, on three nodes.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/mutation.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;

constexpr uint32_t kNodes = 3;

struct Shared {
  std::vector<std::shared_ptr<const Table>> tables;  // by node
  int running = 0;
};

struct Kind {
  IndexKind primary;
  RowLayout layout = RowLayout::kSeparate;
};

TableSpec Spec(Kind kind) {
  TableSpec spec;
  spec.name = "t";
  spec.primary = kind.primary;
  spec.row_layout = kind.layout;
  spec.partitions = 3;
  spec.prefix_bytes = 1;
  spec.expected_rows_per_partition = 30;
  spec.max_key_bytes = 16;
  spec.max_value_bytes = 8;
  if (kind.layout == RowLayout::kInline) return spec;
  spec.secondaries.push_back({.name = "by_value",
                              .kind = IndexKind::kBtree,
                              .unique = false,
                              .parts = {{KeyPart::Source::kValue, 0, 1}}});
  return spec;
}

std::string Key(uint64_t n) { return std::string(1, static_cast<char>(n % 5)) + "key" + std::to_string(n); }

Shared OpenEverywhere(IndexCluster& cluster, Kind kind) {
  Shared shared;
  cluster.Create(0, Spec(kind));
  for (uint32_t n = 0; n < kNodes; ++n) shared.tables.push_back(cluster.Open(n, "t"));
  return shared;
}

constexpr uint64_t kKeys = 80;

// Rows of a table, of which no index can be scanned: by asking for each key.
Task<absl::StatusOr<uint64_t>> CountByKey(Transaction& tx, const Table& table) {
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kKeys; ++n) keys.push_back(Key(n));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<RowResult> rows(kKeys, RowResult(Row{}));
  const absl::Status status = co_await table.GetMany(tx, views, rows);
  if (!status.ok()) co_return status;
  co_return static_cast<uint64_t>(
      std::count_if(rows.begin(), rows.end(), [](const RowResult& r) { return r.ok(); }));
}

// Rows by an index: the primary one (-1), or the secondary one.
Task<absl::StatusOr<uint64_t>> Count(Transaction& tx, const Table& table, int index) {
  if (table.spec().row_layout == RowLayout::kInline) co_return co_await CountByKey(tx, table);
  uint64_t count = 0;
  const absl::Status status = co_await table.Scan(tx, {.index = index}, [&](const Row&) {
    ++count;
    return true;
  });
  if (!status.ok()) co_return status;
  co_return count;
}

// Deletes a row and inserts another: the number of rows stays.
Task<absl::Status> Move(Transaction& tx, const Table& table, uint64_t from, uint64_t to) {
  const RowResult row = co_await table.Get(tx, Key(from));
  if (row.status().code() == absl::StatusCode::kNotFound) co_return absl::OkStatus();
  if (!row.ok()) co_return row.status();
  absl::Status status = co_await table.Delete(tx, *row);
  if (!status.ok()) co_return status;
  const std::string value(1, static_cast<char>('a' + to % 7));
  status = (co_await table.Insert(tx, Key(to), value)).status();
  // Taken: undo by giving up.
  co_return status.code() == absl::StatusCode::kAlreadyExists ? absl::CancelledError("taken") : status;
}

Task<void> Mover(txn::Worker& worker, const Table& table, uint64_t seed, int rounds, int* running) {
  Random random(seed);
  for (int i = 0; i < rounds; ++i) {
    const uint64_t from = random.Below(kKeys);
    const uint64_t to = random.Below(kKeys);
    const txn::CommitResult result =
        co_await worker.Run([&](Transaction& tx) { return Move(tx, table, from, to); });
    EXPECT_TRUE(result.status.ok() || result.status.code() == absl::StatusCode::kCancelled) << result.status;
  }
  --*running;
}

Task<void> Counter(txn::Worker& worker, const Table& table, uint64_t expected, const int* running,
                   int* ended) {
  while (*running > 0) {
    for (int index = -1; index < 1; ++index) {
      const bool by_key = table.spec().row_layout == RowLayout::kInline;
      if (by_key ? index >= 0 : table.descriptor().kind(static_cast<size_t>(index + 1)) == IndexKind::kHash) {
        continue;
      }
      const txn::CommitResult result = co_await worker.Run(
          [&](Transaction& tx) -> Task<absl::Status> {
            const absl::StatusOr<uint64_t> count = co_await Count(tx, table, index);
            if (count.ok()) EXPECT_EQ(*count, expected) << "index " << index;  // opacity: in every attempt
            co_return count.status();
          },
          {.transaction = {.read_only = true}});
      IndexCluster::Check(result.status);
    }
  }
  ++*ended;
}

class Concurrency : public testing::TestWithParam<Kind> {};

TEST_P(Concurrency, ScansSeeEachSnapshotWholeWhileRowsMove) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    IndexCluster cluster(seed);
    Shared shared = OpenEverywhere(cluster, GetParam());
    cluster.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
        for (uint64_t n = 0; n < 40; ++n) {
          const absl::Status status = (co_await shared.tables[0]->Insert(tx, Key(n), "a")).status();
          if (!status.ok()) co_return status;
        }
        co_return absl::OkStatus();
      });
      IndexCluster::Check(result.status);
    });
    int ended = 0;
    for (uint32_t node = 0; node < kNodes; ++node) {
      for (uint64_t i = 0; i < 3; ++i) {
        ++shared.running;
        cluster.worker(node).loop().Spawn(Mover(cluster.worker(node), *shared.tables[node],
                                                seed * 100 + node * 10 + i, 25, &shared.running));
      }
      cluster.worker(node).loop().Spawn(
          Counter(cluster.worker(node), *shared.tables[node], 40, &shared.running, &ended));
    }
    cluster.RunUntil([&] { return shared.running == 0 && ended == static_cast<int>(kNodes); });
    IndexCluster::Check(cluster.sim().DrainAndCompare());
  }
}

// Inserts a row of the group if there is none: with phantoms there would be two.
Task<absl::Status> InsertFirst(Transaction& tx, const Table& table, uint64_t group, uint64_t who) {
  const std::string prefix = Key(group) + "/";
  if (table.spec().primary == IndexKind::kBtree) {
    bool empty = true;
    const absl::Status status = co_await table.Scan(tx, {.range = KeyRange::Prefix(prefix)}, [&](const Row&) {
      empty = false;
      return false;
    });
    if (!status.ok()) co_return status;
    if (!empty) co_return absl::OkStatus();
  } else {
    for (uint64_t other = 0; other < 2; ++other) {
      const RowResult row = co_await table.Get(tx, prefix + std::to_string(other));
      if (row.ok()) co_return absl::OkStatus();
      if (row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
    }
    who %= 2;
  }
  co_return (co_await table.Insert(tx, prefix + std::to_string(who), "x")).status();
}

Task<void> First(txn::Worker& worker, const Table& table, uint64_t who, uint64_t groups, int* running) {
  for (uint64_t group = 0; group < groups; ++group) {
    const txn::CommitResult result =
        co_await worker.Run([&](Transaction& tx) { return InsertFirst(tx, table, group, who); });
    IndexCluster::Check(result.status);
  }
  --*running;
}

// Rows of each group of RaceForFirst(), by asking for each key.
Task<absl::Status> CountGroups(Transaction& tx, const Table& table, uint64_t groups,
                               std::map<std::string, int>* rows) {
  for (uint64_t n = 0; n < 2 * groups; ++n) {
    const RowResult row = co_await table.Get(tx, Key(n / 2) + "/" + std::to_string(n % 2));
    if (row.ok()) ++(*rows)[Key(n / 2)];
    if (!row.ok() && row.status().code() != absl::StatusCode::kNotFound) co_return row.status();
  }
  co_return absl::OkStatus();
}

// Rows per group after six workers tried to insert the first one of each.
std::map<std::string, int> RaceForFirst(Kind kind, uint64_t seed, uint64_t groups) {
  IndexCluster cluster(seed);
  Shared shared = OpenEverywhere(cluster, kind);
  for (uint32_t node = 0; node < kNodes; ++node) {
    for (uint64_t i = 0; i < 2; ++i) {
      ++shared.running;
      cluster.worker(node).loop().Spawn(
          First(cluster.worker(node), *shared.tables[node], 2 * node + i, groups, &shared.running));
    }
  }
  cluster.RunUntil([&] { return shared.running == 0; });
  std::map<std::string, int> rows;
  cluster.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
    const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      rows.clear();
      if (kind.layout == RowLayout::kInline)
        co_return co_await CountGroups(tx, *shared.tables[0], groups, &rows);
      co_return co_await shared.tables[0]->Scan(tx, {.index = 0}, [&](const Row& row) {
        ++rows[std::string(row.key.substr(0, row.key.find('/')))];
        return true;
      });
    });
    IndexCluster::Check(result.status);
  });
  return rows;
}

TEST_P(Concurrency, WhatWasNotFoundIsNotThereAtCommitTime) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const std::map<std::string, int> rows = RaceForFirst(GetParam(), seed, 12);
    EXPECT_EQ(rows.size(), 12u);
    for (const auto& [group, count] : rows) EXPECT_EQ(count, 1) << group;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Concurrency,
                         testing::Values(Kind{IndexKind::kBtree}, Kind{IndexKind::kHash},
                                         Kind{IndexKind::kHash, RowLayout::kInline}));

}  // namespace
}  // namespace furrow::index
