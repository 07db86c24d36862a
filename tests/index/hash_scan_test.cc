// Scans of all rows of hash tables, in no order.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;
using Rows = std::map<std::string, std::string>;

constexpr int kRows = 600;

std::string KeyOf(int i) { return absl::StrCat("key", i); }

struct Case {
  RowLayout layout;
  uint32_t partitions;
};

class HashScan : public ::testing::TestWithParam<Case> {
 protected:
  HashScan() : cluster_(/*seed=*/1) {
    TableSpec spec;
    spec.name = "t";
    spec.primary = IndexKind::kHash;
    spec.row_layout = GetParam().layout;
    spec.partitions = GetParam().partitions;
    spec.max_key_bytes = 16;
    spec.max_value_bytes = 32;
    spec.expected_rows_per_partition = kRows / 4 / spec.partitions;  // so that there are chains
    table_ = cluster_.Create(0, spec);
    far_ = cluster_.Open(1, "t");
    for (int first = 0; first < kRows; first += 50) {
      Do(0, [&, first](Transaction& tx) -> Task<absl::Status> {
        for (int i = first; i < first + 50; ++i) {
          auto inserted = co_await table_->Insert(tx, KeyOf(i), absl::StrCat(i));
          if (!inserted.ok()) co_return inserted.status();
        }
        co_return absl::OkStatus();
      });
      for (int i = first; i < first + 50; ++i) wanted_[KeyOf(i)] = absl::StrCat(i);
    }
  }

  absl::Status Try(uint32_t node, txn::Worker::Body body, txn::RunOptions options = {}) {
    absl::Status status;
    cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      status = (co_await worker.Run(std::move(body), options)).status;
    });
    return status;
  }
  void Do(uint32_t node, txn::Worker::Body body) { IndexCluster::Check(Try(node, std::move(body))); }

  // Takes rows, each once.
  static bool Take(const Row& row, Rows* rows) {
    EXPECT_TRUE(rows->emplace(row.key, row.value).second) << row.key;
    return true;
  }
  Task<absl::Status> ScanAll(Transaction& tx, const Table& table, Rows* rows) {
    rows->clear();
    co_return co_await table.Scan(tx, {}, [rows](const Row& row) { return Take(row, rows); });
  }

  IndexCluster cluster_;
  std::shared_ptr<const Table> table_;
  std::shared_ptr<const Table> far_;
  Rows wanted_;
};

TEST_P(HashScan, ShowsEachRowOnceToItsOwnNodeAndToOthers) {
  Rows rows;
  Do(0, [&](Transaction& tx) { return ScanAll(tx, *table_, &rows); });
  EXPECT_EQ(rows, wanted_);
  Do(1, [&](Transaction& tx) { return ScanAll(tx, *far_, &rows); });
  EXPECT_EQ(rows, wanted_);
}

TEST_P(HashScan, ShowsWhatItsOwnTransactionHasWritten) {
  Rows rows;
  Do(1, [&](Transaction& tx) -> Task<absl::Status> {
    for (const int i : {3, 4}) {
      RowResult row = co_await far_->Get(tx, KeyOf(i));
      if (!row.ok()) co_return row.status();
      if (i == 3) {
        const absl::Status deleted = co_await far_->Delete(tx, *row);
        if (!deleted.ok()) co_return deleted;
      } else {
        auto updated = co_await far_->Update(tx, *row, "new");
        if (!updated.ok()) co_return updated.status();
      }
    }
    auto inserted = co_await far_->Insert(tx, "another", "row");
    if (!inserted.ok()) co_return inserted.status();
    co_return co_await ScanAll(tx, *far_, &rows);
  });
  wanted_.erase(KeyOf(3));
  wanted_[KeyOf(4)] = "new";
  wanted_["another"] = "row";
  EXPECT_EQ(rows, wanted_);
}

TEST_P(HashScan, GoesOnWhereAnotherTransactionHasStopped) {
  Rows rows;
  ScanPosition position;
  int transactions = 0;
  for (; !position.done; ++transactions) {
    Rows some;
    ScanPosition next;
    Do(1, [&](Transaction& tx) -> Task<absl::Status> {
      some.clear();
      auto scanned = co_await far_->ScanUnordered(tx, position, 100,
                                                  [&some](const Row& row) { return Take(row, &some); });
      if (scanned.ok()) next = *scanned;
      co_return scanned.status();
    });
    ASSERT_LT(some.size(), 200u);
    position = next;
    for (const auto& [key, value] : some) EXPECT_TRUE(rows.emplace(key, value).second) << key;
  }
  EXPECT_EQ(rows, wanted_);
  EXPECT_GE(transactions, kRows / 200);
}

TEST_P(HashScan, StopsAtItsLimitAndWhenToldTo) {
  int shown = 0;
  Do(1, [&](Transaction& tx) -> Task<absl::Status> {
    shown = 0;
    co_return co_await far_->Scan(tx, {.limit = 7}, [&](const Row&) { return ++shown > 0; });
  });
  EXPECT_EQ(shown, 7);
  Do(1, [&](Transaction& tx) -> Task<absl::Status> {
    shown = 0;
    co_return co_await far_->Scan(tx, {}, [&](const Row&) { return ++shown < 5; });
  });
  EXPECT_EQ(shown, 5);
}

TEST_P(HashScan, TakesPartitionsOneByOne) {
  Rows all;
  for (uint32_t p = 0; p < GetParam().partitions; ++p) {
    Do(1, [&, p](Transaction& tx) -> Task<absl::Status> {
      co_return co_await far_->Scan(tx, {.partition = static_cast<int>(p)}, [&](const Row& row) {
        EXPECT_EQ(far_->PartitionOf(row.key), p);
        return Take(row, &all);
      });
    });
  }
  EXPECT_EQ(all, wanted_);
}

TEST_P(HashScan, HasNoOrderToOffer) {
  for (ScanSpec spec : {ScanSpec{.range = KeyRange::Prefix("k")}, ScanSpec{.range = KeyRange::From("k")},
                        ScanSpec{.direction = Direction::kBackward}}) {
    const absl::Status refused = Try(1, [&](Transaction& tx) -> Task<absl::Status> {
      co_return co_await far_->Scan(tx, spec, [](const Row&) { return true; });
    });
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find("make the index a B-tree"), std::string::npos) << refused;
  }
}

// A writer moves a value from key to key, so that a snapshot always has the same number of rows.
TEST_P(HashScan, SeesOneSnapshot) {
  bool over = false;
  int moves = 0;
  auto mover = [&](txn::Worker& worker) -> Task<void> {
    for (int i = 0;; ++i) {
      if (over) co_return;
      const txn::CommitResult moved = co_await worker.Run([&, i](Transaction& tx) -> Task<absl::Status> {
        RowResult row = co_await table_->Get(tx, i == 0 ? KeyOf(0) : absl::StrCat("moved", i - 1));
        if (!row.ok()) co_return row.status();
        const absl::Status deleted = co_await table_->Delete(tx, *row);
        if (!deleted.ok()) co_return deleted;
        co_return (co_await table_->Insert(tx, absl::StrCat("moved", i), "value")).status();
      });
      IndexCluster::Check(moved.status);
      ++moves;
    }
  };
  cluster_.worker(0).loop().Spawn(mover(cluster_.worker(0)));
  for (int i = 0; i < 20; ++i) {
    Rows rows;
    IndexCluster::Check(Try(1, [&](Transaction& tx) { return ScanAll(tx, *far_, &rows); },
                            {.transaction = {.read_only = true}}));
    EXPECT_EQ(rows.size(), static_cast<size_t>(kRows));
  }
  over = true;
  EXPECT_GT(moves, 20);
  cluster_.RunOn(0, [](txn::Worker& worker) -> Task<void> { co_await worker.loop().SleepFor(kSecond); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, HashScan,
                         ::testing::Values(Case{RowLayout::kSeparate, 1}, Case{RowLayout::kSeparate, 3},
                                           Case{RowLayout::kInline, 1}, Case{RowLayout::kInline, 3}),
                         [](const auto& info) {
                           return absl::StrCat(
                               info.param.layout == RowLayout::kInline ? "Inline" : "Separate",
                               info.param.partitions);
                         });

}  // namespace
}  // namespace furrow::index
